"""Predictive entropy against log Z, as in figure 1 of Goldberger & Melamud (2018)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Sequence

from comparison.runs import Outcome

from .table import Table

ACROSS = 3  # pictures in a row


def draw(outcomes: Sequence[Outcome], table: Table, path: Path) -> str:
    """Write a 2-D histogram a row of the table.

    Returns:
        what was done, or why it was not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    by_label = {o.variant.label: o.stages["normaliser"] for o in outcomes if o.stages is not None}
    drawn = [(row.variant.label, by_label.get(row.variant.label)) for row in table.rows]
    drawn = [(label, found) for label, found in drawn if found and "histogram" in found]
    if not drawn:
        return f"{path.name}: skipped, no row has run"
    _draw(drawn, path)
    return f"{path.name}: written"


def _draw(drawn: Sequence[Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    down = -(-len(drawn) // ACROSS)
    size = (4 * ACROSS, 3.2 * down)
    figure, axes = plt.subplots(down, ACROSS, figsize=size, squeeze=False)
    for one in axes.flat[len(drawn) :]:
        one.set_visible(False)
    for one, (label, found) in zip(axes.flat, drawn):
        _panel(one, label, found)
    figure.tight_layout()
    figure.savefig(str(path), dpi=100)
    plt.close(figure)


def _panel(axes: Any, label: str, found: Any) -> None:
    from matplotlib.colors import LogNorm

    histogram = found["histogram"]
    counts = [list(column) for column in zip(*histogram["counts"])]  # rows are of y
    entropy, deviation = histogram["entropy"], histogram["deviation"]
    axes.pcolormesh(entropy, deviation, counts, norm=LogNorm(vmin=1), cmap="viridis")
    axes.set(xlabel="entropy (nats)", ylabel="log Z_c − log Z (nats)")
    axes.set_title(f"{label}: r = {found['entropy_correlation']:.2f}")
