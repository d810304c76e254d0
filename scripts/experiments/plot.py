"""Pictures, where matplotlib is."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, Tuple

Points = Sequence[Tuple[float, float]]
ACROSS = 3  # histograms in a row


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes.

    Attributes:
        lines: (label, points); lines of one label have one colour, in all panels.
        axes: for matplotlib's Axes.set: title, labels and scales.
        joined: whether a line goes from point to point.
    """

    lines: Sequence[Tuple[str, Points]]
    axes: Mapping[str, str]
    joined: bool = True


def lines(panels: Sequence[Panel], title: str, path: Path) -> str:
    """Write a picture of panels side by side, with one legend.

    Returns:
        what was done, or why it was not.
    """
    there = any(points for panel in panels for _, points in panel.lines)
    return _draw(lambda plt: _lines(plt, panels, title), path, "no run has a number to draw", there)


def histograms(drawn: Sequence[Tuple[str, Mapping[str, Any]]], path: Path) -> str:
    """Write 2-D histograms of entropy and log Z (figure 1 of Goldberger & Melamud 2018).

    Args:
        drawn: titles, and what measure.py finds of the normaliser.

    Returns:
        what was done, or why it was not.
    """
    return _draw(lambda plt: _histograms(plt, drawn), path, "no row has run", bool(drawn))


def _draw(make: Callable[[Any], Any], path: Path, missing: str, there: bool) -> str:
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    if not there:
        return f"{path.name}: skipped, {missing}"
    import matplotlib

    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    figure = make(plt)
    figure.savefig(str(path), dpi=120)
    plt.close(figure)
    return f"{path.name}: written"


def _lines(plt: Any, panels: Sequence[Panel], title: str) -> Any:
    width = 5 * len(panels) + 2
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.5), squeeze=False)
    labels = list(dict.fromkeys(label for panel in panels for label, _ in panel.lines))
    known = {}
    for one, panel in zip(axes[0], panels):
        for label, points in panel.lines:
            if points:
                colour, line = f"C{labels.index(label) % 10}", "-" if panel.joined else ""
                (known[label],) = one.plot(*zip(*points), line, marker=".", color=colour)
        one.set(**panel.axes)
        one.grid(True, which="both", alpha=0.3)
    figure.legend(list(known.values()), list(known), loc="center right", fontsize=8)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0, 1 - 2 / width, 1))
    return figure


def _histograms(plt: Any, drawn: Sequence[Tuple[str, Mapping[str, Any]]]) -> Any:
    from matplotlib.colors import LogNorm

    down = -(-len(drawn) // ACROSS)
    figure, panels = plt.subplots(down, ACROSS, figsize=(4 * ACROSS, 3.2 * down), squeeze=False)
    for axes in panels.flat[len(drawn) :]:
        axes.set_visible(False)
    for axes, (label, found) in zip(panels.flat, drawn):
        counts = found["histogram"]
        rows = list(zip(*counts["counts"]))  # rows are of y
        axes.pcolormesh(counts["entropy"], counts["deviation"], rows, norm=LogNorm(vmin=1))
        axes.set(xlabel="entropy (nats)", ylabel="log Z_c − log Z (nats)")
        axes.set_title(f"{label}: r = {found['entropy_correlation']:.2f}")
    figure.tight_layout()
    return figure
