"""bench.py scoring: a small run."""

import json

import bench
import pytest
from rendering.cells import NAMES
from rendering.tables import TABLES


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    """The tables of the report are those of the file."""
    flags = f"scoring --out {tmp_path} --vocab 50 --tokens 300 400 --exact-tokens 200 300"
    flags += " --memory-lines 20 --repeats 1 --device cpu"
    assert bench.main(flags.split()) == 0
    found = json.loads((tmp_path / "scoring.json").read_text(encoding="utf-8"))
    assert "\n".join(TABLES["scoring-speed"](found)) in capsys.readouterr().out
    assert [speed["system"] for speed in found["speeds"]] == list(NAMES["scorers"])
    for speed in found["speeds"]:
        is_exact = speed["system"] in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        assert speed["tokens"] == ([200, 300] if is_exact else [300, 400])
        assert min(speed["sentences"]) > 0
        assert min(speed["seconds"] + speed["cpu_seconds"]) > 0
    assert len((tmp_path / "text-20.txt").read_text("utf-8").splitlines()) == 20
    assert found["memory"]["20"]["peak_mib"] > 50 and found["machine"]["processor"]
