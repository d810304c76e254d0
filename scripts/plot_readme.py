#!/usr/bin/env python3
"""Draw README's picture, docs/readme.png, from committed results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import environment  # noqa: F401
from experiments import plot

DOCS = Path(__file__).resolve().parents[1] / "docs"
TRAININGS = {"adaptive": "adaptive softmax", "bnce": "bnce --row-sparse"}
SYSTEMS = {"cross_entropy": "cross_entropy", "bnce": "bnce", "bnce_sparse": "bnce --row-sparse"}


def main() -> None:
    curves = []
    for name, label in TRAININGS.items():
        for run in _runs(f"adaptive/every-word/{name}.json"):
            points = [(p["processor_seconds"], p["ppl"]) for p in run["train"]["curve"]]
            curves.append((label, points))
    axes = {"xlabel": "processor seconds", "ylabel": "validation perplexity"}
    title = "522 novels, 239,187 words, three seeds"
    left = plot.Panel(curves, {**axes, "title": title})
    runs, speeds = _runs("vocabulary/lstm200/benchmark.json"), []
    for system, name in SYSTEMS.items():
        own = [(run["vocab"], run["words_per_second"]) for run in runs if run["system"] == system]
        speeds.append((name, sorted(own)))
    axes = {"xlabel": "vocabulary size", "ylabel": "words/s in training"}
    title = "one CPU core, 400 words an update"
    right = plot.Panel(speeds, {**axes, "title": title, "xscale": "log", "yscale": "log"})
    print(plot.lines([left, right], "", DOCS / "readme.png"))


def _runs(name: str) -> Any:
    return json.loads((DOCS / "results" / name).read_text(encoding="utf-8"))["runs"]


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    main()
