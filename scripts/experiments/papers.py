"""The papers' tables: rows to train, from recipes/*.yaml, and the papers' numbers beside ours."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs
from rendering.cells import Columns
from rendering.tables import beside

from . import comparison, report
from .comparison import measurements
from .recipes import Recipe, Variant, recipe, words
from .run import Outcome, failures

_FOLDER = Path(__file__).resolve().parents[1] / "recipes"


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
    """

    title: str
    corpus: str
    regime: Recipe
    rows: Sequence[Row]
    columns: Columns
    about: str


def all_tables() -> Dict[str, Table]:
    """Return every table of recipes/ by its name."""
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in _FOLDER.glob("*.yaml")}
    columns, found = files.pop("columns"), {}
    for paper in files.values():
        shared = paper["corpus"], recipe(**paper["regime"])
        for name, own in paper["tables"].items():
            shown = [(columns[one][0], one, columns[one][1]) for one in own["columns"]]
            about = (paper["about"] + own.get("more", "")).strip()
            found[name] = Table(own["title"], *shared, _rows(paper, own), shown, about)
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


def write(name: str, table: Table, outcomes: Sequence[Outcome], settings: Any) -> str:
    """Write ``NAME.md`` and ``NAME.json``, with all rows, and return the former."""
    by_label = {outcome.system.label: outcome for outcome in outcomes}
    content = {
        "title": table.title,
        "flags": [*table.regime.training, *settings.training],
        **comparison.where(settings),
        "rows": [_row(row, by_label) for row in table.rows],
    }
    shown = "\n".join(beside(table.columns, content["rows"]))
    parts = [f"# {table.title}", shown, table.about, *failures(outcomes)]
    return report.write(settings.out / name, parts, content)


def _row(row: Row, outcomes: Mapping[str, Outcome]) -> Dict[str, Any]:
    """Return the row's measurements and the paper's, and the run."""
    shown = {**row.variant._asdict(), "paper": dict(row.paper), "ours": None}
    outcome = outcomes.get(row.variant.label)
    if outcome is None:
        return shown
    if outcome.error:
        return {**shown, "failed": outcome.error}
    train = {key: outcome.parts["train"][key] for key in ("hardware", "date", "plugin", "curve")}
    return {**shown, "ours": measurements(outcome.parts), "seed": outcome.case, **train}
