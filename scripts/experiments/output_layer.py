"""What bench_output_layer.py measures: heads at shapes, each in a process of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rendering.cells import NONE, ratio

from . import machine, plot, tables
from .measures.layers import DRAWS, EXACT, LIMIT, OWN, ZIPF, Shape
from .run import Outcome, Part, Run
from .tables import Line

_MB = 1e6
_PACKAGES = ("triton", "liger-kernel", "cut-cross-entropy")


@dataclass(frozen=True)
class Settings:
    """What holds for every head.

    Attributes:
        device_name: the GPU's or the processor's.
        calls: timed ones at most, within ``seconds``.
    """

    out: Path
    plugin: Path
    device: str
    device_name: str
    dtype: str
    calls: int
    seconds: float
    threads: int


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
        return self.measure("head", *limits, *arguments, "--dtype", settings.dtype)


def versions() -> Dict[str, Optional[str]]:
    """Of all that is measured."""
    return {**machine.versions(), **{name: machine.version(name) for name in _PACKAGES}}


def numbers(outcomes: Sequence[Outcome]) -> Dict[Tuple[str, Shape], Dict[str, Any]]:
    """What was measured of each head at each shape, with ratios to the others of that shape."""
    found = {(o.system, o.case): o.parts["head"]["value"] for o in outcomes if not o.errors}
    return {key: {**one, **_ratios(key, found)} for key, one in found.items()}


def _ratios(key: Tuple[str, Shape], found: Dict[Any, Dict[str, Any]]) -> Dict[str, Any]:
    own = found[key]
    times = {head: one["ms"] for (head, shape), one in found.items() if shape == key[1]}
    exact = [ms for head, ms in times.items() if head in EXACT]
    return {
        "extra_mb": own["extra_bytes"] / _MB,
        "x_exact": ratio(min(exact, default=None), own["ms"]),
        "of_limit": ratio(own["ms"], times.get(LIMIT)),
    }


def write(outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``output_layer.md`` and ``output_layer.json``."""
    content = as_json(outcomes, settings)
    tables.write(settings.out / "output_layer", markdown(outcomes, settings), content)


def markdown(outcomes: Sequence[Outcome], settings: Settings) -> List[str]:
    """The whole report, in paragraphs."""
    parts = ["# Output layer, forward and backward", _conditions(outcomes, settings)]
    ((title, shown),) = tables.load("reports")["output layer"].items()
    found, values = numbers(outcomes), {"exact": ", ".join(EXACT), "limit": LIMIT}
    for shape in dict.fromkeys(outcome.case for outcome in outcomes):
        heads = {o.system: o for o in outcomes if o.case == shape}
        words = [one["distinct_targets"] for (_, of), one in found.items() if of == shape]
        lines = [Line([h], found.get((h, shape), {}), o.error) for h, o in heads.items()]
        place = title.format(words=words[0] if words else NONE, **asdict(shape))
        parts.append(tables.section(place, shown, ["head"], lines, **values))
    return parts


def as_json(outcomes: Sequence[Outcome], settings: Settings) -> Dict[str, Any]:
    """Everything of the report."""
    shared = {**asdict(settings), "out": settings.out.name, "plugin": settings.plugin.name}
    found, lines = numbers(outcomes), []
    for o in outcomes:
        line = {"head": o.system, "shape": str(o.case)}
        lines.append({**line, **found.get((o.system, o.case), {"failed": o.error})})
    return {"settings": {**shared, "versions": versions()}, "rows": lines}


def draw(outcomes: Sequence[Outcome], settings: Settings) -> str:
    """Memory against time of every head, a panel for each shape; returns what was done."""
    panels: Dict[Shape, List[Any]] = {}
    for (head, shape), one in numbers(outcomes).items():
        point = (one["ms"], max(one["extra_mb"], 1e-3))
        panels.setdefault(shape, []).append((head, [point]))
    axes = {"xscale": "log", "yscale": "log", "ylabel": "extra memory (MB)"}
    axes["xlabel"] = "forward and backward (ms)"
    drawn = [
        plot.Panel(heads, {**axes, "title": str(shape)}, joined=False)
        for shape, heads in panels.items()
    ]
    title = f"Output layer, {settings.device_name}, {settings.dtype}"
    return plot.lines(drawn, title, settings.out / "output_layer.png")


def _conditions(outcomes: Sequence[Outcome], settings: Settings) -> str:
    parts = [part for outcome in outcomes for part in outcome.parts.values()]
    exponent, shift = ZIPF
    lines = [
        f"Device: {settings.device} ({settings.device_name}), {settings.dtype}, "
        f"{settings.threads} thread(s). {tables.where(parts)}",
        *tables.load_average([load for part in parts for load in part["ended"]["load"]]),
        f"Targets: words of rank r as 1 / (r + {shift:g})^{exponent:g}, independent; U of them are "
        f"distinct. Scores about standard normal, no bias. shared_nce draws {DRAWS}.",
    ]
    return "\n".join(lines)
