"""A reduced partition function: fitted, carried by a checkpoint, and used wherever scores are."""

import functools
import json

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from dispatch import Largest
from fairseq.modules import AdaptiveSoftmax
from tools import LSTM, TRANSFORMER, call_command, evaluate, perplexity, slow, train, write_lines
from torch.nn import ModuleDict

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.output_layer.conversion import read_as_bands
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring import diagnosis, reduction

pytestmark = pytest.mark.modern
LINES = zipf_lines(60, seed=5)


@pytest.fixture(scope="module", autouse=True)
def few_updates():
    """A small model needs no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "_UPDATES", 300)
        yield


def layer_in_bands(words, size):
    softmax = AdaptiveSoftmax(words, size, [words // 50, words // 5], 0)
    softmax.tail[0][2].weight.data.mul_(20)
    model = ModuleDict({"decoder": ModuleDict({"adaptive_softmax": softmax})})
    read_as_bands(model)
    return OutputLayer(model.requires_grad_(False))


def plain_layer(words, size):
    """Of words whose rows are in a few directions."""
    generator = torch.Generator().manual_seed(3)
    projection = torch.nn.Linear(size, words)
    model = ModuleDict({"decoder": ModuleDict({"output_projection": projection})})
    rows = torch.randn(words, 3, generator=generator) @ torch.randn(3, size, generator=generator)
    projection.weight.data, projection.bias.data = rows, -torch.arange(1.0, words + 1).log()
    return OutputLayer(model.requires_grad_(False))


FEW = [(plain_layer, False, 0.5), (layer_in_bands, False, 0.5), (plain_layer, True, 0.2)]


@pytest.mark.parametrize(("make", "squash", "share"), FEW)
def test_few_rows_come_close_without_all_words_rows(make, squash, share, monkeypatch):
    """At a million words, V x D and all clusters' scores are gigabytes."""
    layer = make(20_000, 16)
    layer.kind.is_squashed = squash
    monkeypatch.setattr(reduction, "_MOST_WORDS", 2000)
    monkeypatch.setattr(reduction, "_MOST_SCORES", 4 * len(layer))
    features = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1))
    features /= 10 if squash else 1  # 10 tanh(x / 5) is constant beyond
    log_z = layer.log_partition(features)
    with Largest() as largest:
        found = reduction.fit(features[:800], log_z[:800], layer, 30)
    off = log_z[800:] - found.log_partition(features[800:])
    assert off.std() < share * log_z.std() and off.mean().abs() < 0.3 * log_z.std()
    assert found.weight.shape == (30, 16) and not found.weight.requires_grad
    assert largest.numbers <= 5 * len(layer)  # of 16 for all rows


def test_the_error_is_measured_on_a_random_tenth_that_is_not_fitted_to(monkeypatch, made):
    fitted, contexts = [], reduction.Contexts(most=250)
    for start in (0, 100, 200):
        numbers = torch.arange(start, start + 100.0)
        contexts.add(numbers[:, None], numbers)
    rows = reduction.ReducedPartition(torch.zeros(1, 1), torch.zeros(1))  # always predicts 0
    fit = lambda _, log_z, *__, **___: fitted.extend(log_z.tolist()) or rows  # noqa: E731
    monkeypatch.setattr(reduction, "fit", fit)
    _, measured = diagnosis.fit_offset(made("rnn_lm"), contexts, 1)
    others = sorted(set(range(250)) - set(fitted))
    assert len(others) == 25 and others[0] < 200  # not the end of the text
    ends = measured["lowest"], measured["highest"], measured["mu_z"]
    assert ends == pytest.approx((others[0], others[-1], np.mean(others)))


@pytest.fixture(scope="module", params=[LSTM, *slow(TRANSFORMER)], ids=["lstm", "transformer"])
def softmax(request, training):
    """A model that does not normalise itself, and a text beside it."""
    flags = ["--criterion", "cross_entropy", "--max-epoch", "3", "--clip-norm", "1"]
    checkpoint, _ = training(*request.param, *flags)
    write_lines(checkpoint.with_name("text"), zipf_lines(400, seed=7))
    write_lines(checkpoint.with_name("other"), LINES)
    return checkpoint


@pytest.fixture(scope="module")
def calibrated(softmax, corpus):
    """The same, with 16 rows instead of 64 words, the default of so few."""
    options = ["--data", corpus, "--calibrate", "offset", "--worst", "0"]
    assert call_command("diagnose", "--path", softmax, *options, softmax.with_name("text")) == 0
    return softmax.with_name("checkpoint_last.calibrated.pt")


def diagnosed(capfd, corpus, path, *options):
    """What the command prints."""
    capfd.readouterr()
    flags = ["--path", path, "--data", corpus, "--json", "--worst", "0"]
    assert call_command("diagnose", *flags, *options) == 0
    return json.loads(capfd.readouterr().out)


def test_scores_are_close_to_exact_ones(softmax, calibrated, corpus):
    exact = Scorer.from_checkpoint(softmax, corpus, exact=True)
    scorer = Scorer.from_checkpoint(calibrated, corpus)
    assert scorer.is_self_normalised and not exact.is_self_normalised and scorer.log_z == 0
    want, got = (np.concatenate(s.score_words(LINES)) for s in (exact, scorer))
    raw = np.concatenate(Scorer.from_checkpoint(softmax, corpus, shift=0.0).score_words(LINES))
    assert np.std(got - want) < 0.2 * np.std(raw - want) and abs(np.mean(got - want)) < 0.02
    np.testing.assert_allclose(scorer.with_exact(True).score(LINES), exact.score(LINES))
    state, total = scorer.start(), 0.0
    for word in scorer.ids([*LINES[0].split(), "</s>"]):  # word by word
        state, log_probs = scorer.extend(state, [word])
        total += log_probs[0]
    assert total == pytest.approx(scorer.score([LINES[0]])[0], abs=1e-4)


