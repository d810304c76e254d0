"""Validation perplexity against training time."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

# (label, its runs' curves); a curve is a list of validations with seconds and ppl.
Curves = Sequence[Tuple[str, List[List[Dict[str, Any]]]]]


def draw(curves: Curves, title: str, path: Path) -> str:
    """Write the picture; one colour a label, one line a seed.

    Returns:
        what was done, or why it was not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    drawn = [(label, _points(curve)) for label, runs in curves for curve in runs]
    if not any(points for _, points in drawn):
        return f"{path.name}: skipped, no run has a validation to draw"
    _draw(drawn, title, path)
    return f"{path.name}: written"


def _draw(drawn: List[Tuple[str, List[Tuple[float, float]]]], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    labels = list(dict.fromkeys(label for label, _ in drawn))
    named = set()
    for label, points in drawn:
        times, perplexities = zip(*points) if points else ((), ())
        shown = None if label in named else label
        colour = f"C{labels.index(label)}"
        axes.plot(times, perplexities, marker=".", linewidth=1.2, color=colour, label=shown)
        named.add(label)
    axes.set(xlabel="training time, validation left out (s)", title=title)
    axes.set(ylabel="validation perplexity (exact)", yscale="log")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(str(path), dpi=150)
    plt.close(figure)


def _points(curve: List[Dict[str, Any]]) -> List[Tuple[float, float]]:
    pairs = [(point.get("seconds"), point.get("ppl")) for point in curve]
    return [(t, p) for t, p in pairs if t is not None and p is not None and math.isfinite(p)]
