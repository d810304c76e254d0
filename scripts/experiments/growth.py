"""What bench_vocab.py makes of its runs: numbers by name, the growth with V, tables and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from rendering.cells import ratio

from . import plot, tables
from .recipes import SOFTMAX
from .run import Outcome, failed
from .tables import MIB, Line
from .vocabulary import LEAST_UPDATES, Settings, own_flags

Numbers = Dict[str, Optional[float]]
_PANELS = {"update_ms": "training update (ms)", "update_mib": "memory of an update (MiB)"}
_END_RATIOS = {"speed_kept": "words_per_second", "memory_growth": "update_mib"}


@dataclass(frozen=True)
class Row:
    """One run and its numbers, by the names that tables and JSON know them by."""

    outcome: Outcome
    numbers: Numbers

    @property
    def system(self) -> str:
        return self.outcome.system.name

    @property
    def vocab(self) -> int:
        return self.outcome.case


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """A row a run, with ratios to the others at the same V."""
    own = {(o.system.name, o.case): _own(o.parts) for o in outcomes}
    return [Row(o, {**own[o.system.name, o.case], **_ratios(o, own)}) for o in outcomes]


def _own(parts: Mapping[str, Any]) -> Numbers:
    found: Numbers = {}
    if "train" in parts:
        ended = parts["train"]["ended"]
        found.update(parts["train"]["value"], process_mib=ended["peak_bytes"] / MIB)
        share = ratio(ended.get("cpu_seconds"), ended.get("seconds"))
        found["cpu_share"] = None if share is None else 100 * share
    if "update" in parts:
        value = parts["update"]["value"]
        found.update({f"{name}_phase_ms": ms for name, ms in value["milliseconds"].items()})
        found["phases_ms"] = value["update_ms"]
        found["update_mib"] = value["peak_bytes"] / MIB
        found["parameters_mib"] = value["parameter_bytes"] / MIB
        found["state_mib"] = value["state_bytes"] / MIB
        found["distinct_targets"] = value["distinct_targets"]
    return found


def _ratios(outcome: Outcome, own: Dict[Tuple[str, int], Numbers]) -> Numbers:
    """How many times as fast as softmax, and as with dense gradients."""
    found, ratios = own[outcome.system.name, outcome.case], {}
    for name, system in (("x_softmax", SOFTMAX), ("x_dense", outcome.system.dense)):
        other = own.get((system, outcome.case), {})
        ratios[name] = ratio(found.get("words_per_second"), other.get("words_per_second"))
    return ratios


def growth(found: Sequence[Row]) -> Dict[str, Numbers]:
    """For each system, what V does to it: the fit, and its largest V over its smallest."""
    return {
        system: {
            "update_exponent": exponent(_points(found, system, "update_ms")),
            **{name: _end_ratio(found, system, of) for name, of in _END_RATIOS.items()},
        }
        for system in dict.fromkeys(row.system for row in found)
    }


def exponent(points: Sequence[Tuple[float, Optional[float]]]) -> Optional[float]:
    """The b of cost = a V^b by least squares on logarithms; None for less than two sizes.

    Args:
        points: (V, cost); those without a cost are left out.
    """
    known = [(vocab, cost) for vocab, cost in points if cost]
    if len({vocab for vocab, _ in known}) < 2:
        return None
    import numpy as np  # late: Linux counts what a parent held as its children's peak

    vocabs, costs = np.log(known).T
    return float(np.polyfit(vocabs, costs, deg=1)[0])


def _end_ratio(found: Sequence[Row], system: str, name: str) -> Optional[float]:
    """The number at the largest V that has been measured at all, over that at the smallest."""
    vocabs = [row.vocab for row in found]
    values = {r.vocab: r.numbers.get(name) for r in found if r.system == system}
    if max(vocabs) == min(vocabs):
        return None
    return ratio(values.get(max(vocabs)), values.get(min(vocabs)))


def _points(found: Sequence[Row], system: str, name: str) -> List[Tuple[int, Optional[float]]]:
    return [(row.vocab, row.numbers.get(name)) for row in found if row.system == system]


# ---------------------------------------------------------------- the report


def write(outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``benchmark.md`` and ``benchmark.json``."""
    found = rows(outcomes)
    tables.write(settings.out / "benchmark", markdown(found, settings), as_json(found, settings))


