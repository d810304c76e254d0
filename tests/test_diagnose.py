"""fairseq-bnce diagnose: what it measures, prints, draws and writes."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import forks
import numpy as np
import pytest
import torch
from conftest import zipf_lines
from fairseq.data import Dictionary
from scoring_models import FEW_TARGETS
from tools import evaluate, fill_disk, modern, perplexity, write_lines

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.cli import diagnose as command
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring.diagnosis import Diagnosis, Measures, calibration, expected_error, summary

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "fairseq-bnce"
LINES = [*zipf_lines(40, seed=11), "", "w1 unheard of"]
ARCHITECTURES = ("lstm_lm", *modern("transformer_lm bands"), "lbl_lm")


@pytest.fixture
def text(tmp_path):
    return write_lines(tmp_path / "text", LINES)


@pytest.fixture
def checkpoint(language_model, tmp_path):
    """A copy of its own, with the dictionary where the original has it."""
    return shutil.copy(language_model("rnn_lm"), tmp_path / "model.pt")


@pytest.fixture
def diagnose(command):
    return partial(command, "diagnose", model=None)


def diagnosis(path, lines=LINES, document=False, **options):
    found = Diagnosis(**options)
    scorer = Scorer.from_checkpoint(str(path), shift="none")
    list(found.fill(scorer, lines, document=document))
    return found


@torch.no_grad()
def all_scores(path, line):
    """(T, V) scores of a line, from the model itself."""
    trained = checkpoints.load(str(path))
    layer = OutputLayer(trained.model)
    unk, eos = trained.source.unk(), trained.source.eos()
    ids = [trained.source.indices.get(word, unk) for word in line.split()]
    features = layer.features(trained.model, {"src_tokens": torch.tensor([[eos, *ids]])})
    weight, bias = layer.full()
    return torch.nn.functional.linear(features[0], weight, bias).double(), torch.tensor([*ids, eos])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_measures_are_those_of_all_scores(language_model, name):
    path = language_model(name)
    log_z = checkpoints.load(str(path)).state.log_z
    for line in (LINES[0], LINES[3], ""):
        scores, target = all_scores(path, line)
        measured = diagnosis(path, [line]).measures
        expected = Measures(
            scores[torch.arange(len(target)), target] - log_z,
            scores.logsumexp(1) - log_z,
            torch.distributions.Categorical(logits=scores).entropy(),
            scores.max(1).values - log_z,
            (scores.argmax(1) == target).double(),
            scores.logsumexp(1),
        )
        for field, got, want in zip(Measures._fields, measured, expected):
            np.testing.assert_allclose(got, want.numpy(), atol=2e-5, err_msg=field)


@pytest.mark.parametrize("document", [False, True])
@pytest.mark.parametrize("name", ["rnn_lm", FEW_TARGETS])
def test_scores_come_out_of_the_measures(name, document, language_model):
    """Words that are not predicted are <unk>: where it is likeliest, it is the one that came."""
    path = str(language_model(name))
    found = diagnosis(path, document=document).measures
    for exact, scores in ((True, found.scores - found.deviations), (False, found.scores)):
        scorer = Scorer.from_checkpoint(path, exact=exact, shift="none")
        lines = scorer.score_stream(LINES, document=document)
        expected = np.concatenate([line.log_probs for line in lines])
        np.testing.assert_allclose(scores, expected, atol=2e-5)
    is_top = np.isclose(found.scores, found.top_scores, atol=1e-5)
    assert 0 < is_top.mean() < 1 and np.array_equal(found.is_top, is_top)


def test_the_summary_is_that_of_the_measures(language_model):
    measures = diagnosis(language_model("rnn_lm")).measures
    found, off = summary(measures), measures.deviations
    want = {"contexts": len(off), "mu_z": off.mean(), "sigma_z": off.std(), "lowest": off.min()}
    want.update(highest=off.max(), entropy=measures.entropies.mean())
    want.update(accuracy=measures.is_top.mean(), u_ppl=np.exp(-measures.scores.mean()))
    want.update(ppl=np.exp(np.mean(off - measures.scores)))
    want.update(entropy_correlation=np.corrcoef(measures.entropies, off)[0, 1])
    want.update(calibration_error=expected_error(calibration(measures)))
    want.update(u_calibration_error=expected_error(calibration(measures, off.mean())))
    assert found == pytest.approx(want)


def test_calibration_by_hand():
    logs = np.log([0.32, 0.38, 0.95, 0.91, 1.0])
    zeros = np.zeros(5)
    measures = Measures(zeros, zeros, zeros, logs, np.array([0, 1, 1, 0, 1.0]), zeros)
    low, high = calibration(measures)
    assert low == pytest.approx((2, 0.35, 0.5))
    assert high == pytest.approx((3, 2.86 / 3, 2 / 3))
    assert expected_error(np.array([low, high])) == pytest.approx((2 * 0.15 + 0.86) / 5)
    shifted = calibration(measures, shift=-1.0)  # every one is over 1 but the first two
    assert shifted[:, 0].tolist() == [1, 4] and shifted[1, 1] == 1.0


@pytest.mark.parametrize("document", [False, True])
def test_the_farthest_contexts_are_those_of_all(document, language_model):
    found = diagnosis(language_model("lstm_lm"), document=document, worst=200)
    deviations = found.measures.deviations
    expected = sorted(np.abs(deviations - deviations.mean()), reverse=True)[:200]
    got = [abs(context.deviation - deviations.mean()) for context in found.farthest()]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert any(len(context.before.split()) == 12 for context in found.farthest())


def test_the_command_prints_and_draws(diagnose, checkpoint, text, tmp_path):
    pytest.importorskip("matplotlib")
    status, output, errors = diagnose("--path", checkpoint, "--worst", 2, text)
    assert status == 0, errors
    numbers = summary(diagnosis(checkpoint).measures)
    numbers["log_z"] = checkpoints.load(str(checkpoint)).state.log_z
    printed = output.splitlines()
    for title, name, form in command._SHOWN:
        (line,) = (line for line in printed if line.startswith(f"{title}  "))
        assert line.split("  ")[-1].strip() == format(numbers[name], form), title
    assert len(output.split("farthest from mu_z:\n")[1].splitlines()) == 3
    out = tmp_path / "new" / "folder"
    status, output, errors = diagnose("--path", checkpoint, "--json", "--out", out, text)
    assert status == 0, errors
    found = json.loads(output)
    assert found == json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    assert found["contexts"] == sum(len(line.split()) + 1 for line in LINES)
    assert len(found["farthest"]) == 10 and found["log_z"] == numbers["log_z"]
    for name in ("log-z.png", "entropy.png", "calibration.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_words_and_lines_are_those_of_the_flags(diagnose, checkpoint, tmp_path):
    write_lines(tmp_path / "text", [line.upper() for line in LINES])
    flags = ["--lowercase", "--document", "--json", tmp_path / "text"]
    found = json.loads(diagnose("--path", checkpoint, *flags)[1])
    want = summary(diagnosis(checkpoint, document=True).measures)
    assert found["ppl"] == pytest.approx(want["ppl"])
    assert want["ppl"] != pytest.approx(summary(diagnosis(checkpoint).measures)["ppl"], rel=1e-4)


def test_a_calibrated_checkpoint_has_the_measured_shift(diagnose, checkpoint, text, tmp_path):
    status, _, errors = diagnose("--path", checkpoint, text, "--calibrate")
    assert status == 0, errors
    calibrated = tmp_path / "model.calibrated.pt"
    numbers = summary(diagnosis(checkpoint).measures)
    before, after = (checkpoints.read(str(path)) for path in (checkpoint, calibrated))
    assert after["task_state"]["mu_z"] == pytest.approx(numbers["mu_z"])
    assert after["task_state"]["sigma_z"] == pytest.approx(numbers["sigma_z"])
    assert after["task_state"]["log_z"] == before["task_state"]["log_z"]
    assert after["task_state"]["mu_z"] != before["task_state"].get("mu_z")
    assert set(after) == set(before)
    words = Scorer.from_checkpoint(str(checkpoint)).dictionary.symbols
    assert Dictionary.load(str(tmp_path / "dict.txt")).symbols == words  # it may be moved
    assert Scorer.from_checkpoint(str(calibrated)).shift == pytest.approx(numbers["mu_z"])
    assert diagnose("--path", checkpoint, text, "--calibrate", checkpoint, "--overwrite")[0] == 0
    assert checkpoints.read(str(checkpoint))["task_state"] == after["task_state"]


def test_a_newer_checkpoint_is_not_calibrated(diagnose, checkpoint, text, tmp_path, monkeypatch):
    """By a training that goes on: it would get the figures of the one before."""

    def renewing(measures):
        shutil.copy(checkpoint, tmp_path / "newer.pt").replace(checkpoint)
        return summary(measures)

    monkeypatch.setattr("fairseq_bnce.scoring.diagnosis.summary", renewing)
    before = checkpoint.read_bytes()
    for flags in (["--calibrate"], ["--calibrate", checkpoint, "--overwrite"]):
        status, _, errors = diagnose("--path", checkpoint, text, *flags)
        assert status == 2 and "--calibrate: required" in errors
        assert checkpoint.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "text"]


def test_a_stock_checkpoint_can_be_calibrated(diagnose, corpus, training, tmp_path):
    """Then both scorers take its mu_z for log Z, and say still that it is not self-normalised.

    On the text of the calibration the mean score is the exact one, by what mu_z is.
    """
    text = corpus.parent / "valid.txt"
    flags = ["--arch", "rnn_lm_gm30", "--criterion", "cross_entropy", "--sample-break-mode", "eos"]
    stock, _ = training(*flags, "--optimizer", "adam", "--lr", "0.02", "--max-epoch", "1")
    calibrated = tmp_path / "calibrated.pt"
    status, output, errors = diagnose("--path", stock, "--calibrate", calibrated, text)
    assert status == 0 and "not self-normalised" not in errors, errors
    assert "perplexity, exact" in output and "perplexity, unnormalised" not in output
    lines = text.read_text(encoding="utf-8").splitlines()
    mu_z = summary(diagnosis(stock, lines).measures)["mu_z"]
    assert Scorer.from_checkpoint(str(calibrated)).shift == pytest.approx(mu_z)
    output = evaluate(corpus, calibrated, "--unnormalized", "--sample-break-mode", "eos")
    assert "not self-normalised" in output and f"shift {mu_z:.4f}" in output
    exact = perplexity(evaluate(corpus, calibrated, "--sample-break-mode", "eos"))
    assert perplexity(output) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("flag", [*modern("--calibrate"), "--out"])  # torch 1.13's writer aborts
def test_a_full_disk(checkpoint, text, tmp_path, flag):
    """Whatever part of a file is written by then, it is not left."""
    if flag == "--out":
        pytest.importorskip("matplotlib")
    out = tmp_path / "new"
    command = [sys.executable, SCRIPT, "diagnose", "--path", checkpoint, flag, out, text]
    found = forks.run(command, preexec_fn=partial(fill_disk, 3000))
    output = found.stdout.decode()
    assert found.returncode == 2 and "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith(f"fairseq-bnce: error: {out}")
    left = [path for path in tmp_path.rglob("*") if path not in (checkpoint, text, out)]
    assert {path.name for path in left} <= {"model.pt", "text", "diagnosis.json"}
    assert flag == "--out" or not out.exists()
    if (out / "diagnosis.json").exists():
        json.loads((out / "diagnosis.json").read_text("utf-8"))


@pytest.mark.parametrize("words", ["", "w1 w1 w1 w1"])
def test_the_shortest_texts(diagnose, checkpoint, tmp_path, words):
    write_lines(tmp_path / "text", [words])
    status, output, errors = diagnose("--path", checkpoint, tmp_path / "text", "--json")
    assert (status, errors) == (0, "") and json.loads(output)["contexts"] == 1 + len(words.split())
    assert "NaN" not in output  # which is no JSON
    pytest.importorskip("matplotlib")
    flags = ["--out", tmp_path / "out"]
    assert diagnose("--path", checkpoint, tmp_path / "text", *flags)[0] == 0
