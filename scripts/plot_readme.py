#!/usr/bin/env python3
"""Draw README's picture, docs/readme.png, from committed results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any, List, Tuple

import environment  # noqa: F401
from experiments import plot

DOCS = Path(__file__).resolve().parents[1] / "docs"
SYSTEMS = {"cross_entropy": "cross_entropy", "bnce": "bnce", "bnce_sparse": "bnce --row-sparse"}
LETTERS = 15  # legible where the picture is 390 pixels wide


def main() -> None:
    mixed = _results("peers/mixed-novels.json")
    kenlm = mixed["systems"]["KenLM"]
    ends = _ends(mixed, "reset@0.14")
    last = ends[-1][0] + kenlm["seconds"]
    curves = [
        ("adaptive softmax", [point[:2] for point in _ends(mixed, "adaptive@0.1")]),
        ("KenLM", [(kenlm["seconds"], kenlm["valid_ppl"]), (last, kenlm["valid_ppl"])]),
        ("bnce, GRU", [point[:2] for point in ends]),
        ("with KenLM", [(seconds + kenlm["seconds"], both) for seconds, _, both in ends]),
    ]
    axes = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "ylim": (60, 200)}
    left = plot.Panel(curves, {**axes, "title": "522 novels, 52,595 words"})
    runs, speeds = _results("vocabulary/lstm200/benchmark.json")["runs"], []
    for system, name in SYSTEMS.items():
        own = [(run["vocab"], run["words_per_second"]) for run in runs if run["system"] == system]
        speeds.append((name, sorted(own)))
    axes = {"xlabel": "vocabulary size", "ylabel": "words/s", "title": "training, one CPU core"}
    right = plot.Panel(speeds, {**axes, "xscale": "log", "yscale": "log"})
    print(plot.lines([left, right], "", DOCS / "readme.png", letters=LETTERS))


def _ends(mixed: Any, label: str) -> List[Tuple[float, float, float]]:
    """Return the seconds, and perplexities alone and mixed, of trainings of each length."""
    runs = [run for run in mixed["mixtures"] if run["label"] == label]
    found = []
    for updates in sorted({run["updates"] for run in runs}):
        same = [run for run in runs if run["updates"] == updates]
        valid = [run["lines"]["valid"] for run in same]
        seconds = fmean(run["processor_seconds"] for run in same)
        alone, both = (fmean(one[name] for one in valid) for name in ("network", "mixed"))
        found.append((seconds, alone, both))
    return found


def _results(name: str) -> Any:
    return json.loads((DOCS / "results" / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    main()
