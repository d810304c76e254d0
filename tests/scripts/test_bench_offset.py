"""bench.py offset."""

import json

import forks
import pytest
from conftest import zipf_lines
from rendering.tables import TABLES
from tools import write_lines


def command(*arguments):
    """Return the exit status and the output."""
    return forks.script("bench.py", "offset", *arguments)


@pytest.fixture
def texts(tmp_path):
    for name, seed in (("fit", 3), ("text", 4)):
        write_lines(tmp_path / name, zipf_lines(300, seed=seed))
    return ["--fit", tmp_path / "fit", "--text", tmp_path / "text", "--out", tmp_path / "out"]


def test_the_command(language_model, texts, tmp_path):
    """The mean of the measured text itself leaves no mean."""
    write_lines(tmp_path / "shift", zipf_lines(300, seed=4)[:40])
    options = [*texts, "--rows", "4", "16", "--contexts", "1500", "--lines", "40"]
    options += ["--shift", tmp_path / "shift"]
    status, output = command(f"mine={language_model('rnn_lm')}", *options)
    assert status == 0, output
    found = json.loads((tmp_path / "out" / "offset.json").read_text("utf-8"))
    ways = found["models"]["mine"]["ways"]
    assert [way["rows"] for way in ways] == [0, 4, 16]
    assert ways[0]["sigma_z"] > ways[1]["sigma_z"] > ways[2]["sigma_z"] > 0
    assert len({round(way["ppl"], 3) for way in ways}) == 1
    for way in ways:
        assert way["u_ppl"] == pytest.approx(way["ppl"], rel=0.05)
        assert way["u_ppl_other_mean"] == pytest.approx(way["ppl"], rel=1e-9) != way["u_ppl"]
    assert "\n".join(TABLES["offsets"](found)) in output
