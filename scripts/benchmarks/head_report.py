"""The tables, the claims, the JSON and the picture of bench_output_layer.py."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .heads import EXACT, LIMIT, OWN, Shape
from .summary import Claim

_MB = 1e6
# (title, name of the number, format)
_COLUMNS: Sequence[Tuple[str, str, str]] = (
    ("ms", "ms", ",.3f"),
    ("fastest", "fastest_ms", ",.3f"),
    ("slowest", "slowest_ms", ",.3f"),
    ("calls", "calls", ",.0f"),
    ("extra MB", "extra_mb", ",.1f"),
    ("x fastest exact", "x_exact", ",.2f"),
    ("of the limit", "of_limit", ",.2f"),
    ("loss", "loss", ".4f"),
    ("scores by", "scored_by", ""),
)
_ABOUT = f"""
Forward and backward of the output layer alone: loss, gradients of features and weight; no update.
ms: median over the calls after a warm-up, by events on the GPU, by the clock on the CPU. Extra MB
(10^6 bytes): the peak beyond features, weight and targets, gradients counted in. x fastest exact:
how many times as fast as the fastest of {", ".join(EXACT)}. Of the limit: time over that of
{LIMIT}, the three products of N x U x D alone, in the same dtype, without loss or gathering.
Loss: nats a token, of the same problem: those of exact heads agree, and those of bnce and
bnce_sparse*. Scores by: kernel is the fused one, torch the way without. NAME_sparse has gradients
of the batch's own rows, every other one of V x D."""


@dataclass(frozen=True)
class Goal:
    """A number of a head that is to be at least, or at most, ``bound`` on a GPU.

    Attributes:
        vocab: the smallest V that this is stated for.
    """

    text: str
    head: str
    number: str
    bound: float
    at_least: bool = False
    vocab: int = 100_000


_FASTER = "over the fastest exact head, times as fast"
_GOALS = (
    Goal(f"bnce_sparse {_FASTER}", "bnce_sparse", "x_exact", 10, at_least=True),
    Goal(f"bnce {_FASTER}", "bnce", "x_exact", 10, at_least=True),
    Goal("extra MB of bnce_sparse", "bnce_sparse", "extra_mb", 200, vocab=256_000),
    Goal(f"time of bnce_sparse over that of {LIMIT}", "bnce_sparse", "of_limit", 1.5),
)


@dataclass(frozen=True)
class Settings:
    """What holds for every head.

    Attributes:
        device_name: the GPU's or the processor's.
        machine: processor and cores.
        versions: of Python, torch and whatever else is measured.
        load: the machine's 1-minute load average before and after.
    """

    shapes: Tuple[str, ...]
    device: str
    device_name: str
    dtype: str
    calls: int
    seconds: float
    draws: int
    zipf: Tuple[float, float]
    seed: int
    threads: int
    machine: str
    versions: Dict[str, Optional[str]]
    date: str
    load: Tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Row:
    """One head at one shape: its numbers, or why there are none."""

    head: str
    shape: Shape
    numbers: Dict[str, Any]
    failed: Optional[str] = None


def rows(found: Dict[str, Dict[str, Dict[str, Any]]]) -> List[Row]:
    """A row for each head and shape, with ratios to the others of that shape.

    Args:
        found: {head: {shape: what head_measure.py wrote}}.
    """
    pairs = [(head, shape) for head, shapes in found.items() for shape in shapes]
    return [_row(head, shape, found) for head, shape in pairs]


def claims(measured: Sequence[Row], device: str) -> List[Claim]:
    """What batch NCE is to show at every shape; nothing is found where a claim is not stated."""
    return [
        _claim(goal, shape, measured, device)
        for shape in dict.fromkeys(row.shape for row in measured)
        for goal in _GOALS
    ]


def verdicts(stated: Sequence[Claim]) -> str:
    """A line for each claim that says met, not met or not measured."""
    words = {True: "met", False: "NOT met", None: "not measured"}
    lines = [
        f"- {c.text}: required {c.required}, found {_shown(c.found, ',.2f')}: {words[c.is_met]}"
        for c in stated
    ]
    return "\n".join(lines)


def markdown(measured: Sequence[Row], settings: Settings) -> str:
    """The whole report."""
    parts = ["# Output layer, forward and backward", _conditions(settings)]
    for shape in dict.fromkeys(row.shape for row in measured):
        shown = [row for row in measured if row.shape == shape]
        words = next((r.numbers["distinct_targets"] for r in shown if r.failed is None), None)
        title = f"N = {shape.tokens:,}, D = {shape.size:,}, V = {shape.vocab:,}"
        parts += [f"## {title}, U = {_shown(words, ',')}", _table(shown)]
    parts += [_ABOUT.strip(), "## What it is to show", verdicts(claims(measured, settings.device))]
    parts.append("Stated for a GPU and V of at least 100,000; of the memory, 256,000.")
    return "\n\n".join(parts) + "\n"


