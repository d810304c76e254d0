"""A table as Markdown and JSON: ours, and beside it the paper's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from comparison import report
from comparison.runs import Outcome, Settings
from comparison.summary import Cell, measurements, rows

from .table import SPEED, Row, Table

_ABOUT_SPEED = """
p90: the 90th percentile of words/s over the intervals of the training log, which other work on the
machine disturbs less than it does their mean."""


def write(name: str, table: Table, outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``NAME.md`` and ``NAME.json`` to the settings' folder."""
    by_label = {outcome.variant.label: outcome for outcome in outcomes}
    _save(settings.out / f"{name}.md", markdown(name, table, by_label, settings))
    content = report.strict(as_json(table, by_label, settings))
    _save(settings.out / f"{name}.json", json.dumps(content, indent=1, allow_nan=False) + "\n")


def markdown(name: str, table: Table, outcomes: Dict[str, Outcome], settings: Settings) -> str:
    """The whole report; rows that have not run are listed as such."""
    found = rows(list(outcomes.values()))
    missing = [r.variant.label for r in table.rows if r.variant.label not in outcomes]
    parts = [f"# {table.title}", report.conditions(found, settings), _table(table, outcomes)]
    parts.append(table.about.strip())
    if SPEED[1] in table.columns:
        parts.append(_ABOUT_SPEED.strip())
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.")
    parts += report.failures(found)
    parts += ["## Flags", report.flags(found, settings)]
    return "\n\n".join(parts) + "\n"


def as_json(table: Table, outcomes: Dict[str, Outcome], settings: Settings) -> Dict[str, Any]:
    """Every row's measurements, the paper's beside them, and the run they are from."""
    return {
        "title": table.title,
        "flags": [*table.regime.training, *settings.training],
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "rows": [_row(row, outcomes.get(row.variant.label)) for row in table.rows],
    }


def _row(row: Row, outcome: Optional[Outcome]) -> Dict[str, Any]:
    variant = row.variant
    shown: Dict[str, Any] = {"label": variant.label, "criterion": variant.criterion}
    shown.update(flags=list(variant.flags), paper=dict(row.paper))
    if outcome is None:
        return {**shown, "ours": None}
    if outcome.stages is None:
        return {**shown, "failed": outcome.error}
    train = outcome.stages["train"]
    kept = {key: train[key] for key in ("hardware", "date", "plugin", "curve")}
    return {**shown, "ours": measurements(outcome.stages), "seed": outcome.seed, **kept}


def _table(table: Table, outcomes: Dict[str, Outcome]) -> str:
    columns = [(*column, _is_known(table, column[1])) for column in table.columns]
    titles = ["row"]
    for title, name, _, known in columns:
        titles += [title, *["paper"] * known, *["off"] * (known and name.endswith("ppl"))]
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)]]
    lines += [_line(row, columns, outcomes.get(row.variant.label)) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(row: Row, columns: Sequence[Any], outcome: Optional[Outcome]) -> List[str]:
    ours = measurements(outcome.stages) if outcome and outcome.stages else {}
    line = [row.variant.label if outcome is None or ours else f"{row.variant.label} (failed)"]
    for _, name, form, known in columns:
        line.append(_shown(ours.get(name), form))
        if known:
            line.append(_shown(row.paper.get(name), form))
        if known and name.endswith("ppl"):
            line.append(_off(ours.get(name), row.paper.get(name)))
    return line


def _is_known(table: Table, name: str) -> bool:
    return any(name in row.paper for row in table.rows)


def _shown(value: Optional[float], form: str) -> str:
    return report.shown(None if value is None else Cell(value, None, 1), form)


def _off(ours: Optional[float], papers: Optional[float]) -> str:
    return "–" if ours is None or papers is None else f"{100 * (ours / papers - 1):+.1f} %"


def _save(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
