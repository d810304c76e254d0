"""The papers' tables: rows to train, as recipes/*.yaml have them, and their numbers beside ours."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import yaml  # that of omegaconf, which fairseq needs

from . import comparison, plot, tables
from .comparison import measurements
from .recipes import Recipe, Variant, recipe, words
from .run import Outcome
from .tables import Columns, Line
from .training import Settings

_FOLDER = Path(__file__).resolve().parents[1] / "recipes"
_COLUMNS = _FOLDER / "columns.yaml"
_ABOUT_SPEED = """
p90: the 90th percentile of words/s over the intervals of the training log, which other work on the
machine disturbs less than it does their mean."""


@dataclass(frozen=True)
class Row:
    """One system.

    Attributes:
        variant: label, criterion, and all flags that other rows lack, the architecture's too.
        paper: what the paper reports, by the name of the measurement; what is not known is absent.
    """

    variant: Variant
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        title: paper and table.
        corpus: the arguments of fairseq-bnce get-data that make the data.
        regime: what all rows are trained and scored with.
        columns: measurements; a row's paper value stands beside ours where it is known.
        about: what is the paper's, what is a guess, and where its numbers are from.
        is_drawn: whether the 2-D histograms of entropy and log Z are drawn, too.
    """

    title: str
    corpus: str
    regime: Recipe
    rows: Sequence[Row]
    columns: Columns
    about: str
    is_drawn: bool = False


def all_tables() -> Dict[str, Table]:
    """Every table of recipes/ by its name."""
    columns = _read(_COLUMNS)
    found = {}
    for paper in (_read(path) for path in _FOLDER.glob("*.yaml") if path != _COLUMNS):
        found.update({name: _table(paper, own, columns) for name, own in paper["tables"].items()})
    return dict(sorted(found.items()))


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _table(paper: Dict[str, Any], own: Dict[str, Any], columns: Dict[str, List[str]]) -> Table:
    """One of a file's tables."""
    return Table(
        own["title"],
        paper["corpus"],
        recipe(**paper["regime"]),
        _rows(paper, own),
        tables.columns({name: columns[name] for name in own["columns"]}),
        (paper["about"] + own.get("more", "")).strip(),
        own.get("is_drawn", False),
    )


def _rows(paper: Dict[str, Any], own: Dict[str, Any]) -> List[Row]:
    """Model by model, the methods in their order; labels are METHOD-MODEL or METHOD."""
    methods = own["methods"] if "methods" in own else paper["methods"]
    if not isinstance(methods, dict):
        methods = {name: paper["methods"][name] for name in methods}
    models = paper.get("models", {"": ""})
    known: Dict[str, Dict[str, float]] = {}
    for block in paper.get("paper", []):
        for label, figures in block["rows"].items():
            known.setdefault(label, {}).update(zip(block["columns"], figures))
    found = []
    for model, method in itertools.product(models, methods):
        label = f"{method}-{model}" if model else method
        criterion, *flags = words(methods[method])
        variant = Variant(label, criterion, (*words(models[model]), *flags))
        found.append(Row(variant, known.get(label, {})))
    return found


# ---------------------------------------------------------------- the report


def write(name: str, table: Table, outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``NAME.md`` and ``NAME.json`` to the settings' folder."""
    by_label = {outcome.system.label: outcome for outcome in outcomes}
    parts = markdown(table, by_label, settings)
    tables.write(settings.out / name, parts, as_json(table, by_label, settings))


def markdown(table: Table, outcomes: Dict[str, Outcome], settings: Settings) -> List[str]:
    """The whole report, in paragraphs; rows that have not run are listed as such."""
    found = comparison.rows(list(outcomes.values()))
    missing = [r.variant.label for r in table.rows if r.variant.label not in outcomes]
    parts = [f"# {table.title}", comparison.conditions(found, settings), beside(table, outcomes)]
    parts.append(table.about)
    if any(name == "words_per_second_p90" for _, name, _ in table.columns):
        parts.append(_ABOUT_SPEED.strip())
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.")
    parts += comparison.failures(found)
    return [*parts, "## Flags", comparison.flags(found, settings)]


def as_json(table: Table, outcomes: Dict[str, Outcome], settings: Settings) -> Dict[str, Any]:
    """Every row's measurements, the paper's beside them, and the run they are from."""
    return {
        "title": table.title,
        "flags": [*table.regime.training, *settings.training],
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "device": comparison.device(settings),
        "rows": [_row(row, outcomes.get(row.variant.label)) for row in table.rows],
    }


def _row(row: Row, outcome: Optional[Outcome]) -> Dict[str, Any]:
    shown = {**asdict(row.variant), "paper": dict(row.paper)}
    if outcome is None:
        return {**shown, "ours": None}
    if outcome.errors:
        return {**shown, "failed": outcome.error}
    train = {key: outcome.parts["train"][key] for key in ("hardware", "date", "plugin", "curve")}
    return {**shown, "ours": measurements(outcome.parts), "seed": outcome.case, **train}


def beside(table: Table, outcomes: Dict[str, Outcome]) -> str:
    """Ours, the paper's, and by how much a perplexity of ours is off."""
    known = {name for row in table.rows for name in row.paper}
    columns = []
    for title, name, form in table.columns:
        columns.append((title, name, form))
        if name in known:
            columns.append(("paper", f"paper {name}", form))
        if name in known and name.endswith("ppl"):
            columns.append(("off", f"off {name}", ""))
    lines = [_line(row, outcomes.get(row.variant.label)) for row in table.rows]
    return tables.measured(["row"], columns, lines)


def _line(row: Row, outcome: Optional[Outcome]) -> Line:
    ours = measurements(outcome.parts) if outcome and not outcome.errors else {}
    label = row.variant.label + (" (failed)" if outcome and outcome.errors else "")
    paper = {f"paper {name}": value for name, value in row.paper.items()}
    pairs = [(name, ours.get(name), value) for name, value in row.paper.items()]
    off = {
        f"off {name}": f"{100 * (own / value - 1):+.1f} %"
        for name, own, value in pairs
        if own is not None
    }
    return Line([label], {**ours, **paper, **off})


def draw(table: Table, outcomes: Sequence[Outcome], path: Path) -> str:
    """The histograms of the table's rows; returns what was done, or why it was not."""
    found = {o.system.label: o.parts["normaliser"] for o in outcomes if not o.errors}
    labels = [row.variant.label for row in table.rows]
    shown = [(one, found[one]) for one in labels if "histogram" in found.get(one, {})]
    return plot.histograms(shown, path)
