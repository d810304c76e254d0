"""A reduced partition function: fitted, carried by a checkpoint, and used wherever scores are."""

import functools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from dispatch import Largest
from tools import (
    LSTM,
    TRANSFORMER,
    build,
    call_command,
    evaluate,
    perplexity,
    slow,
    train,
    write_lines,
)

from fairseq_bnce import Scorer, checkpoints, losses
from fairseq_bnce.cli import diagnose
from fairseq_bnce.errors import CheckpointError
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring import diagnosis, normalisation, reduction
from fairseq_bnce.text.reading import sampled

pytestmark = pytest.mark.modern
LINES = zipf_lines(60, seed=5)


def problem(words=300, size=8, contexts=3000):
    """(features, log Z_c, weight, bias), of words whose rows are in a few directions."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(words, 3, generator=generator) @ torch.randn(3, size, generator=generator)
    bias = -torch.arange(1.0, words + 1).log()
    features = torch.randn(contexts, size, generator=generator)
    return features, losses.log_partition(features, weight, bias), weight, bias


def test_few_rows_come_close():
    features, log_z, weight, bias = problem()
    half = len(features) // 2
    found = reduction.fit(features[:half], log_z[:half], weight, bias, 30)
    left = log_z[half:] - found.log_partition(features[half:])
    assert log_z.std() > 1 and left.std() < 0.1 * log_z.std() and left.mean().abs() < 0.02
    assert found.weight.shape == (30, 8) and not found.weight.requires_grad
    again = reduction.fit(features[:half], log_z[:half], weight, bias, 30)
    assert torch.equal(found.bias, again.bias)


def test_where_it_starts_from():
    """Around the mean feature, likely words and clusters of the others are all there is."""
    features, log_z, weight, bias = problem()
    found = reduction._start(features, weight, bias, 30, torch.Generator().manual_seed(1))
    mean = features.mean(0, keepdim=True)
    exact = losses.log_partition(mean, weight, bias)
    torch.testing.assert_close(found.log_partition(mean), exact, atol=1e-4, rtol=0)
    likely = (features @ weight.t() + bias).softmax(1).sum(0).argsort(descending=True)[:15]
    assert set(likely[:10].tolist()) <= {
        int((weight - row).abs().sum(1).argmin()) for row in found.weight[:15]
    }


@pytest.mark.parametrize("rows", [8, 40])
def test_the_start_needs_no_more_memory_than_the_vocabulary(rows, monkeypatch):
    """At a million words, all clusters' scores are gigabytes, and so is a copy of the rows."""
    features, _, weight, bias = problem(words=20_000, size=16, contexts=200)
    start = functools.partial(reduction._start, features, weight, bias, rows)
    whole = start(torch.Generator().manual_seed(1))
    monkeypatch.setattr(reduction, "_MOST_SCORES", len(weight))
    with Largest() as largest:
        parts = start(torch.Generator().manual_seed(1))
    assert len(weight) <= largest.numbers <= 2 * len(weight)
    for expected, found in zip(whole, parts):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "rows, contexts, required", [(301, 9999, "1 to 300"), (30, 299, "300 for")]
)
def test_what_cannot_be_fitted(rows, contexts, required):
    features, log_z, weight, bias = problem()
    with pytest.raises(ValueError, match=f"required .*{required}.*, got"):
        reduction.fit(features[:contexts], log_z[:contexts], weight, bias, rows)


def test_the_first_contexts_are_kept_and_a_tenth_is_held_out():
    contexts = reduction.Contexts(most=25)
    for start in (0, 10, 20, 30):
        numbers = torch.arange(start, start + 10.0)
        contexts.add(numbers[:, None], numbers)
    (features, fitted), (_, measured) = contexts.parts()
    assert sorted([*fitted.tolist(), *measured.tolist()]) == list(range(25))
    assert len(measured) == 2 and torch.equal(fitted, features[:, 0])
    assert min(measured.tolist()) < 20  # of all of it, and not its end


@pytest.mark.parametrize(
    ("words", "rows"), [(9, 9), (64, 16), (5000, 100), (10**5, 1000), (10**6, 1000)]
)
def test_rows_by_default(words, rows):
    assert reduction.default_rows(words) == rows


