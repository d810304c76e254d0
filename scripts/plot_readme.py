#!/usr/bin/env python3
"""Draw README's picture, docs/readme.png, from committed results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import environment  # noqa: F401

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Labels of the files' runs: (title, colour).
TRAININGS = {
    "adaptive@0.05": ("adaptive softmax", "tab:orange"),
    "bnce@0.05": ("bnce --row-sparse", "tab:blue"),
}
SYSTEMS = {
    "cross_entropy": ("cross_entropy", "tab:grey"),
    "bnce": ("bnce", "tab:cyan"),
    "bnce_sparse": ("bnce --row-sparse", "tab:blue"),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for run in _runs("adaptive/novels/warmup.json"):
        if run["label"] in TRAININGS:
            title, colour = TRAININGS[run["label"]]
            curve = [(one["processor_seconds"], one["ppl"]) for one in run["train"]["curve"]]
            label = title if run["seed"] == 1 else None
            left.plot(*zip(*curve), marker="o", markersize=3, color=colour, label=label)
    left.set(xlabel="processor seconds", ylabel="validation perplexity", ylim=(130, 215))
    left.set_title("522 novels, 52,595 words, three seeds", fontsize=10)
    speeds = _runs("vocabulary/lstm200/benchmark.json")
    for system, (title, colour) in SYSTEMS.items():
        own = [run for run in speeds if run["system"] == system]
        points = sorted((run["vocab"], run["words_per_second"]) for run in own)
        right.plot(*zip(*points), marker="o", markersize=3, color=colour, label=title)
    right.set(xscale="log", yscale="log", xlabel="vocabulary size", ylabel="words/s in training")
    right.set_title("one CPU core, 400 words an update", fontsize=10)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "readme.png", dpi=130)


def _runs(name: str) -> Any:
    return json.loads((DOCS / "results" / name).read_text(encoding="utf-8"))["runs"]


if __name__ == "__main__":
    main()
