"""The losses against the slow float64 references of reference.py, and identities of the maths."""

import functools
import math
import sys

import forks
import pytest
import reference
import torch
from loss_cases import (
    BINARY_NCE,
    PARAMETERS,
    ROWS,
    SAMPLED_BCE,
    SHARED,
    TARGETED,
    assert_near,
    call,
    gradients,
    make_problem,
    with_gradients,
)
from tools import modern

from fairseq_bnce import losses
from fairseq_bnce.losses import partition, precision, shared_scores

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

ALL_ROWS = pytest.mark.parametrize("name", list(ROWS))
BOTH_TYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])


@functools.lru_cache(maxsize=None)
def expected(name, log_z, count, **settings):
    """Values (N,) of the float64 reference, and the gradients of their sum."""
    problem = with_gradients(make_problem(count, **settings), torch.float64)
    values = call(reference, name, problem, log_z=log_z)
    return values.detach(), gradients(values.sum(), problem)


def total(name, problem, **options):
    """Our loss, summed (by ourselves where the function has no reduction)."""
    value = call(losses, name, problem, **options)
    return value if ROWS[name].reduces else value.sum()


def assert_agrees(name, problem, want, tolerance, **options):
    """Values of the tokens, their sum and every gradient of the sum are the expected ones."""
    values, want_gradients = want
    summed = total(name, problem, **options)
    assert_near(call(losses, name, problem, reduction="none", **options), values, tolerance)
    assert_near(summed, values.sum(), tolerance, scale=values.abs().sum())
    for key, gradient in gradients(summed, problem).items():
        assert_near(gradient, want_gradients[key], tolerance)


# ---- agreement with the references -----------------------------------------------------------


@BOTH_TYPES
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "distinct"])
@pytest.mark.parametrize("count", [*modern(2, 3), 17, *modern(400, 2000)])
@pytest.mark.parametrize(
    "name, log_z",
    [(name, z) for name in ROWS for z in (0.0, 9.0) if not z or ROWS[name].takes_log_z],
)
def test_agrees_with_reference(name, count, repeated, bias, log_z, dtype):
    """Values and gradients, with repeated and distinct targets, with and without bias."""
    # One by one, in float32, are summed a word's fresh draws: few of them, for the error's sake.
    draws = 3 if name == "nce" else 3 + count // 200
    settings = {"count": count, "repeated": repeated, "bias": bias, "draws": draws}
    problem = with_gradients(make_problem(**settings), dtype)
    want = expected(name, log_z, **settings)
    assert_agrees(name, problem, want, TOLERANCE[dtype], log_z=log_z)


@BOTH_TYPES
@ALL_ROWS
def test_agrees_where_scores_are_extreme(name, dtype):
    """Scores of several hundred: e^score overflows float32, and a softplus cut shows."""
    problem = make_problem(17, scale=200.0)
    assert call(reference, "target_scores", problem).abs().max() > 200
    want = expected(name, 0.0, 17, scale=200.0)
    assert_agrees(name, with_gradients(problem, dtype), want, TOLERANCE[dtype])


@pytest.mark.parametrize("name", [*BINARY_NCE, *SAMPLED_BCE])
def test_softplus_has_no_cut(name):
    """Scores of about 20, where log(1 + e^x) and x differ by 1e-9, enough to be seen."""
    problem = make_problem(17, seed=3)
    problem["bias"] = problem["bias"] + 22.0
    problem = with_gradients(problem, torch.float64)
    values = call(reference, name, problem)
    assert_agrees(name, problem, (values.detach(), gradients(values.sum(), problem)), 1e-13)


def confident_problem():
    """Four tokens whose targets have delta 12 and whose noise has -12 (K q = 1)."""
    words, eye = torch.arange(4), torch.eye(4)
    return {
        "features": 24 * eye,
        "target": words,
        "weight": eye,
        "bias": torch.full((4,), -12.0),
        "log_q": torch.full((4,), -math.log(3.0)),
        "fresh_ids": (words[:, None] + torch.tensor([1, 2, 3])) % 4,
    }


