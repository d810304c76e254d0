"""What the criteria minimise, with the flags that they were given, against the losses themselves.

At values that are no defaults: a weight that is lost, draws from another distribution than the
loss takes them to be from, or a penalty of other scores trains another model, and nothing is said.
"""

from functools import partial

import pytest
import torch
from criteria import PAD, make, prepared, set_log_z, with_targets
from tools import LSTM

from fairseq_bnce import losses
from fairseq_bnce.data.token_counts import training_target_counts
from fairseq_bnce.noise import NoiseDistribution

UNIFORM = ["--noise-samples", "6", "--noise", "uniform"]
OF_DRAWS = {
    "nce": losses.nce_loss,
    "shared_nce": losses.shared_nce_loss,
    "sampled_softmax": losses.sampled_softmax_loss,
    "sampled_bce complementary": partial(losses.sampled_bce_loss, vocab_size=64),
    "sampled_bce is": partial(losses.sampled_bce_loss, estimator="is"),
    "sampled_bce cps": partial(losses.sampled_bce_loss, estimator="cps", vocab_size=64),
    "nce_regularized shared_nce": losses.shared_nce_loss,
    "nce_regularized nce": losses.nce_loss,
}


def recorded(criterion):
    """What is sampled from now on."""
    drawn, sample = [], criterion.noise.sample
    criterion.noise.sample = lambda *shape: drawn.append(sample(*shape)) or drawn[-1]
    return drawn


NOISE = [
    ("shared_nce", lambda counts: NoiseDistribution(counts, 0.75)),
    ("sampled_softmax", NoiseDistribution.log_uniform),
    ("bnce with draws", lambda counts: NoiseDistribution.uniform(64)),
]


@pytest.mark.parametrize("name, kind", NOISE)
def test_noise_is_of_the_flags(name, kind, corpus):
    """Draws, too, are from the distribution that the loss takes them to be from."""
    noise = make(corpus, name)[0].noise
    want = kind(training_target_counts(noise._task)).log_q
    assert torch.equal(noise.distribution.log_q, want)
    assert not torch.allclose(want, noise.unigram.log_q, atol=0.1)
    torch.manual_seed(1)
    ids = noise.sample(torch.device("cpu"), 50_000)
    share = torch.bincount(ids, minlength=64) / len(ids)
    torch.testing.assert_close(share, noise.log_q(torch.arange(64)).exp(), rtol=0, atol=0.01)


@pytest.mark.parametrize("objective, in_batch", [("binary", 5), ("ranking", 6)])
def test_targets_and_draws_are_scored_as_their_mixture(objective, in_batch, corpus):
    """Of 6 targets and 6 uniform draws: a word is no noise of its own, but ranks with the rest."""
    flags = [*LSTM, *UNIFORM, "--objective", objective]
    flags += ["--self-norm-alpha", "0.7"] if objective == "ranking" else []
    criterion, model, sample = make(corpus, "bnce of both", *flags)
    set_log_z(criterion, 3.0)
    drawn = recorded(criterion)
    batch = prepared(criterion, model, with_targets(sample, 6))
    got = criterion.objective(batch)
    q = (in_batch * criterion.noise.unigram.log_q.exp() + 6 / 64) / (in_batch + 6)
    inputs = (batch.features, batch.target, *batch.layer.full(), q.log())
    loss = losses.batch_nce_loss
    if objective == "ranking":
        loss = partial(losses.ranking_nce_loss, alpha=0.7)
    want = loss(*inputs, noise_ids=drawn[0], log_z=3.0)
    assert got.item() == pytest.approx(want.item(), rel=1e-5)


