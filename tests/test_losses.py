"""The losses against the slow float64 references of reference.py, and identities of the maths."""

import functools
import itertools
import math
import sys

import forks
import pytest
import reference
import torch
from loss_cases import (
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

from fairseq_bnce import losses
from fairseq_bnce.losses import partition, shared_scores, words

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
FULL, HALF, FP16 = torch.float32, torch.bfloat16, torch.float16
ALL_ROWS = pytest.mark.parametrize("name", list(ROWS))


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


def assert_gradients(loss, problem, want, tolerance):
    for key, gradient in gradients(loss, problem).items():
        assert_near(gradient, want[key], tolerance)


def assert_agrees(name, problem, want, tolerance, **options):
    """Values of the tokens, their sum and every gradient of the sum are the expected ones."""
    values, want_gradients = want
    summed = total(name, problem, **options)
    assert_near(call(losses, name, problem, reduction="none", **options), values, tolerance)
    assert_near(summed, values.sum(), tolerance, scale=values.abs().sum())
    if ROWS[name].reduces:
        mean = call(losses, name, problem, reduction="mean", **options)
        assert_near(mean, values.mean(), tolerance, scale=values.abs().mean())
    assert_gradients(summed, problem, want_gradients, tolerance)


# ---- agreement with the references -----------------------------------------------------------


PROBLEMS = [
    *((2, 9.0, {}), (17, 9.0, {}), (17, -22.0, {}), (400, 0.0, {})),
    *((17, 0.0, {"scale": 200.0}), (17, 0.0, {"repeated": False, "bias": False})),
]


@pytest.mark.parametrize("count, log_z, settings", PROBLEMS)
@ALL_ROWS
def test_agrees_with_reference(name, count, log_z, settings):
    """Values and gradients, with repeated and distinct targets, with and without bias.

    Where scores are several hundred, e^score overflows float32. At 22, where log(1 + e^x) and x
    differ by 1e-10, a cut in the softplus shows.
    """
    # A word's fresh draws are summed one by one in float32: few of them, for the error's sake.
    settings = {"count": count, "draws": 3 if name == "nce" else 3 + count // 200, **settings}
    want = expected(name, log_z, **settings)
    for dtype, tolerance in TOLERANCE.items():
        problem = with_gradients(make_problem(**settings), dtype)
        assert_agrees(name, problem, want, tolerance, log_z=log_z)


# ---- derivatives -----------------------------------------------------------------------------


@ALL_ROWS
def test_one_parameter_learned(name):
    """With the other parameters frozen the gradient of the one that learns is the same."""
    for learned in PARAMETERS:
        problem = with_gradients(make_problem(17), torch.float64, names=(learned,))
        got = gradients(total(name, problem), problem)
        assert list(got) == [learned]
        assert_near(got[learned], expected(name, 0.0, 17)[1][learned], 1e-12)


@ALL_ROWS
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(name, mode):
    """The values are the same, and without a graph."""
    problem = with_gradients(make_problem(17), torch.float64)
    with mode():
        value = total(name, problem)
    assert not value.requires_grad
    assert_near(value, expected(name, 0.0, 17)[0].sum(), 1e-12)


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


def test_draws_that_hit_the_target_are_removed():
    """Sampled softmax: where every draw is the target nothing is left to rank, so the loss is 0."""
    problem = with_gradients(make_problem(3), torch.float64)
    problem.update(target=torch.tensor([4, 4, 4]), noise_ids=torch.tensor([4, 4]))
    loss = total("sampled_softmax", problem)
    assert loss.item() == 0
    assert all(not gradient.any() for gradient in gradients(loss, problem).values())


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_no_tokens(name, reduction):
    """A batch that is all padding: loss 0, connected to every parameter, zero gradients.

    The mean is nan, as that of torch's cross_entropy, also with zero gradients.
    """
    problem = with_gradients(make_problem(0, draws=1), torch.float32)
    assert call(losses, name, problem, reduction="none").shape == (0,)
    loss = total(name, problem, reduction=reduction)
    assert loss.requires_grad
    assert loss.isnan() if reduction == "mean" and ROWS[name].reduces else loss.item() == 0
    loss.backward()
    for key in PARAMETERS:
        assert problem[key].grad is not None and not problem[key].grad.any()


@pytest.mark.parametrize("kept", [9, 2, 1, 0])
@pytest.mark.parametrize("ignored", [-100, 3])
@pytest.mark.parametrize("name", [name for name in ROWS if "log_q" in ROWS[name].tensors])
def test_ignored_targets(name, ignored, kept):
    """As if they and their own draws were not there; their loss is 0, and a mean has no share."""
    if kept == 1 and name in ("bnce", "ranking"):
        return  # no noise
    problem = make_problem(17, draws=4)
    problem["target"][problem["target"] == ignored] = 1
    is_kept = torch.randperm(17, generator=torch.Generator().manual_seed(2)) < kept
    rest = {k: problem[k][is_kept] for k in ("features", "target", "fresh_ids")}
    rest = with_gradients({**problem, **rest}, torch.float64)
    problem["target"][~is_kept] = ignored
    problem = with_gradients(problem, torch.float64)
    for reduction in ("sum", "mean") if kept else ("sum",):
        want = call(losses, name, rest, reduction=reduction)
        got = call(losses, name, problem, reduction=reduction, ignore_index=ignored)
        assert_near(got, want, 1e-13)
        want_gradients = gradients(want, rest)
        of_features = torch.zeros_like(problem["features"])
        of_features[is_kept] = want_gradients["features"]
        assert_gradients(got, problem, {**want_gradients, "features": of_features}, 1e-13)
    values = call(losses, name, problem, reduction="none", ignore_index=ignored)
    want = torch.zeros(17, dtype=torch.float64)
    want[is_kept] = call(losses, name, rest, reduction="none").detach()
    assert_near(values, want, 1e-13)


# ---- number formats --------------------------------------------------------------------------


def rounded_reference(name, problem):
    """Float64 values and gradients on the inputs as they are, and as they were rounded."""
    exact = with_gradients(problem, torch.float64)
    values = call(reference, name, exact)
    return values.detach(), gradients(values.sum(), exact)


def assert_rounded_once(loss, problem, want):
    """Gradients are the float32 ones, rounded to their own format at the end."""
    for key, got in gradients(loss, problem).items():
        assert got.dtype == problem[key].dtype
        limit = torch.finfo(got.dtype).eps / 2 * want[key].abs() + 1e-5 * want[key].abs().max()
        assert ((got.double() - want[key]).abs() <= limit).all()


TYPES = [(FULL, FULL), (HALF, FULL), (HALF, HALF), (FP16, FP16), (torch.float64, FULL)]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("of_features, dtype", TYPES)
@ALL_ROWS
def test_half_precision_inputs(name, of_features, dtype, autocast):
    """Scores and gradients are computed in float32; gradients come back in the inputs' types.

    Inside autocast (fairseq's --amp), too.
    """
    problem = with_gradients(make_problem(100, draws=20), dtype)
    problem["features"] = problem["features"].detach().to(of_features).requires_grad_()
    values, want = rounded_reference(name, problem)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = total(name, problem)
        assert_near(call(losses, name, problem, reduction="none"), values, 1e-5)
        assert_rounded_once(total(name, problem), problem, want)
    assert loss.dtype == torch.promote_types(of_features, torch.float32)
    assert_near(loss, values.sum(), 1e-5)
    assert_rounded_once(loss, problem, want)


@pytest.fixture
def halves_on_a_gpu(monkeypatch):
    """The way of halves on a CUDA device, with products that the CPU makes in float32."""
    monkeypatch.setattr(words, "_HAS_WIDE_PRODUCT", True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch, "mm", _product)


def _product(a, b, *, out_dtype=None, out=None):
    product = (a.float() @ b.float()).to(out_dtype or a.dtype)
    return product if out is None else out.copy_(product)


@pytest.mark.parametrize("chunk, dtype", [(2**23, torch.bfloat16), (70, torch.float16)])
@ALL_ROWS
def test_products_of_halves(name, chunk, dtype, halves_on_a_gpu, monkeypatch):
    """Losses are as exact as those of float32; gradients are rounded to halves once or twice."""
    monkeypatch.setitem(shared_scores._CHUNK_SCORES, "halves", chunk)
    monkeypatch.setitem(partition._TILE_SCORES, "cpu", chunk)
    monkeypatch.setattr(shared_scores, "_BLOCK_CHUNKS", 2)
    rounded = with_gradients(make_problem(33), dtype)
    exact = with_gradients(rounded, torch.float64)
    want, got = (call(losses, name, each).sum() for each in (exact, rounded))
    assert got.dtype == torch.float32
    assert_near(got, want, 1e-5)
    assert_gradients(got, rounded, gradients(want, exact), 1e-2)


# ---- chunks and memory -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SHARED)
def test_shared_scores_in_chunks(name, monkeypatch):
    """One token at a time, a few, all at once: summed, or weighted token by token."""
    weights = torch.linspace(-1, 2, 17, dtype=torch.float64)
    for scores in (1, 40, 10**6):
        monkeypatch.setattr(shared_scores, "_CHUNK_SCORES", {"cpu": scores})
        problem = with_gradients(make_problem(17), torch.float64)
        assert_agrees(name, problem, expected(name, 0.5, 17), 1e-12, log_z=0.5)
        weighted = (call(losses, name, problem, log_z=0.5, reduction="none") * weights).sum()
        want = (call(reference, name, problem, log_z=0.5) * weights).sum()
        assert_gradients(weighted, problem, gradients(want, problem), 1e-12)


def computed(name, count, words, features, *draws):
    """A loss and its gradients."""
    features = torch.ones(count, features, requires_grad=True)
    weight = torch.zeros(words, features.size(1), requires_grad=True)
    if name == "partition_penalty":
        losses.partition_penalty(features, weight, None, alpha=1.0).backward()
        losses.log_partition(features, weight, None, chunk_tokens=200).sum().backward()
        return
    target = torch.arange(count) % words
    log_q = torch.full((words,), 1 / words).log()
    noise = [torch.arange(count * each).view(count, each) % words for each in draws]
    getattr(losses, name)(features, target, weight, None, log_q, *noise).backward()
    assert weight.grad.abs().sum() > 0


def memory(field="VmHWM"):
    """Bytes: VmHWM is the peak of the process itself, where ru_maxrss may be its parent's."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def print_memory(name, small, large, *others):
    computed(name, small, *others)
    before = memory("VmRSS")
    computed(name, large, *others)
    print((memory() - before) / 2**20)


MEASURED = [
    ("batch_nce_loss", 200, (3, 10_000, 10_000, 16)),
    ("nce_loss", 100, (3, 1000, 2000, 512, 200)),  # its rows would take 400 MB
    ("partition_penalty", 300, (3, 2000, 50_000, 16)),
]


@pytest.mark.modern
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.parametrize("function, limit, sizes", MEASURED)
def test_memory_is_that_of_a_chunk(function, limit, sizes):
    """All scores would take 400 MB. A fork's peak starts at what the process has then."""
    main = functools.partial(print_memory, function, *sizes)
    done = forks.run([sys.executable], main=main)
    assert done.returncode == 0, done.stdout.decode()
    assert 0 < float(done.stdout.split()[-1]) < limit


# ---- the partition function ------------------------------------------------------------------


def large_problem(impossible=0):
    """More tokens and words than one tile holds; the first words may be impossible."""
    rng = torch.Generator().manual_seed(7)
    shapes = {"features": (1100, 3), "weight": (6000, 3), "bias": (6000,)}
    problem = {k: torch.randn(s, generator=rng, dtype=torch.float64) for k, s in shapes.items()}
    problem["bias"][:impossible] = -math.inf
    return {key: value.requires_grad_() for key, value in problem.items()}


@pytest.mark.parametrize("chunk_tokens", [17, 1100, None])
@pytest.mark.parametrize("impossible", [0, 4500])
def test_log_partition_of_a_large_vocabulary(impossible, chunk_tokens):
    """Tiles are joined rightly; a bias of -inf takes words out, also all of a tile's."""
    problem = large_problem(impossible)
    got = call(losses, "log_partition", problem, chunk_tokens=chunk_tokens)
    factors = torch.linspace(-1, 2, len(got), dtype=torch.float64)
    possible = {**problem, **{k: problem[k][impossible:] for k in ("weight", "bias")}}
    want = reference.log_partition(**possible)
    assert_near(got, want, 1e-13)
    want_gradients = gradients((factors * want).sum(), problem)
    assert_gradients((factors * got).sum(), problem, want_gradients, 1e-12)


@pytest.mark.parametrize("shift, scale", [(500.0, 0), (500.0, 1), (-3000.0, 1), (-3000.0, 30)])
def test_entropy_of_large_scores(shift, scale):
    """A constant in all scores changes no entropy; what is left is the rounding of the scores."""
    problem = {key: value.detach().float() for key, value in large_problem().items()}
    problem["bias"] = (scale * problem["bias"] + shift).contiguous()
    problem["features"] *= scale / 10
    scores = problem["features"].double() @ problem["weight"].t().double() + problem["bias"]
    want = torch.distributions.Categorical(logits=scores).entropy()
    for chunk_tokens in (300, None):
        found = losses.predictive_statistics(*problem.values(), chunk_tokens=chunk_tokens)
        assert_near(found.entropy.double(), want, 1e-3, scale=1)
        assert found.entropy.min() >= 0


@pytest.mark.parametrize("squash, impossible", [(False, 0), (True, 0), (False, 4500)])
def test_predictive_statistics(squash, impossible):
    """As torch computes them from all scores at once, also over many tiles of words."""
    problem = {key: value.detach() for key, value in large_problem(impossible).items()}
    scores = problem["features"] @ problem["weight"].t() + problem["bias"]
    scores = 10 * torch.tanh(scores / 5) if squash else scores
    for size in (300, None):
        found = losses.predictive_statistics(*problem.values(), chunk_tokens=size, squash=squash)
        entropy = torch.distributions.Categorical(logits=scores[:, impossible:]).entropy()
        assert_near(found.log_partition, scores.logsumexp(1), 1e-13)
        assert_near(found.entropy, entropy, 1e-12)
        assert torch.equal(found.best, scores.argmax(1)) and found.best.max() > 3000
        assert_near(found.best_score, scores.max(1).values, 1e-13)


def test_log_partition_chunks_are_summed_in_float32():
    """Gradients of many chunks are added up before they are rounded to half precision."""
    problem = with_gradients(make_problem(400), torch.bfloat16)
    _, want = rounded_reference("log_partition", problem)
    loss = call(losses, "log_partition", problem, chunk_tokens=7).sum()
    assert_rounded_once(loss, problem, want)


def test_unsquashed_is_the_inverse_of_squashed():
    scores = torch.tensor([-9.8, -3.0, 0.0, 0.5, 9.8], dtype=torch.float64)
    torch.testing.assert_close(10 * torch.tanh(losses.unsquashed(scores) / 5), scores)
    far = losses.squashed(losses.unsquashed(torch.tensor([-14.0, -10.0, 11.0])))
    torch.testing.assert_close(far, torch.tensor([-9.9, -9.9, 9.9]))


# A context's words: their probabilities in the data, one above a half, and in the noise.
P = torch.tensor([0.62, 0.2, 0.11, 0.06, 0.01], dtype=torch.float64)
Q = torch.tensor([0.3, 0.1, 0.35, 0.05, 0.2], dtype=torch.float64)
DRAWS, LOG_Z = 2, 0.7


def expected_loss(name, scores):
    """Over all targets and all tuples of draws, by calls of the loss itself; scores (V,)."""
    size, zeros = len(scores), scores.new_zeros(len(scores), 1)
    problem = {"features": zeros, "weight": zeros, "bias": scores, "log_q": Q.log()}
    problem["target"] = torch.arange(size)
    total = scores.new_zeros(())
    for draws in itertools.product(range(size), repeat=DRAWS):
        problem["noise_ids"] = torch.tensor(draws)
        values = call(losses, name, problem, log_z=LOG_Z, reduction="none")
        total = total + Q[problem["noise_ids"]].prod() * (P @ values)
    return total


@pytest.mark.parametrize("name", ["shared_nce", *SAMPLED_BCE])
def test_the_expected_gradient_is_zero_at_the_datas_log_probabilities(name):
    """Self-normalised to log Z; of "snis" alone, the sigmoid of the scores is p."""
    odds = P / (1 - P) if name == "bce_snis" else P
    scores = (odds.log() + LOG_Z).requires_grad_()
    (gradient,) = torch.autograd.grad(expected_loss(name, scores), scores)
    assert gradient.abs().max() < 1e-7  # log_q is read in float32
    (elsewhere,) = torch.autograd.grad(expected_loss(name, scores + 1), scores)
    assert (elsewhere > 0.001).all()


@pytest.mark.parametrize("bias_of_rarest, is_target", [(-20.7, False), (-20.7, True), (0, True)])
@pytest.mark.parametrize("name", SAMPLED_BCE)
def test_the_rarest_word_is_as_exact_as_others(name, bias_of_rarest, is_target):
    """A draw of probability 1e-9 weighs 2e8, and its softplus is as small.

    As a target it may be large: the two products are not to be subtracted from each other.
    """
    problem = make_problem(17)
    log_q, bias = problem["log_q"].clone(), problem["bias"].clone()
    log_q[5], bias[5] = -20.7, bias_of_rarest
    problem["target"][:] = 5 if is_target else problem["target"]
    noise = torch.tensor([0, 1, 5, 2, 0])
    problem.update(log_q=log_q, bias=bias, noise_ids=noise, weight=problem["weight"] / 4)
    rough, fine = (with_gradients(problem, dtype) for dtype in (torch.float32, torch.float64))
    got, want = call(losses, name, rough), call(losses, name, fine)
    assert_near(got, want, 1e-5)
    assert_gradients(got, rough, gradients(want, fine), 1e-5)