def test_confident_model_fresh_draws():
    """A loss of 1e-5 nats a token, which NCE with fresh draws keeps to float32's precision."""
    problem = confident_problem()
    values = call(reference, "nce", problem)
    assert 1e-6 < values.max() < 1e-4
    assert_near(call(losses, "nce", problem, reduction="none"), values, 1e-5)


def test_confident_model_batch():
    """Merging words costs a loss that small its relative precision: it is a difference of deltas.

    What is lost stays within a rounding of delta, here 12.
    """
    problem = confident_problem()
    values = call(reference, "bnce", problem)
    got = call(losses, "bnce", problem, reduction="none")
    assert_near(got, values, 2 * torch.finfo(torch.float32).eps, scale=12.0)


# ---- the paper's matrices --------------------------------------------------------------------


@pytest.mark.parametrize("log_z", [0.0, 9.0])
@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "distinct"])
def test_paper_matrices(repeated, log_z):
    """Oualil & Klakow 2017, eq. 7-12: loss, G W, G^T H and G^T 1 are our loss and gradients."""
    problem = with_gradients(make_problem(17, repeated=repeated), torch.float64)
    target, weight, bias = problem["target"], problem["weight"], problem["bias"]
    with torch.no_grad():
        row_q = problem["log_q"].double()[target].exp()
        paper = reference.paper_form(
            problem["features"], weight[target], bias[target], row_q, log_z
        )
    loss = total("bnce", problem, log_z=log_z)
    got = gradients(loss, problem)
    assert_near(loss, paper.loss, 1e-12)
    assert_near(got["features"], paper.d_features, 1e-12)
    d_weight = torch.zeros_like(weight).index_add(0, target, paper.d_rows)
    d_bias = torch.zeros_like(bias).index_add(0, target, paper.d_row_bias)
    assert_near(got["weight"], d_weight, 1e-12)
    assert_near(got["bias"], d_bias, 1e-12)


@pytest.mark.parametrize("name", ["bnce", "bnce_noise", "shared_nce", *SAMPLED_BCE[:2]])
def test_compressed_is_uncompressed(name):
    """Merging repeated words changes nothing: give every draw a row of its own instead."""
    problem = with_gradients(make_problem(17, draws=9), torch.float64)
    words = torch.cat([problem["target"], problem["noise_ids"]])
    assert len(words.unique()) < len(words)
    spread = dict(problem, log_q=problem["log_q"][words])
    spread.update(weight=problem["weight"][words], bias=problem["bias"][words])
    spread["target"], spread["noise_ids"] = torch.arange(len(words)).split([17, 9])
    merged, separate = total(name, problem), total(name, spread)
    assert_near(merged, separate, 1e-12)
    want = gradients(separate, dict(spread, weight=problem["weight"], bias=problem["bias"]))
    for key, gradient in gradients(merged, problem).items():
        assert_near(gradient, want[key], 1e-12)


# ---- derivatives -----------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@ALL_ROWS
def test_gradcheck(name, bias):
    """Derivatives of every token's loss by finite differences."""
    problem = with_gradients(make_problem(3, bias=bias), torch.float64)
    names = [key for key in PARAMETERS if problem[key] is not None]

    def function(*parameters):
        changed = dict(problem, **dict(zip(names, parameters)))
        return call(losses, name, changed, log_z=0.3, reduction="none")

    assert torch.autograd.gradcheck(function, [problem[key] for key in names])


@pytest.mark.parametrize("learned", PARAMETERS)
@ALL_ROWS
def test_one_parameter_learned(name, learned):
    """With the other parameters frozen the gradient of the one that learns is the same."""
    problem = with_gradients(make_problem(17), torch.float64, names=(learned,))
    got = gradients(total(name, problem), problem)
    assert list(got) == [learned]
    assert_near(got[learned], expected(name, 0.0, 17)[1][learned], 1e-12)


@ALL_ROWS
def test_without_gradients(name):
    """Under no_grad the values are the same, and without a graph."""
    problem = with_gradients(make_problem(17), torch.float64)
    with torch.no_grad():
        value = total(name, problem)
    assert not value.requires_grad
    assert_near(value, expected(name, 0.0, 17)[0].sum(), 1e-12)


