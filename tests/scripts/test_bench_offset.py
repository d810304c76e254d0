"""scripts/bench_offset.py: what it measures, and what it refuses."""

import json

import forks
import pytest
from conftest import zipf_lines
from tools import write_lines


def command(*arguments):
    """(exit status, what it printed)"""
    return forks.script("bench_offset.py", *arguments)


@pytest.fixture
def texts(tmp_path):
    for name, seed in (("fit", 3), ("text", 4)):
        write_lines(tmp_path / name, zipf_lines(300, seed=seed))
    return ["--fit", tmp_path / "fit", "--text", tmp_path / "text", "--out", tmp_path / "out"]


def test_the_command(language_model, texts, tmp_path):
    options = [*texts, "--rows", "4", "16", "--contexts", "1500", "--lines", "40"]
    status, output = command(f"mine={language_model('rnn_lm')}", *options)
    assert status == 0, output
    found = json.loads((tmp_path / "out" / "offset.json").read_text("utf-8"))
    ways = found["models"]["mine"]["ways"]
    assert [way["rows"] for way in ways] == [0, 4, 16]
    assert ways[0]["sigma_z"] > ways[1]["sigma_z"] > ways[2]["sigma_z"] > 0
    assert len({round(way["ppl"], 3) for way in ways}) == 1
    assert all(way["u_ppl"] == pytest.approx(way["ppl"], rel=0.05) for way in ways)
    assert (tmp_path / "out" / "offset.md").read_text("utf-8") in output


def test_means_of_another_text(language_model, texts, tmp_path):
    """Of the text that is measured, they leave no mean at all."""
    write_lines(tmp_path / "shift", zipf_lines(300, seed=4)[:40])
    options = [*texts, "--rows", "4", "--contexts", "1500", "--lines", "40"]
    status, output = command(
        f"mine={language_model('rnn_lm')}", *options, "--shift", tmp_path / "shift"
    )
    assert status == 0, output
    found = json.loads((tmp_path / "out" / "offset.json").read_text("utf-8"))
    for way in found["models"]["mine"]["ways"]:
        assert way["u_ppl_other_mean"] == pytest.approx(way["ppl"], rel=1e-9) != way["u_ppl"]
    assert "with µ_z of another text" in output


def test_a_text_that_is_not_there_is_named(language_model, texts, tmp_path):
    (tmp_path / "fit").unlink()
    status, output = command(f"m={language_model('rnn_lm')}", *texts)
    assert status == 2 and f"No such file or directory: '{tmp_path / 'fit'}'" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("flag", ["--text", "--shift"])
def test_a_text_without_a_line_is_named(flag, language_model, texts, tmp_path):
    (tmp_path / "empty").touch()
    model = language_model("rnn_lm")
    status, output = command(f"m={model}", *texts, flag, tmp_path / "empty")
    assert status == 2 and f"{tmp_path / 'empty'}: required at least one line, got none" in output


@pytest.mark.parametrize(
    "model, rows, message",
    [
        ("mine", "4", "required NAME=CHECKPOINT, got 'mine'"),
        ("m={}", "99", "rows: required 1 to"),
        ("m={0} m={0}", "4", "NAME: required each once, got ['m', 'm']"),
    ],
)
def test_refused(model, rows, message, language_model, texts):
    models = model.format(language_model("rnn_lm")).split()
    status, output = command(*models, *texts, "--rows", rows)
    assert status == 2 and message in output
