"""Time and memory against V, both on logarithmic axes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import List, Sequence, Tuple

from .summary import Row

_PANELS = (
    ("update_ms", "training update (ms)"),
    ("layer_ms", "bare output layer (ms)"),
    ("update_mib", "memory of an update (MiB)"),
)


def draw(found: Sequence[Row], title: str, path: Path) -> str:
    """Write the picture; one colour a system.

    Returns:
        what was done, or why it was not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    if not any(_points(found, row.system, name) for row in found for name, _ in _PANELS):
        return f"{path.name}: skipped, no run has a number to draw"
    _draw(found, title, path)
    return f"{path.name}: written"


def _draw(found: Sequence[Row], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(_PANELS), figsize=(5 * len(_PANELS), 4.5))
    systems = list(dict.fromkeys(row.system for row in found))
    for axes, (name, label) in zip(panels, _PANELS):
        for place, system in enumerate(systems):
            points = _points(found, system, name)
            if points:
                colour = f"C{place}"
                axes.loglog(*zip(*points), marker="o", color=colour, label=system)
        axes.set(xlabel="vocabulary V", ylabel=label)
        axes.grid(True, which="both", alpha=0.3)
    drawn = [axes.get_legend_handles_labels() for axes in panels]
    lines = {label: line for lines, labels in drawn for line, label in zip(lines, labels)}
    figure.legend(list(lines.values()), list(lines), loc="lower center", ncol=len(lines))
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(str(path), dpi=150)
    plt.close(figure)


def _points(found: Sequence[Row], system: str, name: str) -> List[Tuple[int, float]]:
    pairs = [(row.vocab, row.numbers.get(name)) for row in found if row.system == system]
    return sorted((vocab, value) for vocab, value in pairs if value)