@ALL_ROWS
def test_strided_inputs(name):
    """Views that are not contiguous give the same loss and gradients."""
    problem = with_gradients(make_problem(17), torch.float64)
    views = dict(problem)
    for key in ("features", "weight"):
        views[key] = problem[key].t().contiguous().t()
    for key in ("target", "noise_ids", "log_q"):
        views[key] = torch.stack([problem[key]] * 2, 1)[:, 0]
    assert not views["features"].is_contiguous() and not views["target"].is_contiguous()
    loss = total(name, views)
    values, want = expected(name, 0.0, 17)
    assert_near(loss, values.sum(), 1e-12)
    for key, gradient in gradients(loss, problem).items():
        assert_near(gradient, want[key], 1e-12)


@pytest.mark.parametrize("name", TARGETED)
def test_other_words_are_not_read(name):
    """Words that are neither target nor noise may hold NaN: nothing reads them."""
    problem = with_gradients(make_problem(17, repeated=False), torch.float64)
    used = torch.zeros(len(problem["weight"]), dtype=torch.bool)
    for key in set(ROWS[name].tensors) & {"target", "noise_ids", "fresh_ids"}:
        problem[key] = problem[key] % 20
        used[problem[key].flatten()] = True
    assert not used.all()
    clean = total(name, problem)
    for key in ("weight", "bias"):
        problem[key].data[~used] = math.nan
    problem["log_q"] = problem["log_q"].masked_fill(~used, -math.inf)
    loss = total(name, problem)
    assert torch.equal(loss, clean)
    got = gradients(loss, problem)
    assert not got["weight"][~used].any() and not got["bias"][~used].any()
    assert got["features"].isfinite().all()


# ---- identities ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].reduces])
def test_sum_is_the_default(name):
    """The default reduction is the sum of what "none" returns."""
    problem = with_gradients(make_problem(17), torch.float64)
    values = call(losses, name, problem, reduction="none")
    assert values.shape == (17,)
    assert_near(call(losses, name, problem), values.sum(), 1e-14)
    assert_near(call(losses, name, problem, reduction="sum"), values.sum(), 1e-14)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].takes_log_z])
def test_bias_may_carry_log_z(name):
    """log Z added to the constant and to every bias leaves loss and gradients unchanged."""
    problem = with_gradients(make_problem(17), torch.float64)
    shifted = dict(problem, bias=problem["bias"] + 9.0)
    plain, moved = total(name, problem), total(name, shifted, log_z=9.0)
    assert_near(moved, plain, 1e-12)
    want = gradients(plain, problem)
    for key, gradient in gradients(moved, problem).items():
        assert_near(gradient, want[key], 1e-12)


@pytest.mark.parametrize("name", [*BINARY_NCE, *SAMPLED_BCE, "partition_penalty"])
def test_log_z_matters(name):
    """The constant is used: where log Z changes alone the loss changes."""
    problem = make_problem(17)
    assert abs(total(name, problem, log_z=1.0) - total(name, problem)) > 0.1


