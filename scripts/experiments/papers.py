"""The papers' tables: rows to train, from recipes/*.yaml, and the papers' numbers beside ours."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs

from . import comparison, plot, tables
from .comparison import measurements
from .recipes import Recipe, Variant, recipe, words
from .run import Outcome
from .tables import Columns, Line

_FOLDER = Path(__file__).resolve().parents[1] / "recipes"
_ABOUT_SPEED = """
p90: the 90th percentile of words/s over the intervals of the training log, which other work on the
machine disturbs less than it does their mean."""


class Row(NamedTuple):
    """A system: all its flags that other rows lack, and the paper's numbers by name."""

    variant: Variant
    paper: Mapping[str, float]


class Table(NamedTuple):
    """A table of a paper.

    Attributes:
        title: paper and table.
        corpus: arguments of fairseq-bnce get-data for the data.
        regime: flags that all rows share.
        rows: to train.
        columns: measurements; the paper's value stands beside ours.
        about: what the paper says and what is a guess, with sources.
        is_drawn: whether 2-D histograms of entropy and log Z are drawn.
    """

    title: str
    corpus: str
    regime: Recipe
    rows: Sequence[Row]
    columns: Columns
    about: str
    is_drawn: bool


def all_tables() -> Dict[str, Table]:
    """Return every table of recipes/ by its name."""
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in _FOLDER.glob("*.yaml")}
    columns, found = files.pop("columns"), {}
    for paper in files.values():
        for name, own in paper["tables"].items():
            found[name] = Table(
                own["title"],
                paper["corpus"],
                recipe(**paper["regime"]),
                _rows(paper, own),
                tables.columns({column: columns[column] for column in own["columns"]}),
                (paper["about"] + own.get("more", "")).strip(),
                own.get("is_drawn", False),
            )
    return dict(sorted(found.items()))


def _rows(paper: Dict[str, Any], own: Dict[str, Any]) -> List[Row]:
    """Return the rows model by model; labels are METHOD-MODEL or METHOD."""
    methods = own.get("methods") or paper["methods"]
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


def write(name: str, table: Table, outcomes: Sequence[Outcome], settings: Any) -> None:
    """Write ``NAME.md`` and ``NAME.json``; they name the rows that have not run."""
    by_label = {outcome.system.label: outcome for outcome in outcomes}
    rows = [(row, by_label.get(row.variant.label)) for row in table.rows]
    found = comparison.rows(outcomes)
    parts = [f"# {table.title}", comparison.conditions(found, settings), _beside(table, rows)]
    parts.append(table.about)
    if any(name == "words_per_second_p90" for _, name, _ in table.columns):
        parts.append(_ABOUT_SPEED.strip())
    missing = [row.variant.label for row, outcome in rows if outcome is None]
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.")
    content = {
        "title": table.title,
        "flags": [*table.regime.training, *settings.training],
        **comparison.where(settings),
        "rows": [_row(*pair) for pair in rows],
    }
    tables.write(settings.out / name, [*parts, *comparison.details(found, settings)], content)


def _row(row: Row, outcome: Optional[Outcome]) -> Dict[str, Any]:
    """Return the row's measurements and the paper's, and the run."""
    shown = {**row.variant._asdict(), "paper": dict(row.paper)}
    if outcome is None:
        return {**shown, "ours": None}
    if outcome.errors:
        return {**shown, "failed": outcome.error}
    train = {key: outcome.parts["train"][key] for key in ("hardware", "date", "plugin", "curve")}
    return {**shown, "ours": measurements(outcome.parts), "seed": outcome.case, **train}


def _beside(table: Table, rows: Sequence[Any]) -> str:
    """Return the table: our number, the paper's, and the distance of a perplexity."""
    known = {name for row, _ in rows for name in row.paper}
    columns = []
    for title, name, form in table.columns:
        columns.append((title, name, form))
        if name in known:
            columns.append(("paper", f"paper {name}", form))
            columns += [("off", f"off {name}", "")] if name.endswith("ppl") else []
    return tables.measured(["row"], columns, [_line(*pair) for pair in rows])


def _line(row: Row, outcome: Optional[Outcome]) -> Line:
    has_failed = outcome is not None and outcome.errors
    ours = measurements(outcome.parts) if outcome and not has_failed else {}
    found: Dict[str, Any] = {**ours, **{f"paper {name}": one for name, one in row.paper.items()}}
    for name, value in row.paper.items():
        own = ours.get(name)
        found[f"off {name}"] = None if own is None else f"{100 * (own / value - 1):+.1f} %"
    return Line([row.variant.label + " (failed)" * bool(has_failed)], found)


def draw(table: Table, outcomes: Sequence[Outcome], path: Path) -> str:
    """Draw the histograms of all rows; return what was done, or why it was not."""
    found = {o.system.label: o.parts["normaliser"] for o in outcomes if not o.errors}
    labels = [row.variant.label for row in table.rows]
    shown = [(one, found[one]) for one in labels if "histogram" in found.get(one, {})]
    return plot.histograms(shown, path)