def markdown(found: Sequence[Row], settings: Settings) -> List[str]:
    """The whole report, in paragraphs."""
    recipe = settings.recipe
    parts = [f"# Cost by vocabulary, {recipe.name}: {recipe.about}", _conditions(found, settings)]
    growths = [Line([system], numbers) for system, numbers in growth(found).items()]
    for title, shown in tables.load("reports")["vocabulary"].items():
        part = shown.get("part")
        if part is None:
            parts.append(tables.section(title, shown, ["system"], growths))
        elif part in settings.parts:
            lines = [_line(row, part) for row in found]
            heads = ["system", "V"]
            parts.append(tables.section(title, shown, heads, lines, least=LEAST_UPDATES))
    return [*parts, *_failures(found), "## Flags", _flags(found, settings)]


def as_json(found: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report, and each run's own parts."""
    shared = {**asdict(settings), "out": settings.out.name, "plugin": settings.plugin.name}
    return {"settings": shared, "growth": growth(found), "runs": [_run(row) for row in found]}


def draw(outcomes: Sequence[Outcome], settings: Settings) -> str:
    """Time and memory against V; returns what was done, or why it was not."""
    found, panels = rows(outcomes), []
    scales = {"xscale": "log", "yscale": "log", "xlabel": "vocabulary V"}
    for name, label in _PANELS.items():
        lines = []
        for system in dict.fromkeys(row.system for row in found):
            points = _points(found, system, name)
            lines.append((system, sorted((vocab, cost) for vocab, cost in points if cost)))
        panels.append(plot.Panel(lines, {**scales, "ylabel": label}))
    title = f"{settings.recipe.about}, {settings.recipe.targets} targets, {settings.device_name}"
    return plot.lines(panels, title, settings.out / "benchmark.png")


def _run(row: Row) -> Dict[str, Any]:
    outcome = row.outcome
    run: Dict[str, Any] = {"system": row.system, "vocab": row.vocab, "folder": outcome.folder}
    if outcome.errors:
        run["failed"] = outcome.errors
    return {**run, **row.numbers, "parts": outcome.parts}


def _line(row: Row, part: str) -> Line:
    return Line([row.system, f"{row.vocab:,}"], row.numbers, row.outcome.errors.get(part))


def _failures(found: Sequence[Row]) -> List[str]:
    return tables.failures(
        [
            f"{row.system} V={row.vocab:,}: {failed(part)}: {tables.escaped(error)}, "
            f"in {row.outcome.folder}"
            for row in found
            for part, error in row.outcome.errors.items()
        ]
    )


def _flags(found: Sequence[Row], settings: Settings) -> str:
    """Those of the largest V; another one's differ in what follows from it."""
    largest = max(row.vocab for row in found)
    lines = {"all": settings.flags}
    for system in dict.fromkeys(row.outcome.system for row in found):
        lines[f"{system.name}, V = {largest:,}"] = own_flags(system, settings.recipe, largest)
    return tables.flags(lines)


def _conditions(found: Sequence[Row], settings: Settings) -> str:
    """Where and when; more than one machine or day if a run was taken from disk."""
    parts = [part for row in found for part in row.outcome.parts.values()]
    lines = [
        f"Device: {settings.device} ({settings.device_name}), {settings.threads} thread(s). "
        f"{tables.where(parts)}",
        f"{settings.recipe.targets} targets a batch. Data: Zipf-distributed words, independent; "
        f"{settings.tokens:,} training tokens.",
        *tables.load_average([load for part in parts for load in part["ended"]["load"]]),
    ]
    own = {p["plugin"] for r in found if r.outcome.system.is_own for p in r.outcome.parts.values()}
    if len(own) > 1:
        lines.append("**The runs were made with different sources of fairseq_bnce.**")
    return "\n".join(lines)
