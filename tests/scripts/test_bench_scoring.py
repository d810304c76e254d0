"""scripts/bench_scoring.py: what it makes of times, and its text."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import bench_scoring  # noqa: E402
from experiments.measures import as_text, data  # noqa: E402

SPEED = bench_scoring.Speed("a command", (10, 110), (200, 2200), (5.0, 7.0), (4.0, 5.0))


def test_rates_leave_out_what_any_text_takes():
    assert SPEED.rate() == pytest.approx(50)
    assert SPEED.rate("tokens") == pytest.approx(1000)
    assert SPEED.rate(by="cpu_seconds") == pytest.approx(100)


def test_report():
    memory = {1000: {"peak_mib": 512.4, "seconds": 3.2}}
    text = "\n".join(bench_scoring._report([SPEED], memory, "somewhere"))
    assert "| `a command` | 50 | 1,000 | 100 |" in text
    assert "| 1,000 | 512 | 3 |" in text and text.startswith("somewhere\n")


def test_text_of_binarised_data(tmp_path):
    folder, text = tmp_path / "data", tmp_path / "text"
    data.main(["--out", str(folder), "--vocab", "50", "--tokens", "400"])
    as_text.main([str(folder), "train", str(text)])
    lines = text.read_text(encoding="utf-8").splitlines()
    assert sum(len(line.split()) + 1 for line in lines) == 400
    assert set(" ".join(lines).split()) <= {f"w{rank}" for rank in range(1, 47)}
    bench_scoring._repeat(text, tmp_path / "long", 1000)
    repeated = (tmp_path / "long").read_text(encoding="utf-8").splitlines()
    assert len(repeated) == 1000 == bench_scoring._lines(tmp_path / "long")
    assert repeated[0] == " ".join(lines[0].split()[:3]) == repeated[len(lines)]