def test_rows_replace_a_constant(calibrated, corpus):
    """Also of a model that was trained to normalise itself."""
    trained = checkpoints.load(str(calibrated), str(corpus))
    trained.state.log_z = 4.0
    scorer = Scorer(trained)
    assert scorer.log_z == 0  # what diagnose writes, too
    want = Scorer.from_checkpoint(calibrated, corpus).score(LINES)
    np.testing.assert_array_equal(scorer.score(LINES), want)


def test_bands(language_model, corpus, tmp_path):
    """Words of several sizes (``--adaptive-softmax-cutoff``): diagnosed, fitted, scored."""
    checkpoint, text = language_model("transformer_lm bands"), tmp_path / "text"
    write_lines(text, zipf_lines(400, seed=7))
    new = tmp_path / "new.pt"
    flags = ["--data", corpus, "--calibrate", new, "--reduced-partition", "20", text]
    assert call_command("diagnose", "--path", checkpoint, *flags) == 0
    scorer = Scorer.from_checkpoint(checkpoint, corpus)
    ways = (scorer.with_exact(True), scorer, Scorer.from_checkpoint(new, corpus))
    exact, *others = (np.concatenate(way.score_words(LINES)) for way in ways)
    constant, reduced = (np.std(scores - exact) for scores in others)
    assert reduced < 0.5 * constant


def test_eval_lm(calibrated, corpus):
    exact = perplexity(evaluate(corpus, calibrated, plugin=False))
    assert perplexity(evaluate(corpus, calibrated)) == exact
    output = evaluate(corpus, calibrated, "--unnormalized")
    assert "reduced partition function of 16 rows" in output
    assert perplexity(output) == pytest.approx(exact, rel=0.02)


def test_diagnose_measures_how_close(softmax, calibrated, corpus, tmp_path, capfd):
    """Rows change neither entropies nor log Z_c, nor what is fitted to the model anew."""
    text = softmax.with_name("other")
    before = diagnosed(capfd, corpus, softmax, text, "--offset")
    after = diagnosed(capfd, corpus, calibrated, "--offset", "8", text)
    assert after["sigma_z"] < 0.25 * before["sigma_z"] and abs(after["mu_z"]) < 0.1
    for name in ("ppl", "entropy_correlation"):
        assert after[name] == pytest.approx(before[name], rel=1e-5, abs=1e-5)
    assert (before["offset"]["rows"], after["offset"]["rows"]) == (16, 8)
    assert before["offset"]["measured_on"] == before["contexts"] // 10
    assert before["offset"]["fitted_on"] + before["offset"]["measured_on"] == before["contexts"]
    shifted = tmp_path / "shifted.pt"  # the shift is what the rows leave
    diagnosed(capfd, corpus, calibrated, "--calibrate", shifted, text)
    want = Scorer.from_checkpoint(calibrated, corpus, exact=True).score(LINES).sum()
    got = Scorer.from_checkpoint(shifted, corpus).score(LINES).sum()
    assert got == pytest.approx(want, abs=0.01)


def test_no_more_is_read_than_is_fitted_to(softmax, corpus, tmp_path, capfd, monkeypatch):
    """A text may be all that the model was trained on: exact normalisers of it take hours.

    Contexts are drawn from all of it: those of one book say little of another.
    """
    monkeypatch.setattr(reduction, "Contexts", functools.partial(reduction.Contexts, most=200))
    first = ["w0"] * 700  # more than is fitted to
    write_lines(tmp_path / "text", first + zipf_lines(700, seed=9))
    flags = ["--batch-tokens", "20", tmp_path / "text"]
    whole = diagnosed(capfd, corpus, softmax, *flags)
    drawn = diagnosed(capfd, corpus, softmax, "--offset", "16", *flags)
    assert drawn["offset"]["fitted_on"] + drawn["offset"]["measured_on"] == 200
    assert drawn["ppl"] == pytest.approx(whole["ppl"], rel=0.2)
    # A running text is read from its beginning.
    running = diagnosed(capfd, corpus, softmax, "--offset", "16", "--document", *flags)
    assert running["ppl"] < 0.8 * whole["ppl"]
    assert max(drawn["contexts"], running["contexts"]) < 500 < whole["contexts"]


def test_training_goes_on_without(calibrated, corpus, tmp_path):
    """The rows fit the old parameters alone."""
    assert "reduced_partition" in checkpoints.read(str(calibrated))["task_state"]
    is_lstm = "lstm" in str(torch.load(calibrated, weights_only=False)["cfg"]["model"])
    flags = [*(LSTM if is_lstm else TRANSFORMER), "--max-epoch", "4", "--clip-norm", "1"]
    tuned = ["--finetune-from-model", calibrated, "--max-update", "2"]
    for name, more in (("bnce", tuned), ("cross_entropy", ["--restore-file", calibrated])):
        train(corpus, tmp_path / name, *flags, "--criterion", name, *more)
        state = checkpoints.read(str(tmp_path / name / "checkpoint_last.pt"))["task_state"]
        assert "reduced_partition" not in state and ("log_z" in state) == (name == "bnce")