def test_every_tokens_loss_is_that_of_its_time_step(corpus):
    """Whether the batch has padding or not."""
    criterion, model, sample = make(corpus, "bnce by time step")
    for kept in (sample, with_targets(sample, 21)):
        batch, is_word = prepared(criterion, model, kept), kept["target"].ne(PAD)
        assert torch.equal(batch.target, kept["target"][is_word])
        got, log_q = criterion.objective(batch, "none"), criterion.noise.unigram.log_q
        steps = is_word.nonzero()[:, 1]
        for number in steps.unique():
            here = steps == number
            if here.sum() > 1:
                inputs = (batch.features[here], batch.target[here], *batch.layer.full(), log_q)
                want = losses.batch_nce_loss(*inputs, reduction="none")
                torch.testing.assert_close(got[here], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flags, draws", [(UNIFORM, [6, 6, 6]), ([], [0, 0, 1])])
def test_groups_have_draws_of_their_own(flags, draws, corpus):
    """Of 11 targets the last one is a group, in which a draw has to serve as noise."""
    criterion, model, sample = make(corpus, "bnce", *LSTM, "--bnce-group", "5", *flags)
    drawn = recorded(criterion)
    torch.manual_seed(1)
    batch = prepared(criterion, model, with_targets(sample, 11))
    torch.manual_seed(1)
    order = torch.randperm(len(batch))
    got, unigram = criterion.objective(batch, "none"), criterion.noise.unigram.log_q.exp()
    assert [len(ids) for ids in drawn] == draws
    for start, ids in zip((0, 5, 10), drawn):
        here = order[start : start + 5]
        features, target = batch.features[here], batch.target[here]
        of_draws = 1 / 64 if flags else unigram
        others = len(target) - 1
        q = (others * unigram + len(ids) * of_draws) / (others + len(ids))
        inputs = (features, target, *batch.layer.full(), q.log())
        want = losses.batch_nce_loss(*inputs, noise_ids=ids, reduction="none")
        torch.testing.assert_close(got[here], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draws", [None, 7])
@pytest.mark.parametrize("name", OF_DRAWS)
def test_a_loss_of_draws_is_the_named_one(name, draws, corpus):
    """Fresh for every token under "nce", else shared; 100 unless the flags tell."""
    flags = [*LSTM] if draws is None else [*LSTM, "--noise-samples", str(draws)]
    criterion, loss = name.split()[0], OF_DRAWS[name]
    if criterion == "sampled_bce":
        flags += ["--estimator", name.split()[1]]
    if criterion == "nce_regularized":
        flags += ["--nce-base", name.split()[1], "--self-norm-alpha", "0"]
    criterion, model, sample = make(corpus, f"{criterion} here", *flags)
    drawn = recorded(criterion)
    batch = prepared(criterion, model, sample)
    got = criterion.objective(batch)
    shape = (len(batch),) if loss is losses.nce_loss else ()
    assert drawn[0].shape == (*shape, draws or 100)
    inputs = (batch.features, batch.target, *batch.layer.full(), criterion.noise.distribution.log_q)
    assert got.item() == pytest.approx(loss(*inputs, drawn[0]).item(), rel=1e-5)


def test_groups_of_the_regularised_loss(corpus):
    flags = [*LSTM, "--bnce-group", "time", "--self-norm-alpha", "0"]
    criterion, model, sample = make(corpus, "nce_regularized in groups", *flags)
    criteria = [criterion, *(make(corpus, name)[0] for name in ("bnce by time step", "bnce"))]
    got, want, other = (c.objective(prepared(c, model, sample)).item() for c in criteria)
    assert got == pytest.approx(want, rel=1e-5) and want != pytest.approx(other, rel=1e-2)


# A share of 0.999 is all contexts of the batch.
PENALISED = [("self_norm_softmax", rate, squash) for rate in ("1", "0.999") for squash in (0, 1)]


@pytest.mark.parametrize("name, rate, squash", [*PENALISED, ("nce_regularized", "1", 0)])
def test_the_penalty_is_weighted_and_of_squashed_scores(name, rate, squash, corpus):
    flags = [*LSTM, "--self-norm-alpha", "0.3", "--self-norm-rate", rate]
    flags += ["--score-squashing"] if squash else []
    criterion, model, sample = make(corpus, f"{name} weighted", *flags)
    set_log_z(criterion, 2.0)
    with torch.no_grad():
        model.decoder.fc_out.weight.mul_(30)
    batch = prepared(criterion, model, sample)
    scores = torch.nn.functional.linear(batch.features, *batch.layer.full()).double()
    scores = 10 * torch.tanh(scores / 5) if squash else scores
    log_z, own = scores.logsumexp(1), scores.gather(1, batch.target[:, None])[:, 0]
    want = (log_z if rate == "1" else 2.0) - own
    if name == "nce_regularized":
        log_q = criterion.noise.unigram.log_q
        inputs = (batch.features, batch.target, *batch.layer.full(), log_q)
        want = losses.batch_nce_loss(*inputs, log_z=2.0, reduction="none")
    want = want + 0.3 * (log_z - 2.0) ** 2
    got = criterion.objective(batch, "none").double()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(got.sum(), parameters, retain_graph=True)
    theirs = torch.autograd.grad(want.sum(), parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