def test_each_line_is_drawn_as_often():
    found = [sampled("abcdef", 6, seed) for seed in range(3000)]
    for place in range(3):
        for line in "abcdef":
            assert sum(lines[place] == line for lines in found) == pytest.approx(500, abs=90)
    assert all(len(set(lines)) == 3 for lines in found)
    assert sorted(sampled("abc", 7)) == ["a", "b", "c"] and sampled([], 3) == []
    text = [" ".join("w" * n) for n in range(40)]
    for tokens in (1, 20, 300):
        *kept, last = (len(line.split()) + 1 for line in sampled(text, tokens))
        assert sum(kept) < tokens <= sum(kept) + last


@pytest.fixture(scope="module", params=[LSTM, *slow(TRANSFORMER)], ids=["lstm", "transformer"])
def softmax(request, corpus, tmp_path_factory):
    """A model that does not normalise itself."""
    folder = tmp_path_factory.mktemp("softmax")
    flags = ["--criterion", "cross_entropy", "--max-epoch", "3", "--clip-norm", "1"]
    train(corpus, folder, *request.param, *flags)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def calibrated(softmax, corpus):
    """The same, with 16 rows in the place of 64 words, the default of so few."""
    text = softmax.with_name("text")
    write_lines(text, zipf_lines(400, seed=7))
    options = ["--calibrate", "offset", "--worst", "0"]
    assert call_command("diagnose", "--path", softmax, "--data", corpus, *options, text) == 0
    return softmax.with_name("checkpoint_last.calibrated.pt")


def test_scores_are_close_to_exact_ones(softmax, calibrated, corpus):
    exact = Scorer.from_checkpoint(softmax, corpus, exact=True)
    scorer = Scorer.from_checkpoint(calibrated, corpus)
    assert scorer.is_self_normalised and not exact.is_self_normalised
    want, got = (np.concatenate(s.score_words(LINES)) for s in (exact, scorer))
    raw = np.concatenate(Scorer.from_checkpoint(softmax, corpus, shift=0.0).score_words(LINES))
    assert np.std(got - want) < 0.2 * np.std(raw - want) and abs(np.mean(got - want)) < 0.02
    torch.testing.assert_close(scorer.with_exact(True).score(LINES), exact.score(LINES))


def test_rows_stand_in_the_place_of_log_z(calibrated, corpus):
    trained = checkpoints.load(str(calibrated), str(corpus))
    trained.state["log_z"] = 4.0
    scorer = Scorer(trained)
    assert scorer.log_z == 0  # what diagnose writes, too
    want = Scorer.from_checkpoint(calibrated, corpus).score(LINES)
    np.testing.assert_array_equal(scorer.score(LINES), want)


def test_words_one_by_one(calibrated, corpus):
    scorer = Scorer.from_checkpoint(calibrated, corpus)
    words = LINES[0].split()
    state, total = scorer.start(), 0.0
    for word in scorer.ids([*words, "</s>"]):
        assert scorer.normalisers(state).shape == (1,)
        state, log_probs = scorer.extend(state, [word])
        total += log_probs[0]
    assert total == pytest.approx(scorer.score([LINES[0]])[0], abs=1e-4)


def test_eval_lm(softmax, calibrated, corpus):
    exact = perplexity(evaluate(corpus, softmax))
    output = evaluate(corpus, calibrated, "--unnormalized")
    assert "reduced partition function of 16 rows" in output
    assert perplexity(output) == pytest.approx(exact, rel=0.02)
    shifted = evaluate(corpus, calibrated, "--unnormalized", "--log-z-shift", "0.5")
    state = checkpoints.load(str(calibrated), str(corpus)).state
    ratio = perplexity(shifted) / perplexity(output)
    assert ratio == pytest.approx(np.exp(0.5 - state["mu_z"]), rel=1e-3)
    assert perplexity(evaluate(corpus, calibrated)) == exact
    assert perplexity(evaluate(corpus, calibrated, plugin=False)) == exact


