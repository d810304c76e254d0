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
SYSTEMS = {"cross_entropy": "cross_entropy", "bnce": "bnce", "bnce_sparse": "bnce --row-sparse"}
LETTERS = 15  # legible where the picture is 390 pixels wide


def main() -> None:
    mixed = _results("peers/mixed-novels.json")
    kenlm = mixed["systems"]["KenLM"]
    run = _results("peers/novels-adaptive.json")["runs"][0]
    curve = [(p["processor_seconds"], p["ppl"]) for p in run["train"]["curve"]]
    road = [run for run in mixed["mixtures"] if run["label"].startswith("reset")]
    ends = [(run["processor_seconds"], run["lines"]["valid"]) for run in road]
    last = max(seconds for seconds, _ in [*curve, *ends])
    curves = [
        ("adaptive softmax", curve),
        ("KenLM", [(kenlm["seconds"], kenlm["valid_ppl"]), (last, kenlm["valid_ppl"])]),
        ("bnce, GRU", sorted((seconds, found["network"]) for seconds, found in ends)),
        ("with KenLM", sorted((s + kenlm["seconds"], found["mixed"]) for s, found in ends)),
    ]
    axes = {"xlabel": "processor seconds", "ylabel": "validation perplexity"}
    left = plot.Panel(curves, {**axes, "title": "522 novels, 52,595 words"})
    runs, speeds = _results("vocabulary/lstm200/benchmark.json")["runs"], []
    for system, name in SYSTEMS.items():
        own = [(run["vocab"], run["words_per_second"]) for run in runs if run["system"] == system]
        speeds.append((name, sorted(own)))
    axes = {"xlabel": "vocabulary size", "ylabel": "words/s", "title": "training, one CPU core"}
    right = plot.Panel(speeds, {**axes, "xscale": "log", "yscale": "log"})
    print(plot.lines([left, right], "", DOCS / "readme.png", letters=LETTERS))


def _results(name: str) -> Any:
    return json.loads((DOCS / "results" / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    main()
