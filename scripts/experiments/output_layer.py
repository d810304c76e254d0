"""What bench_output_layer.py measures: heads at shapes, each in a process of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import machine, plot, tables
from .measures.layers import EXACT, LIMIT, OWN, Shape
from .run import Outcome, Part, Run
from .tables import Line, ratio

_MB = 1e6
_PACKAGES = ("triton", "liger-kernel", "cut-cross-entropy")


@dataclass(frozen=True)
class Settings:
    """What holds for every head.

    Attributes:
        device_name: the GPU's or the processor's.
        calls: timed ones at most, within ``seconds``.
        draws: of shared_nce.
        zipf: (s, q) of the targets' law; ``seed`` is theirs, features' and weight's.
    """

    out: Path
    plugin: Path
    device: str
    device_name: str
    dtype: str
    calls: int
    seconds: float
    draws: int
    zipf: Tuple[float, float]
    seed: int
    threads: int


@dataclass(frozen=True)
class Row:
    """One head at one shape: its numbers, or why there are none."""

    head: str
    shape: Shape
    numbers: Dict[str, Any]
    failed: Optional[str] = None


class HeadRun(Run):
    """A head at one shape."""

    ends_at_first_error = True

    def __init__(self, settings: Settings, head: str, shape: Shape):
        identity = {
            **{name: str(value) for name, value in asdict(settings).items() if name != "out"},
            "plugin": machine.plugin_fingerprint(settings.plugin) if head in OWN else None,
            "versions": versions(),
        }
        super().__init__(settings, head, shape, f"{head}-{shape}", identity)

    @property
    def name(self) -> str:
        return f"{self.system} {self.case}"

    def parts(self) -> List[Part]:
        return [("head", None, self._measure)]

    def _measure(self) -> Any:
        settings = self.settings
        limits = ["--updates", settings.calls, "--seconds", settings.seconds]
        arguments = ["--head", self.system, "--shape", self.case, "--device", settings.device]
        arguments += ["--dtype", settings.dtype, "--draws", settings.draws]
        arguments += ["--zipf", *settings.zipf, "--seed", settings.seed]
        return self.measure("head", *limits, *arguments)


def versions() -> Dict[str, Optional[str]]:
    """Of all that is measured."""
    return {**machine.versions(), **{name: machine.version(name) for name in _PACKAGES}}


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """A row for each head and shape, with ratios to the others of that shape."""
    found = {(o.system, o.case): o.parts["head"]["value"] for o in outcomes if not o.errors}
    return [_row(outcome, found) for outcome in outcomes]


def _row(outcome: Outcome, found: Dict[Tuple[str, Shape], Dict[str, Any]]) -> Row:
    head, shape = outcome.system, outcome.case
    if outcome.errors:
        return Row(head, shape, {}, next(iter(outcome.errors.values())))
    numbers = dict(found[head, shape])
    times = {name: one["ms"] for (name, of), one in found.items() if of == shape}
    exact = [ms for name, ms in times.items() if name in EXACT]
    numbers["extra_mb"] = numbers["extra_bytes"] / _MB
    numbers["x_exact"] = ratio(min(exact, default=None), numbers["ms"])
    numbers["of_limit"] = ratio(numbers["ms"], times.get(LIMIT))
    return Row(head, shape, numbers)


def write(outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``output_layer.md`` and ``output_layer.json``."""
    found = rows(outcomes)
    parts = markdown(found, outcomes, settings)
    tables.write(settings.out / "output_layer", parts, as_json(found, settings))


def markdown(found: Sequence[Row], outcomes: Sequence[Outcome], settings: Settings) -> List[str]:
    """The whole report, in paragraphs."""
    parts = ["# Output layer, forward and backward", _conditions(outcomes, settings)]
    ((title, shown),) = tables.load("reports")["output layer"].items()
    values = {"exact": ", ".join(EXACT), "limit": LIMIT}
    for shape in dict.fromkeys(row.shape for row in found):
        rows = [row for row in found if row.shape == shape]
        words = next((r.numbers["distinct_targets"] for r in rows if r.failed is None), "–")
        lines = [Line([row.head], row.numbers, row.failed) for row in rows]
        place = title.format(words=words, **asdict(shape))
        parts.append(tables.section(place, shown, ["head"], lines, **values))
    return parts


def as_json(found: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report."""
    shared = {**asdict(settings), "out": settings.out.name, "plugin": settings.plugin.name}
    return {
        "settings": {**shared, "versions": versions()},
        "rows": [_as_json(row) for row in found],
    }


def draw(outcomes: Sequence[Outcome], settings: Settings) -> str:
    """Memory against time of every head, a panel for each shape; returns what was done."""
    shown = [row for row in rows(outcomes) if row.failed is None]
    scales = {"xscale": "log", "yscale": "log", "xlabel": "forward and backward (ms)"}
    panels = []
    for shape in dict.fromkeys(row.shape for row in shown):
        points = [
            (row.head, [(row.numbers["ms"], max(row.numbers["extra_mb"], 1e-3))])
            for row in shown
            if row.shape == shape
        ]
        axes = {**scales, "ylabel": "extra memory (MB)", "title": str(shape)}
        panels.append(plot.Panel(points, axes, joined=False))
    title = f"Output layer, {settings.device_name}, {settings.dtype}"
    return plot.lines(panels, title, settings.out / "output_layer.png")


def _conditions(outcomes: Sequence[Outcome], settings: Settings) -> str:
    parts = [part for outcome in outcomes for part in outcome.parts.values()]
    exponent, shift = settings.zipf
    lines = [
        f"Device: {settings.device} ({settings.device_name}), {settings.dtype}, "
        f"{settings.threads} thread(s). {tables.where(parts)}",
        *tables.load_average([load for part in parts for load in part["ended"]["load"]]),
        f"Targets: words of rank r as 1 / (r + {shift:g})^{exponent:g}, independent, seed "
        f"{settings.seed}; U of them are distinct. Scores about standard normal, no bias. "
        f"shared_nce draws {settings.draws}.",
    ]
    return "\n".join(lines)


def _as_json(row: Row) -> Dict[str, Any]:
    content: Dict[str, Any] = {"head": row.head, "shape": str(row.shape)}
    return {**content, **(row.numbers if row.failed is None else {"failed": row.failed})}
