"""The criteria in this process, on batches made by hand."""

import math

import pytest
import torch
from architectures import FCONV
from conftest import zipf_lines
from criteria import FLAGS, PAD, make, prepared, set_log_z, with_targets
from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER, binarise, build, modern, write_lines

from fairseq_bnce import losses
from fairseq_bnce.data.token_counts import training_target_counts


@pytest.mark.parametrize("name", FLAGS)
def test_unreduced_sums_to_reduced(name, corpus):
    criterion, model, sample = make(corpus, name)
    torch.manual_seed(3)
    whole = criterion(model, sample)[0]
    torch.manual_seed(3)
    each = criterion(model, sample, reduce=False)[0]
    assert each.shape == (sample["target"].ne(PAD).sum(),)
    assert each.sum().item() == pytest.approx(whole.item(), rel=1e-5)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("tokens", [0, *modern(2)])
def test_small_and_empty_batches(name, tokens, corpus):
    """Finite and connected to all parameters, so that dummy batches don't hang or poison a rank."""
    criterion, model, sample = make(corpus, name)
    loss, _, logged = criterion(model, with_targets(sample, tokens))
    assert math.isfinite(loss.item()) and (loss.item() > 0) == (tokens > 0)
    assert logged["ntokens"] == tokens
    (loss * 0).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), parameter_name


@pytest.mark.parametrize("tokens", [0, 2])
def test_small_and_empty_validation_batches(tokens, corpus):
    criterion, model, sample = make(corpus, "bnce")
    sample = with_targets(sample, tokens)
    with torch.no_grad():
        loss, _, logged = criterion(model.eval(), sample)
        logits = model(**sample["net_input"])[0]
    want = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD, reduction="sum"
    )
    assert loss.item() == pytest.approx(want.item(), rel=1e-5)
    assert logged["z_count"] == tokens


