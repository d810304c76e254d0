"""The runs and the report of bench_output_layer.py: heads at shapes."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from rendering.cells import NONE, ratio

from . import machine, plot, tables
from .measures.layers import DRAWS, EXACT, LIMIT, OWN, ZIPF, Shape
from .run import Outcome, Part, Run
from .tables import Line

_MB = 1e6
_PACKAGES = ("triton", "liger-kernel", "cut-cross-entropy")
_SETTINGS = ("device", "device_name", "dtype", "calls", "max_seconds", "threads")


class HeadRun(Run):
    """A head at one shape.

    Args:
        settings: those of run.prepare, and ``dtype``, ``calls`` (timed calls at most) and
            ``max_seconds`` (for these calls).
    """

    ends_at_first_error = True

    def __init__(self, settings: Any, head: str, shape: Shape):
        identity = {
            **_settings(settings),
            "plugin": machine.plugin_fingerprint(settings.plugin) if head in OWN else None,
        }
        super().__init__(settings, head, shape, f"{head}-{shape}", identity)

    def parts(self) -> List[Part]:
        return [("head", None, self._measure)]

    def _measure(self) -> Any:
        settings = self.settings
        limits = ["--updates", settings.calls, "--seconds", settings.max_seconds]
        arguments = ["--head", self.system, "--shape", self.case, "--device", settings.device]
        return self.measure("head", *limits, *arguments, "--dtype", settings.dtype)


def _settings(settings: Any) -> Dict[str, Any]:
    """Return the settings of all heads, and the versions of all packages."""
    versions: Dict[str, Optional[str]] = machine.versions()
    versions.update({name: machine.version(name) for name in _PACKAGES})
    return {**{name: getattr(settings, name) for name in _SETTINGS}, "versions": versions}


def numbers(outcomes: Sequence[Outcome]) -> List[Dict[str, Any]]:
    """Return the numbers of each head at each shape, with ratios to other heads."""
    found = []
    for outcome in outcomes:
        times = {
            o.system: o.parts["head"]["value"]["ms"]
            for o in outcomes
            if o.case == outcome.case and not o.errors
        }
        own = {} if outcome.errors else dict(outcome.parts["head"]["value"])
        if own:
            exact = [ms for head, ms in times.items() if head in EXACT]
            own["extra_mb"] = own["extra_bytes"] / _MB
            own["x_exact"] = ratio(min(exact, default=None), own["ms"])
            own["of_limit"] = ratio(own["ms"], times.get(LIMIT))
        found.append(own)
    return found


def write(outcomes: Sequence[Outcome], settings: Any) -> None:
    """Write ``output_layer.md`` and ``output_layer.json``."""
    rows = [
        {"head": o.system, "shape": str(o.case), **(own or {"failed": o.error})}
        for o, own in zip(outcomes, numbers(outcomes))
    ]
    content = {"settings": _settings(settings), "rows": rows}
    tables.write(settings.out / "output_layer", _markdown(outcomes, settings), content)


def _markdown(outcomes: Sequence[Outcome], settings: Any) -> List[str]:
    parts = ["# Output layer, forward and backward", _conditions(outcomes, settings)]
    ((title, shown),) = tables.load("reports")["output layer"].items()
    values = {"exact": ", ".join(EXACT), "limit": LIMIT}
    for shape in dict.fromkeys(outcome.case for outcome in outcomes):
        heads = [(o, own) for o, own in zip(outcomes, numbers(outcomes)) if o.case == shape]
        distinct = next((own["distinct_targets"] for _, own in heads if own), NONE)
        place = title.format(words=distinct, **shape._asdict())
        lines = [Line([o.system], own, o.error) for o, own in heads]
        parts.append(tables.section(place, shown, ["head"], lines, **values))
    return parts


def _conditions(outcomes: Sequence[Outcome], settings: Any) -> str:
    parts = [part for outcome in outcomes for part in outcome.parts.values()]
    exponent, shift = ZIPF
    about = [
        f"Device: {settings.device} ({settings.device_name}), {settings.dtype}, "
        f"{settings.threads} thread(s).",
        f"Targets: words of rank r as 1 / (r + {shift:g})^{exponent:g}, independent; U of them are "
        f"distinct. Scores about standard normal, no bias. shared_nce draws {DRAWS}.",
    ]
    return tables.conditions(about, parts, [load for one in parts for load in one["ended"]["load"]])


def draw(outcomes: Sequence[Outcome], settings: Any) -> str:
    """Draw memory against time, a panel for each shape; return what was done."""
    panels: Dict[Shape, List[Any]] = {}
    for o, own in zip(outcomes, numbers(outcomes)):
        if own:
            point = (own["ms"], max(own["extra_mb"], 1e-3))
            panels.setdefault(o.case, []).append((o.system, [point]))
    axes = {"xscale": "log", "yscale": "log", "ylabel": "extra memory (MB)"}
    axes["xlabel"] = "forward and backward (ms)"
    drawn = [
        plot.Panel(heads, {**axes, "title": str(shape)}, joined=False)
        for shape, heads in panels.items()
    ]
    title = f"Output layer, {settings.device_name}, {settings.dtype}"
    return plot.lines(drawn, title, settings.out / "output_layer.png")
