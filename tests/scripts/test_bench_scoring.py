"""scripts/bench_scoring.py: its text, and a small run."""

import json

import bench_scoring
import pytest
from experiments.measures import as_text, data
from rendering import scoring


def test_text_of_binarised_data(tmp_path, monkeypatch):
    folder, text = tmp_path / "data", tmp_path / "text"
    data.main(["--out", str(folder), "--vocab", "50", "--tokens", "400"])
    as_text.main([str(folder), "train", str(text)])
    lines = text.read_text(encoding="utf-8").splitlines()
    assert sum(len(line.split()) + 1 for line in lines) == 400
    assert set(" ".join(lines).split()) <= {f"w{rank}" for rank in range(1, 47)}
    text.unlink()  # an interrupted text is not taken for a whole one
    load = as_text.data_utils.load_indexed_dataset
    monkeypatch.setattr(as_text.data_utils, "load_indexed_dataset", lambda *a: [load(*a)[0], None])
    with pytest.raises(TypeError):
        as_text.main([str(folder), "train", str(text)])
    assert not text.exists()


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    """The tables of the report are those of the file."""
    arguments = [
        "--out",
        str(tmp_path),
        "--vocab",
        "50",
        "--tokens",
        "300",
        "400",
        "--exact-tokens",
        "200",
        "300",
        "--size",
        "8",
    ]
    arguments += ["--memory-lines", "20", "--repeats", "1", "--device", "cpu"]
    assert bench_scoring.main(arguments) == 0
    found = json.loads((tmp_path / "scoring.json").read_text(encoding="utf-8"))
    printed = capsys.readouterr().out.splitlines()
    for lines in (scoring.speeds(found), scoring.memory(found)):
        assert set(lines) <= set(printed)
    assert [speed["system"] for speed in found["speeds"]] == list(scoring.SYSTEMS)
    for speed in found["speeds"]:
        is_exact = speed["system"] in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        assert speed["tokens"] == ([200, 300] if is_exact else [300, 400])
        assert min(speed["sentences"]) > 0
        assert min(speed["seconds"] + speed["cpu_seconds"]) > 0
    assert len((tmp_path / "text-20.txt").read_text("utf-8").splitlines()) == 20
    assert found["memory"]["20"]["peak_mib"] > 50 and found["machine"]["processor"]