def unigram_problem(draws):
    """One context of a self-normalised model; noise holds each word draws * q(v) times.

    So sums over the noise are expectations, with no chance in them.
    """
    share = torch.tensor([1, 1, 2, 3, 3])
    problem = make_problem(1, seed=5)
    weight = problem["weight"][:5].double()
    bias = problem["bias"][:5].double()
    features = problem["features"].double()
    bias = bias - reference.log_partition(features, weight, bias)
    noise = torch.arange(5).repeat_interleave(share * (draws // 10))
    return {
        "features": features,
        "target": torch.tensor([2]),
        "weight": weight,
        "bias": bias.requires_grad_(),
        "log_q": (share / 10.0).log(),
        "noise_ids": noise,
        "fresh_ids": noise[None],
    }


def distance_to_softmax(name, draws):
    """Greatest difference of d loss / d score from the softmax gradient p(v) - [v = w]."""
    problem = unigram_problem(draws)
    got = gradients(total(name, problem), problem)["bias"]
    scores = reference.word_scores(
        problem["features"], torch.arange(5), problem["weight"], problem["bias"]
    )
    want = scores.softmax(1)[0] - torch.eye(5)[2]
    return (got - want).abs().max().item()


@pytest.mark.parametrize("name", ["bnce_noise", "shared_nce", "nce"])
def test_many_draws_give_the_softmax_gradient(name):
    """Mnih & Teh 2012: as K grows NCE's expected gradient becomes maximum likelihood's.

    For Z_c = 1 the error is p(v)^2 / (K q(v)) and p(w) / (K q(w)) in the first order: ten times
    the draws, a tenth of the error.
    """
    few, many = distance_to_softmax(name, 1000), distance_to_softmax(name, 10000)
    assert many < 1e-3
    assert 8 < few / many < 12


def test_large_batch_gives_the_softmax_gradient():
    """Batch NCE: N targets in proportion to q, all in one context, are noise for each other."""
    errors = []
    for count in (1000, 10000):
        problem = unigram_problem(count)
        features = problem["features"].expand(count, -1).detach().clone().requires_grad_()
        problem.update(features=features, target=problem["noise_ids"])
        with torch.no_grad():
            scores = reference.word_scores(
                features[:1], torch.arange(5), problem["weight"], problem["bias"]
            )
            gap = scores.softmax(1) - torch.eye(5)[problem["target"]]
            want = gap @ problem["weight"]
        got = gradients(total("bnce", problem), problem)["features"]
        errors.append((got - want).abs().max().item())
    assert errors[1] < 1e-3
    assert 8 < errors[0] / errors[1] < 12


def test_draws_that_hit_the_target_are_removed():
    """Sampled softmax: where every draw is the target nothing is left to rank, so the loss is 0."""
    problem = with_gradients(make_problem(3), torch.float64)
    problem.update(target=torch.tensor([4, 4, 4]), noise_ids=torch.tensor([4, 4]))
    loss = total("sampled_softmax", problem)
    assert loss.item() == 0
    assert all(not gradient.any() for gradient in gradients(loss, problem).values())


@pytest.mark.parametrize("name", [name for name in ROWS if name != "bnce"])
@pytest.mark.parametrize("draws", [1, 6])
def test_no_tokens(name, draws):
    """A rank whose batch is all padding: loss 0, connected to every parameter, zero gradients."""
    problem = with_gradients(make_problem(0, draws=draws), torch.float32)
    assert call(losses, name, problem, reduction="none").shape == (0,)
    loss = total(name, problem)
    assert loss.item() == 0 and loss.requires_grad
    loss.backward()
    for key in PARAMETERS:
        assert problem[key].grad is not None and not problem[key].grad.any()


# ---- number formats --------------------------------------------------------------------------

HALVES = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=["half", "bfloat16"])


def rounded_reference(name, problem):
    """Float64 values and gradients on the inputs as they are, and as they were rounded."""
    exact = with_gradients(problem, torch.float64)
    values = call(reference, name, exact)
    return values.detach(), gradients(values.sum(), exact)


def assert_rounded_once(got, want):
    """The gradient is the float32 one, rounded to its own format at the end."""
    limit = torch.finfo(got.dtype).eps / 2 * want.abs() + 1e-5 * want.abs().max()
    assert ((got.double() - want).abs() <= limit).all()


@HALVES
@ALL_ROWS
def test_half_precision_inputs(name, half):
    """Scores and gradients are computed in float32; gradients come back in the inputs' type."""
    problem = with_gradients(make_problem(400, draws=20), half)
    values, want = rounded_reference(name, problem)
    loss = total(name, problem)
    assert loss.dtype == torch.float32
    assert_near(loss, values.sum(), 1e-5)
    assert_near(call(losses, name, problem, reduction="none"), values, 1e-5)
    for key, gradient in gradients(loss, problem).items():
        assert gradient.dtype == half
        assert_rounded_once(gradient, want[key])


@ALL_ROWS
def test_mixed_inputs(name):
    """Half-precision features over float32 weights: each gradient has its input's type."""
    problem = with_gradients(make_problem(17), torch.float32)
    problem["features"] = problem["features"].detach().bfloat16().requires_grad_()
    values, want = rounded_reference(name, problem)
    loss = total(name, problem)
    assert loss.dtype == torch.float32
    assert_near(loss, values.sum(), 1e-5)
    for key, gradient in gradients(loss, problem).items():
        assert gradient.dtype == problem[key].dtype
        assert_rounded_once(gradient, want[key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@ALL_ROWS
def test_autocast_does_not_lower_precision(name, dtype):
    """Inside autocast (fairseq's --amp), too, scores are computed in float32."""
    problem = with_gradients(make_problem(17), dtype)
    values, want = rounded_reference(name, problem)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = total(name, problem)
    assert loss.dtype == torch.float32
    assert_near(loss, values.sum(), 1e-5)
    for key, gradient in gradients(loss, problem).items():
        assert_rounded_once(gradient, want[key])


# ---- the partition function ------------------------------------------------------------------


@pytest.mark.parametrize("scores", [1, 40, 10**6])
@pytest.mark.parametrize("name", SHARED)
def test_shared_scores_in_chunks(name, scores, monkeypatch):
    """One token at a time, a few, all at once: summed, or weighted token by token."""
    monkeypatch.setattr(shared_scores, "_CHUNK_SCORES", {"cpu": scores})
    problem = with_gradients(make_problem(17), torch.float64)
    assert_agrees(name, problem, expected(name, 0.5, 17), 1e-12, log_z=0.5)
    weights = torch.linspace(-1, 2, 17, dtype=torch.float64)
    weighted = (call(losses, name, problem, log_z=0.5, reduction="none") * weights).sum()
    want = (call(reference, name, problem, log_z=0.5) * weights).sum()
    got = gradients(weighted, problem)
    for key, gradient in gradients(want, problem).items():
        assert_near(got[key], gradient, 1e-12)


MEASURED = """
import math, sys, torch
from fairseq_bnce import losses
from memory import memory

def measure(run, small, large, *others):
    run(small, *others)
    before = memory("VmRSS")
    run(large, *others)
    print((memory() - before) / 2**20)
"""

SHARED_MEMORY_PROBE = """
def run(count, words, features, *draws):
    features = torch.ones(count, features, requires_grad=True)
    weight = torch.zeros(words, features.size(1), requires_grad=True)
    target = torch.arange(count) % words
    log_q = torch.full((words,), 1 / words).log()
    noise = [torch.arange(count * each).view(count, each) % words for each in draws]
    getattr(losses, sys.argv[1])(features, target, weight, None, log_q, *noise).backward()
    assert weight.grad.abs().sum() > 0

measure(run, *map(int, sys.argv[2:]))
"""


@pytest.mark.modern
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.parametrize("function", ["batch_nce_loss", "ranking_nce_loss"])
def test_memory_of_a_large_batch_is_that_of_a_chunk(function, tmp_path):
    """10,000 x 10,000 scores would take 400 MB: forward and backward stay under 200 MB."""
    assert 0 < measured(SHARED_MEMORY_PROBE, tmp_path, function, 3, 10_000, 10_000, 16) < 200


@pytest.mark.modern
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_memory_of_fresh_draws_is_that_of_their_scores(tmp_path):
    """The rows of 1,000 x 200 draws would take 400 MB: forward and backward stay under 100 MB."""
    sizes = (3, 1000, 2000, 512, 200)
    assert 0 < measured(SHARED_MEMORY_PROBE, tmp_path, "nce_loss", *sizes) < 100


def measured(probe, folder, *arguments):
    """What a program prints at last; in a fork, whose peak starts at what it has then."""
    (folder / "probe.py").write_text(MEASURED + probe, encoding="utf-8")
    done = forks.run([sys.executable, folder / "probe.py", *map(str, arguments)])
    assert done.returncode == 0, done.stdout.decode()
    return float(done.stdout.split()[-1])


@pytest.mark.parametrize("chunk_tokens", [1, 3, 17, 1000, None])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_log_partition_chunks(chunk_tokens, bias):
    """Any chunk size gives torch.logsumexp of all scores, and the softmax as its gradient."""
    problem = with_gradients(make_problem(17, bias=bias), torch.float64)
    scores = torch.nn.functional.linear(problem["features"], problem["weight"], problem["bias"])
    want = torch.logsumexp(scores, 1)
    got = call(losses, "log_partition", problem, chunk_tokens=chunk_tokens)
    assert_near(got, want, 1e-13)
    factors = torch.linspace(-1, 2, 17, dtype=torch.float64)
    want_gradients = gradients((factors * want).sum(), problem)
    for key, gradient in gradients((factors * got).sum(), problem).items():
        assert_near(gradient, want_gradients[key], 1e-12)


@pytest.mark.parametrize("chunk_tokens", [1, 3, None])
@pytest.mark.parametrize("squash", [False, True], ids=["plain", "squashed"])
def test_predictive_statistics(chunk_tokens, squash):
    """As torch has them from all scores at once, also over many blocks of words."""
    rng = torch.Generator().manual_seed(3)
    shapes = {"features": (1100, 3), "weight": (6000, 3), "bias": (6000,)}
    problem = {k: torch.randn(s, generator=rng, dtype=torch.float64) for k, s in shapes.items()}
    scores = problem["features"] @ problem["weight"].t() + problem["bias"]
    scores = 10 * torch.tanh(scores / 5) if squash else scores
    found = losses.predictive_statistics(
        *problem.values(), chunk_tokens=chunk_tokens, squash=squash
    )
    assert_near(found.log_partition, scores.logsumexp(1), 1e-13)
    assert_near(found.entropy, torch.distributions.Categorical(logits=scores).entropy(), 1e-12)
    assert torch.equal(found.best, scores.argmax(1)) and found.best.max() > 3000
    assert_near(found.best_score, scores.max(1).values, 1e-13)


@pytest.mark.parametrize("chunk_tokens", [5, None], ids=["tiles", "one_tile"])
def test_log_partition_gives_its_gradients_again(chunk_tokens):
    """What is kept for the backward pass outlives it."""
    problem = with_gradients(make_problem(17), torch.float64)
    loss = call(losses, "log_partition", problem, chunk_tokens=chunk_tokens).square().sum()
    inputs = [problem[key] for key in PARAMETERS]
    once = torch.autograd.grad(loss, inputs, retain_graph=True)
    for first, second in zip(once, torch.autograd.grad(loss, inputs)):
        assert torch.equal(first, second)


@pytest.mark.parametrize("chunk_tokens", [1100, None], ids=["few_words", "all_words"])
def test_log_partition_of_impossible_words(chunk_tokens):
    """A bias of -inf takes words out, also all of a block's."""
    rng = torch.Generator().manual_seed(5)
    features = torch.randn(1100, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6000, 3, generator=rng, dtype=torch.float64)
    bias = torch.zeros(6000, dtype=torch.float64)
    bias[:4500] = -math.inf
    got = losses.log_partition(features, weight, bias, chunk_tokens=chunk_tokens)
    want = (features @ weight[4500:].t()).logsumexp(1)
    assert_near(got, want, 1e-13)
    (gradient,) = torch.autograd.grad(got.sum(), features)
    assert_near(gradient, torch.autograd.grad(want.sum(), features)[0], 1e-12)


@pytest.mark.parametrize("chunk_tokens", [None, 1000])
def test_statistics_of_impossible_words(chunk_tokens):
    """They are as if these words were not there."""
    rng = torch.Generator().manual_seed(5)
    features, weight, bias = (
        torch.randn(1100, 3, generator=rng),
        torch.ones(6000, 3),
        torch.zeros(6000),
    )
    weight = weight * torch.linspace(-1, 1, 6000)[:, None]
    bias[:4500] = -math.inf
    got = losses.predictive_statistics(features, weight, bias, chunk_tokens=chunk_tokens)
    want = losses.predictive_statistics(features, weight[4500:], None)
    for name in ("log_partition", "entropy", "best_score"):
        assert_near(getattr(got, name), getattr(want, name), 1e-5)
    assert torch.equal(got.best, want.best + 4500)


def test_log_partition_of_a_large_vocabulary():
    """More tokens and words than one block of scores holds: the blocks are joined rightly."""
    rng = torch.Generator().manual_seed(7)
    shapes = {"features": (1100, 3), "weight": (6000, 3), "bias": (6000,)}
    problem = {
        key: torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_()
        for key, shape in shapes.items()
    }
    got, want = total("log_partition", problem), reference.log_partition(**problem).sum()
    assert_near(got, want, 1e-13)
    want_gradients = gradients(want, problem)
    for key, gradient in gradients(got, problem).items():
        assert_near(gradient, want_gradients[key], 1e-12)


@HALVES
def test_log_partition_chunks_are_summed_in_float32(half):
    """Gradients of many chunks are added up before they are rounded to half precision."""
    problem = with_gradients(make_problem(400), half)
    _, want = rounded_reference("log_partition", problem)
    loss = call(losses, "log_partition", problem, chunk_tokens=7).sum()
    for key, gradient in gradients(loss, problem).items():
        assert gradient.dtype == half
        assert_rounded_once(gradient, want[key])


MEMORY_PROBE = """
def run(count, vocab):
    features = torch.ones(count, 16, requires_grad=True)
    weight = torch.zeros(vocab, 16, requires_grad=True)
    chunked = losses.log_partition(features, weight, None, chunk_tokens=200).sum()
    chunked.backward()
    penalty = losses.partition_penalty(features, weight, None, alpha=1.0)
    penalty.backward()
    assert abs(chunked.item() / count - math.log(vocab)) < 0.01
    assert abs(penalty.item() / count - math.log(vocab) ** 2) < 0.1

measure(run, 3, 2000, 50000)
"""


@pytest.mark.modern
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_partition_memory(tmp_path):
    """2000 x 50,000 scores would take 400 MB: forward and backward stay under 300 MB.

    With chunks of the caller's size, and with the default ones that the penalty uses.
    """
    assert 0 < measured(MEMORY_PROBE, tmp_path) < 300


def test_unsquashed_is_the_inverse_of_squashed():
    scores = torch.tensor([-9.8, -3.0, 0.0, 0.5, 9.8], dtype=torch.float64)
    torch.testing.assert_close(10 * torch.tanh(losses.unsquashed(scores) / 5), scores)
    far = losses.squashed(losses.unsquashed(torch.tensor([-14.0, -10.0, 11.0])))
    torch.testing.assert_close(far, torch.tensor([-9.9, -9.9, 9.9]))


@pytest.mark.parametrize("name", ROWS)
def test_losses_under_inference_mode(name):
    problem = make_problem(17)
    want = call(losses, name, problem).sum()
    with torch.inference_mode():
        got = call(losses, name, problem).sum()
    assert torch.equal(got, want)


@pytest.fixture
def halves_on_a_gpu(monkeypatch):
    """The way of halves on a CUDA device, with products that the CPU makes in float32."""
    monkeypatch.setattr(precision, "_HAS_WIDE_PRODUCT", True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch, "mm", _product)


def _product(a, b, *, out_dtype=None, out=None):
    product = (a.float() @ b.float()).to(out_dtype or a.dtype)
    return product if out is None else out.copy_(product)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["half", "bf16"])
@pytest.mark.parametrize("chunk", [2**23, 70])
@pytest.mark.parametrize("name", ROWS)
def test_products_of_halves(name, chunk, dtype, halves_on_a_gpu, monkeypatch):
    """Losses are as exact as those of float32; gradients are rounded to halves once or twice."""
    monkeypatch.setitem(shared_scores._CHUNK_SCORES, "halves", chunk)
    monkeypatch.setitem(partition._TILE_SCORES, "cpu", chunk)
    monkeypatch.setattr(shared_scores, "_BLOCK_CHUNKS", 2)
    problem = make_problem(33)
    rounded = with_gradients(problem, dtype)
    exact = with_gradients(
        {k: v if v is None else v.detach() for k, v in rounded.items()}, torch.float64
    )
    want, got = (call(losses, name, each).sum() for each in (exact, rounded))
    assert got.dtype == torch.float32
    assert_near(got, want, 1e-5)
    wanted = gradients(want, exact)
    for key, gradient in gradients(got, rounded).items():
        assert gradient.dtype == dtype
        assert_near(gradient, wanted[key], 1e-2)
