"""Pictures of a diagnosis; only these need matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

from fairseq_bnce.scoring.diagnosis import Measures, calibration

BINS = 80


def draw(measures: Measures, folder: Path) -> List[Path]:
    """Write log-z.png, entropy.png and calibration.png.

    Args:
        measures: of a text.
        folder: where to write; it exists.

    Returns:
        the files.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pictures = {"log-z.png": _histogram, "entropy.png": _entropy, "calibration.png": _calibration}
    for name, picture in pictures.items():
        figure = Figure(figsize=(5.5, 4))
        FigureCanvasAgg(figure)  # no display, and none of pyplot's global state
        picture(figure.add_subplot(), measures)
        figure.tight_layout()
        figure.savefig(str(folder / name), dpi=120)
    return [folder / name for name in pictures]


def _histogram(axes: Any, measures: Measures) -> None:
    mean, deviation = measures.deviations.mean(), measures.deviations.std()
    axes.hist(measures.deviations, bins=BINS)
    axes.axvline(mean, color="black", linewidth=1)
    axes.set(xlabel="log Z_c − log Z (nats)", ylabel="contexts")
    axes.set_title(f"µ_z = {mean:.3f}, σ_z = {deviation:.3f}")


def _entropy(axes: Any, measures: Measures) -> None:
    from matplotlib.colors import LogNorm

    axes.hist2d(measures.entropies, measures.deviations, bins=BINS, norm=LogNorm())
    axes.set(xlabel="entropy of the prediction (nats)", ylabel="log Z_c − log Z (nats)")


def _calibration(axes: Any, measures: Measures) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    shift = measures.deviations.mean()
    for label, off in (("exact", None), ("unnormalised, shifted", shift)):
        _, confidence, accuracy = zip(*calibration(measures, off))
        axes.plot(confidence, accuracy, marker="o", label=label)
    axes.set(xlabel="probability of the likeliest word", ylabel="how often it came")
    axes.legend()