def test_diagnose_says_how_close(softmax, calibrated, corpus, tmp_path, capfd):
    write_lines(tmp_path / "text", LINES)
    arguments = ["--data", corpus, "--json", "--worst", "0", tmp_path / "text"]

    def diagnosed(path, *others):
        assert call_command("diagnose", "--path", path, *arguments, *others) == 0
        return json.loads(capfd.readouterr().out)

    before, after = diagnosed(softmax), diagnosed(calibrated)
    assert after["sigma_z"] < 0.25 * before["sigma_z"] and abs(after["mu_z"]) < 0.1
    assert after["ppl"] == pytest.approx(before["ppl"], rel=1e-5)
    assert diagnosed(softmax, "--offset", "8")["offset"]["rows"] == 8
    offset = diagnosed(softmax, "--offset")["offset"]
    assert (offset["rows"], offset["measured_on"]) == (16, before["contexts"] // 10)
    assert offset["fitted_on"] + offset["measured_on"] == before["contexts"]
    again = diagnosed(calibrated, "--offset")["offset"]  # of the model, not of what it carries
    assert again == pytest.approx(offset, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("kind", ["reduced-partition", "offset"])
def test_both_spellings_calibrate_and_say_what_was_before_and_after(
    kind, softmax, calibrated, corpus, tmp_path, capfd
):
    path = tmp_path / "model.pt"
    path.write_bytes(softmax.read_bytes())
    arguments = ["--data", corpus, "--worst", "0", "--calibrate", kind]
    text = calibrated.with_name("text")
    assert call_command("diagnose", "--path", path, *arguments, text) == 0
    before, after = capfd.readouterr().out.split("\n\n")
    assert before.startswith("before") and after.startswith("after")
    assert "reduced partition function of 16 rows" in after.splitlines()[0]
    for block in (before, after):
        assert re.search(r"^sigma_z \(nats\) +\d", block, re.M)
    state = checkpoints.read(str(tmp_path / "model.calibrated.pt"))["task_state"]
    assert "reduced_partition" in state


def test_no_more_is_read_than_is_fitted_to(softmax, corpus, tmp_path, capfd, monkeypatch):
    """A text may be all that the model was trained on: exact normalisers of it take hours.

    Contexts are drawn from all of it: those of one book say little of another.
    """
    monkeypatch.setattr(diagnose, "Contexts", functools.partial(reduction.Contexts, most=500))
    first = ["w0"] * 2000  # more than is fitted to
    write_lines(tmp_path / "text", first + zipf_lines(2000, seed=9))
    arguments = ["--data", corpus, "--json", "--worst", "0", "--batch-tokens", "20"]
    for offset in ([], ["--offset", "16"]):
        called = ["diagnose", "--path", softmax, *arguments, *offset, tmp_path / "text"]
        assert call_command(*called) == 0
        found = json.loads(capfd.readouterr().out)
        if not offset:
            whole_ppl = found["ppl"]
        else:
            assert found["offset"]["fitted_on"] + found["offset"]["measured_on"] == 500
            assert found["ppl"] == pytest.approx(whole_ppl, rel=0.2)
        assert (500 <= found["contexts"] < 1000) == bool(offset)
    # A running text is read from its beginning.
    flags = ["--offset", "16", "--document", tmp_path / "text"]
    assert call_command("diagnose", "--path", softmax, *arguments, *flags) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["contexts"] < 1000 and found["ppl"] < 0.8 * whole_ppl


def test_rows_change_neither_entropy_nor_log_z_of_a_context(softmax, calibrated, corpus, tmp_path):
    """So their correlation stays, while log Z_c less what the rows say of it is another thing."""
    write_lines(tmp_path / "text", LINES)
    without, with_rows = (
        diagnosed(path, corpus, tmp_path / "text") for path in (softmax, calibrated)
    )
    assert with_rows["sigma_z"] < 0.5 * without["sigma_z"]
    want = pytest.approx(without["entropy_correlation"], abs=1e-5)
    assert with_rows["entropy_correlation"] == want


def diagnosed(path, corpus, text):
    out = text.with_name(f"{path.name}.pictures")
    called = ["diagnose", "--path", path, "--data", corpus, "--worst", "0", "--out", out, text]
    assert call_command(*called) == 0
    return json.loads((out / "diagnosis.json").read_text())


def test_a_shift_of_another_text_is_of_what_the_rows_leave(calibrated, corpus, tmp_path):
    write_lines(tmp_path / "text", LINES)
    shifted = tmp_path / "shifted.pt"
    arguments = ["--data", corpus, "--calibrate", shifted, "--worst", "0", tmp_path / "text"]
    assert call_command("diagnose", "--path", calibrated, *arguments) == 0
    want = Scorer.from_checkpoint(calibrated, corpus, exact=True).score(LINES).sum()
    assert Scorer.from_checkpoint(shifted, corpus).score(LINES).sum() == pytest.approx(
        want, abs=0.01
    )


def test_training_goes_on_without(calibrated, corpus, tmp_path):
    """It fits the old parameters alone."""
    assert "reduced_partition" in torch.load(calibrated, weights_only=False)["task_state"]
    flags = ["--criterion", "bnce", "--finetune-from-model", calibrated, "--max-update", "2"]
    arch = (
        TRANSFORMER
        if "transformer" in str(torch.load(calibrated, weights_only=False)["cfg"]["model"])
        else LSTM
    )
    train(corpus, tmp_path, *arch, *flags)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["task_state"]
    assert "reduced_partition" not in state and "log_z" in state
    resumed = [*arch, "--criterion", "cross_entropy", "--restore-file", calibrated]
    train(corpus, tmp_path / "on", *resumed, "--max-epoch", "4", "--clip-norm", "1")
    state = torch.load(tmp_path / "on" / "checkpoint_last.pt", weights_only=False)["task_state"]
    assert "reduced_partition" not in state


def test_too_little_text(softmax, corpus, tmp_path, capfd):
    write_lines(tmp_path / "text", LINES[:3])
    arguments = [
        "--data",
        corpus,
        "--offset",
        "--calibrate",
        tmp_path / "new.pt",
        tmp_path / "text",
    ]
    assert call_command("diagnose", "--path", softmax, *arguments) == 2
    assert (
        "--reduced-partition: contexts: required at least 160 for 16 rows, got"
        in capfd.readouterr().err
    )
    assert not (tmp_path / "new.pt").exists()


BAD = [
    lambda rows: {**rows, "bias": rows["bias"] / 0},
    lambda rows: {**rows, "weight": rows["weight"][:, 1:].clone()},
]


@pytest.mark.parametrize("change", BAD, ids=["infinite", "another width"])
def test_rows_that_cannot_be(change, calibrated, corpus, tmp_path):
    content = torch.load(calibrated, weights_only=False)
    state = content["task_state"]
    state["reduced_partition"] = change(state["reduced_partition"])
    torch.save(content, tmp_path / "bad.pt")
    with pytest.raises(CheckpointError, match="task_state.reduced_partition"):
        Scorer.from_checkpoint(tmp_path / "bad.pt", corpus)


def test_rows_stand_in_the_place_of_a_constant(corpus):
    """Of a model that was trained to normalise itself, too."""
    layer = OutputLayer(build(corpus, *LSTM)[2])
    rows = {"weight": torch.zeros(2, 16), "bias": torch.zeros(2)}
    state = {"log_z": 4.0, "mu_z": 0.5, "reduced_partition": rows}
    found = normalisation.unnormalised(state, 0.5, layer, False)
    values = found.normalisers(layer, torch.zeros(3, 16))
    torch.testing.assert_close(values, torch.full((3,), 2.0).log() + 0.5)


def test_the_shift_of_rows_is_what_they_lack(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    weight, features = (torch.randn(n, 4, generator=generator) for n in (9, 50))
    contexts = reduction.Contexts()
    off = torch.linspace(0, 1, 50).square()  # of which the fitted ones have another share
    contexts.add(features, losses.log_partition(features, weight, torch.zeros(9)) + off)
    layer = SimpleNamespace(full=lambda: (weight, torch.zeros(9)))
    low = reduction.ReducedPartition(weight, torch.full((9,), -0.5))
    monkeypatch.setattr(reduction, "fit", lambda *_: low)
    scorer = SimpleNamespace(_reader=SimpleNamespace(layer=layer))
    _, measured = diagnosis.fit_offset(scorer, contexts, 9)
    assert (measured["fitted_on"], measured["measured_on"]) == (45, 5)
    held_out, log_z = contexts.parts()[1]
    want = log_z - losses.log_partition(held_out, weight, torch.zeros(9)) + 0.5
    assert measured["mu_z"] == pytest.approx(want.mean().item(), abs=1e-5)
    assert measured["sigma_z"] == pytest.approx(want.std(unbiased=False).item(), abs=1e-5)
    ends = measured["lowest"], measured["highest"]
    assert ends == pytest.approx((want.min().item(), want.max().item()), abs=1e-5)