def as_json(measured: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report."""
    return {
        "settings": asdict(settings),
        "claims": [asdict(claim) for claim in claims(measured, settings.device)],
        "rows": [_as_json(row) for row in measured],
    }


def write(measured: Sequence[Row], settings: Settings, out: Path) -> None:
    """Write ``output_layer.md`` and ``output_layer.json``."""
    (out / "output_layer.md").write_text(markdown(measured, settings), encoding="utf-8")
    content = json.dumps(as_json(measured, settings), indent=1, allow_nan=False)
    (out / "output_layer.json").write_text(content + "\n", encoding="utf-8")


def draw(measured: Sequence[Row], title: str, path: Path) -> str:
    """Memory against time of every head, both on logarithmic axes, a panel for each shape.

    Returns:
        what was done, or why it was not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    shown = [row for row in measured if row.failed is None]
    if not shown:
        return f"{path.name}: skipped, no head has a number to draw"
    _draw(shown, title, path)
    return f"{path.name}: written"


def _row(head: str, shape: str, found: Dict[str, Dict[str, Dict[str, Any]]]) -> Row:
    numbers = dict(found[head][shape])
    failed = numbers.pop("failed", None)
    if failed is not None:
        return Row(head, Shape.parse(shape), {}, failed)
    times = {name: shapes[shape].get("ms") for name, shapes in found.items() if shape in shapes}
    exact = [ms for name, ms in times.items() if name in EXACT and ms is not None]
    limit = times.get(LIMIT)
    numbers["extra_mb"] = numbers["extra_bytes"] / _MB
    numbers["x_exact"] = min(exact) / numbers["ms"] if exact else None
    numbers["of_limit"] = numbers["ms"] / limit if limit else None
    return Row(head, Shape.parse(shape), numbers)


def _claim(goal: Goal, shape: Shape, measured: Sequence[Row], device: str) -> Claim:
    of_head = [r.numbers for r in measured if r.shape == shape and r.head == goal.head]
    is_stated = device == "cuda" and shape.vocab >= goal.vocab
    found = of_head[0].get(goal.number) if of_head and is_stated else None
    text, required = f"{shape}: {goal.text}", f"at most {goal.bound:g}"
    if goal.at_least:
        required = f"at least {goal.bound:g}"
    if found is None:
        return Claim(text, None, required, None)
    is_met = found >= goal.bound if goal.at_least else found <= goal.bound
    return Claim(text, found, required, is_met)


def _conditions(settings: Settings) -> str:
    exponent, shift = settings.zipf
    versions = ", ".join(f"{name} {v}" for name, v in settings.versions.items() if v is not None)
    return (
        f"Device: {settings.device} ({settings.device_name}), {settings.dtype}. "
        f"Machine: {settings.machine}, {settings.threads} thread(s); load average "
        f"{settings.load[0]:.1f} before, {settings.load[1]:.1f} after. {versions}. "
        f"Date: {settings.date}.\n"
        f"Targets: words of rank r as 1 / (r + {shift:g})^{exponent:g}, independent, seed "
        f"{settings.seed}; U of them are distinct. Scores about standard normal, no bias. "
        f"shared_nce draws {settings.draws}."
    )


def _table(shown: Sequence[Row]) -> str:
    head = ["head", *(title for title, _, _ in _COLUMNS)]
    lines = [_line(head), _line(["---", *("---:" for _ in _COLUMNS)])]
    return "\n".join([*lines, *(_line([row.head, *_cells(row)]) for row in shown)])


def _cells(row: Row) -> List[str]:
    if row.failed is not None:
        return [f"failed: {row.failed}".replace("|", "\\|"), *("" for _ in _COLUMNS[1:])]
    return [_shown(row.numbers.get(name), form) for _, name, form in _COLUMNS]


def _as_json(row: Row) -> Dict[str, Any]:
    content: Dict[str, Any] = {"head": row.head, "shape": str(row.shape)}
    return {**content, **(row.numbers if row.failed is None else {"failed": row.failed})}


def _draw(shown: Sequence[Row], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    shapes = list(dict.fromkeys(row.shape for row in shown))
    heads = list(dict.fromkeys(row.head for row in shown))
    figure, panels = plt.subplots(1, len(shapes), figsize=(5 * len(shapes) + 2, 4.5), squeeze=False)
    for axes, shape in zip(panels[0], shapes):
        for row in (row for row in shown if row.shape == shape):
            place = heads.index(row.head)
            point = (row.numbers["ms"], max(row.numbers["extra_mb"], 1e-3))
            marker = "*" if row.head in OWN else "x" if row.head == LIMIT else "o"
            axes.loglog(*point, marker, color=f"C{place % 10}", markersize=9, label=row.head)
        axes.set(title=str(shape), xlabel="forward and backward (ms)", ylabel="extra memory (MB)")
        axes.grid(True, which="both", alpha=0.3)
    drawn = [axes.get_legend_handles_labels() for axes in panels[0]]
    marks = {label: mark for marks, labels in drawn for mark, label in zip(marks, labels)}
    figure.legend(list(marks.values()), list(marks), loc="center right", fontsize=8)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0, 1 - 2 / (5 * len(shapes) + 2), 1))
    figure.savefig(str(path), dpi=150)
    plt.close(figure)


def _shown(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