@pytest.mark.parametrize("flags", [LSTM, TIED_TRANSFORMER, FCONV], ids=["lstm", "tied", "fconv"])
def test_loss_over_the_batchs_words_is_the_loss_over_all(flags, corpus):
    """Gathered rows, renumbered ids and weight_norm change neither value nor gradients."""
    criterion, model, sample = make(corpus, "bnce", *flags)
    batch = prepared(criterion, model, sample)
    log_q = criterion.noise.unigram.log_q
    want = losses.batch_nce_loss(batch.features, batch.target, *batch.layer.full(), log_q)
    got = criterion.objective(batch)
    assert got.item() == pytest.approx(want.item(), rel=1e-5)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(got, parameters, retain_graph=True)
    theirs = torch.autograd.grad(want, parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Binarised, an empty line between them."""
    folder = tmp_path_factory.mktemp("documents")
    for split in ("train", "valid"):
        lines = zipf_lines(120, seed=3)
        lines = [line if n % 4 else "" for n, line in enumerate(lines, 1)]
        write_lines(folder / f"{split}.txt", lines)
    return binarise(folder, folder / "bin")


@pytest.mark.filterwarnings("ignore:overflow encountered")  # fairseq's, in a short block
@pytest.mark.parametrize("mode", ["none", "complete_doc", *modern("eos", "complete")])
@pytest.mark.parametrize("flag", [["--add-bos-token"], ["--output-dictionary-size", "40"]])
def test_noise_is_counted_as_the_targets_are(mode, flag, documents):
    """Also <s>, which is in front of every block, and <unk> for words that are not predicted."""
    flags = [*flag, "--criterion", "bnce", "--sample-break-mode", mode]
    _, task, _ = build(documents, *TRANSFORMER, *flags)
    task.load_dataset("train")
    dataset = task.dataset("train")
    targets = torch.cat([dataset[number]["target"] for number in range(len(dataset))])
    want = torch.bincount(targets, minlength=len(task.target_dictionary))
    assert torch.equal(training_target_counts(task), want)


def test_a_penalty_without_weight_takes_no_time(corpus, monkeypatch):
    """Of work over the vocabulary; epochs of --self-norm-alpha-by-epoch may be without."""
    flags = [*LSTM, "--self-norm-alpha-by-epoch", "1,0"]
    criterion, model, sample = make(corpus, "nce_regularized", *flags)
    batch = prepared(criterion, model, sample)
    monkeypatch.setattr(losses, "log_partition", None)
    with pytest.raises(TypeError):
        criterion.objective(batch)
    criterion.begin_epoch(2)
    assert torch.isfinite(criterion.objective(batch))


@pytest.mark.parametrize("marks", [[2], [0, 2]])
def test_of_sentences_the_noise_has_the_batchs_share_of_ends(marks, corpus):
    """Of every length fairseq makes batches of their own: here two sentences of two words."""
    flags = [*LSTM, "--sample-break-mode", "eos", *(["--add-bos-token"] if marks[0] == 0 else [])]
    noise = make(corpus, "bnce", *flags)[0].noise
    words, counts = torch.arange(64), torch.zeros(64)
    counts[marks], counts[5:9] = 2, 1
    p, q = noise.unigram.log_q.exp(), noise.target_log_p(words, counts, 2 * len(marks) + 4).exp()
    share = 1 / (len(marks) + 2)
    assert q[marks].tolist() == pytest.approx([share] * len(marks))
    others = words > 2
    want = p[others] / (1 - p[marks].sum()) * (1 - len(marks) * share)
    torch.testing.assert_close(q[others], want * 10 / (want * (2 * len(marks) + 3) + 10))
    for number, count in ((2, 0), (5, 9), (2, 9)):  # no targets, no ends, nothing else
        assert noise.target_log_p(words, count * (words == number).float(), count).isfinite().all()
    long = (words == 2).float() + 1999 * (words == 5)
    q = noise.target_log_p(words, long, 2000).exp()
    assert q[2] == pytest.approx(1 / 2000)
    assert q[5] == pytest.approx(1, rel=0.1)  # what the batch has so often is scored so


def test_half_precision_leaves_the_noise_alone(corpus):
    criterion, _, _ = make(corpus, "shared_nce")
    before = criterion.noise.distribution.log_q
    after = criterion.half().noise.distribution.log_q
    assert after.dtype == torch.float32 and torch.equal(before, after)


def test_draws_repeat_with_the_seed_and_differ_between_ranks(corpus, monkeypatch):
    criterion, model, sample = make(corpus, "shared_nce")
    batch = prepared(criterion, model, sample)

    def draw(rank, seed=1):
        monkeypatch.setattr("fairseq_bnce.ranks.rank", lambda: rank)
        torch.manual_seed(seed)
        return criterion.noise.sample(batch.target.device, 50)

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    assert not torch.equal(draw(0), draw(0, seed=2))


def test_self_norm_softmax_on_a_share(corpus):
    """Andreas & Klein's: in the mean over the share, -(m - log Z) + alpha (log Z_c - log Z)^2."""
    criterion, model, sample = make(corpus, "self_norm_softmax sampled")
    set_log_z(criterion, 2.0)
    batch = prepared(criterion, model, sample)
    with torch.no_grad():
        logits = torch.nn.functional.linear(batch.features, *batch.layer.full()).double()
        own = logits.gather(1, batch.target[:, None])[:, 0]
        penalty = (logits.logsumexp(1) - 2) ** 2
        drawn = torch.stack([criterion.objective(batch, "none").double() for _ in range(400)])
    extra = drawn + own - 2
    hit = extra.abs() > 1e-4
    share = hit.sum(1).double() / len(batch)
    assert torch.allclose(share, share[:1]) and abs(share[0] - 0.4) < 0.5 / len(batch)
    torch.testing.assert_close(extra.sum(1).mean(), penalty.sum(), rtol=0.02, atol=0)
