"""bench.py offset."""

import json

import forks
import pytest
from conftest import zipf_lines
from rendering.tables import TABLES
from tools import write_lines


def test_the_command(language_model, tmp_path):
    """The mean of the measured text itself leaves no mean."""
    for name, seed in (("fit", 3), ("text", 4)):
        write_lines(tmp_path / name, zipf_lines(300, seed=seed))
    write_lines(tmp_path / "shift", zipf_lines(300, seed=4)[:40])
    options = ["--out", tmp_path / "out", "--rows", 4, 16, "--contexts", 1500, "--lines", 40]
    for name in ("fit", "text", "shift"):
        options += [f"--{name}", tmp_path / name]
    model = f"mine={language_model('rnn_lm')}"
    status, output = forks.script("bench.py", "offset", model, *options)
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
