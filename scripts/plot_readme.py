#!/usr/bin/env python3
"""Draw README's picture from committed results.

plot_readme.py          # writes docs/readme.png
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parents[1]
TRAININGS = {"adaptive@0.05": "adaptive softmax", "bnce@0.05": "bnce --row-sparse"}
SYSTEMS = {
    "cross_entropy": "cross_entropy",
    "bnce": "bnce",
    "bnce_sparse": "bnce --row-sparse",
}
COLOURS = {
    "adaptive softmax": "tab:orange",
    "cross_entropy": "tab:grey",
    "bnce": "tab:cyan",
    "bnce --row-sparse": "tab:blue",
}
Points = List[Tuple[float, float]]


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for label, lines in curves(_results("adaptive/novels/warmup.json")).items():
        for number, points in enumerate(lines):
            name = label if number == 0 else None
            left.plot(*zip(*points), marker="o", markersize=3, color=COLOURS[label], label=name)
    left.set(xlabel="processor seconds", ylabel="validation perplexity", ylim=(130, 215))
    left.set_title("522 novels, 52,595 words, three seeds", fontsize=10)
    for label, points in speeds(_results("vocabulary/lstm200/benchmark.json")).items():
        right.plot(*zip(*points), marker="o", markersize=3, color=COLOURS[label], label=label)
    right.set(xscale="log", yscale="log", xlabel="vocabulary size", ylabel="words/s in training")
    right.set_title("one CPU core, 400 words an update", fontsize=10)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(ROOT / "docs/readme.png", dpi=130)


def curves(results: Dict[str, Any]) -> Dict[str, List[Points]]:
    """(processor seconds, validation perplexity) of each training, by system."""
    found: Dict[str, List[Points]] = defaultdict(list)
    for run in results["runs"]:
        if run["label"] in TRAININGS:
            curve = [(one["processor_seconds"], one["ppl"]) for one in run["train"]["curve"]]
            found[TRAININGS[run["label"]]].append(curve)
    return found


def speeds(results: Dict[str, Any]) -> Dict[str, Points]:
    """(vocabulary size, words/s), by system."""
    found: Dict[str, Points] = {label: [] for label in SYSTEMS.values()}
    for run in results["runs"]:
        found[SYSTEMS[run["system"]]].append((run["vocab"], run["words_per_second"]))
    return {label: sorted(points) for label, points in found.items()}


def _results(name: str) -> Dict[str, Any]:
    return json.loads((ROOT / "docs/results" / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
