"""Tables of recipe.py's JSON: what our rows found, and beside it what the paper reports.

A table has one column of the paper's for each measurement that the paper has of a shown row, and of
perplexities and of σ_z by how much ours lies above it.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from .cells import NONE, SOFTMAX, Columns, number, over, ratio, spread, table

Row = Dict[str, Any]
OFF = "shift_off"  # of the shifted perplexity from the exact one, in per cent

PTB: Columns = (
    ("valid PPL^f", "valid_ppl", ".1f"),
    ("µ_z", "mu_z", ".3f"),
    ("σ_z", "sigma_z", ".3f"),
    ("entropy and log Z", "entropy_correlation", ".2f"),
)
PTB_TEST: Columns = (
    ("test PPL^f", "test_ppl", ".1f"),
    ("test PPL^n", "test_u_ppl", ".1f"),
    ("shifted", "test_u_ppl_shifted", ".1f"),
    ("off %", OFF, ".2f"),
    ("words/processor s", "words_per_processor_second", ",.0f"),
)
NOISE: Columns = (
    ("test PPL^f", "test_ppl", ".1f"),
    ("test PPL^n", "test_u_ppl", ".1f"),
    ("shifted", "test_u_ppl_shifted", ".1f"),
    ("valid PPL^f", "valid_ppl", ".1f"),
    ("µ_z", "mu_z", ".3f"),
    ("σ_z", "sigma_z", ".3f"),
    ("words/processor s", "words_per_processor_second", ",.0f"),
)
COMPLETION: Columns = (
    ("right, exact %", "accuracy", ".1f"),
    ("unnormalised %", "u_accuracy", ".1f"),
    ("choices that differ %", "choices_that_differ", ".1f"),
    ("valid PPL^f", "valid_ppl", ".1f"),
    ("µ_z", "mu_z", ".3f"),
    ("σ_z", "sigma_z", ".3f"),
    ("words/s", "words_per_second", ",.0f"),
    ("hours", "training_hours", ".2f"),
)


def ptb(*recipes: Dict[str, Any]) -> List[str]:
    """Goldberger & Melamud on PTB, tables 1 to 3 and 5: rows of every size of which one has run.

    Args:
        recipes: of gm2018_table1 to 5, which share rows.
    """
    rows = sorted(_rows(recipes), key=_size)
    sizes = {_size(row) for row in rows if row.get("ours")}
    return _table(PTB, [row for row in rows if _size(row) in sizes])


def ptb_test(*recipes: Dict[str, Any]) -> List[str]:
    """The same, table 4: the test text, of the rows that have run."""
    rows = sorted(_rows(recipes), key=_size)
    return _table(PTB_TEST, [row for row in rows if row.get("ours")])


def ptb_seeds(*recipes: Dict[str, Any]) -> List[str]:
    """Goldberger & Melamud's rows of a size that ran with several seeds: mean ± deviation.

    Args:
        recipes: of one table each, with another seed each.
    """
    found = _by_label(recipes)
    sizes = {_size(rows[0]) for rows in found.values() if len(rows) > 1}
    titles = ["", "seeds", "valid PPL^f", "over softmax", "σ_z", "test PPL^f", "over softmax"]
    shown = [label for label, rows in found.items() if _size(rows[0]) in sizes]
    return table(titles, [_seeds(label, found) for label in shown])


def _seeds(label: str, found: Mapping[str, Sequence[Row]]) -> List[str]:
    softmax = found.get(f"softmax-{_size(found[label][0])}", ())
    line = [f"`{label}`", str(len(found[label]))]
    for name, form in (("valid_ppl", ".2f"), ("sigma_z", ".3f"), ("test_ppl", ".2f")):
        values, references = (
            [row["ours"][name] for row in rows] for rows in (found[label], softmax)
        )
        line.append(spread(values, form))
        if name != "sigma_z":
            reference = statistics.fmean(references) if references else None
            line.append(over(statistics.fmean(values), reference))
    return line


def noise(*recipes: Dict[str, Any]) -> List[str]:
    """Mnih & Teh on PTB: noise distribution, number of draws, context; mean ± deviation.

    Args:
        recipes: of mt2012_ptb, with another seed each.
    """
    titles = ["", *(title for title, _, _ in NOISE)]
    lines = []
    for label, rows in _by_label(recipes).items():
        cells = [spread(_values(rows, name), form) for _, name, form in NOISE]
        lines.append([f"`{label}`", *cells])
    return table(titles, lines)


def completion(*recipes: Dict[str, Any]) -> List[str]:
    """Sentence completion: gm2018_mscc and mt2012_mscc."""
    return _table(COMPLETION, _rows(recipes))


def _by_label(recipes: Iterable[Dict[str, Any]]) -> Dict[str, List[Row]]:
    """The rows that have run, of several recipes that have other seeds."""
    found: Dict[str, List[Row]] = {}
    for row in (row for recipe in recipes for row in recipe["rows"] if row.get("ours")):
        found.setdefault(row["label"], []).append(row)
    return found


def _values(rows: Iterable[Row], name: str) -> List[float]:
    """A measurement of the rows that have it."""
    values = (_ours(row, name) for row in rows)
    return [value for value in values if value is not None]


def _rows(recipes: Iterable[Dict[str, Any]]) -> List[Row]:
    """Every row with a number of ours or of the paper's, once: of the first seed that ran."""
    found: Dict[str, Row] = {}
    for row in (row for recipe in recipes for row in recipe["rows"]):
        found[row["label"]] = min(found.get(row["label"], row), row, key=_seed_of_run)
    return [row for row in found.values() if row.get("ours") or row["paper"]]


def _seed_of_run(row: Row) -> float:
    return row["seed"] if row.get("ours") else math.inf


def _size(row: Row) -> int:
    """Of a label METHOD-SIZE."""
    return int(row["label"].rpartition("-")[2])


def _table(columns: Columns, rows: Sequence[Row]) -> List[str]:
    shown = [column for column in columns if any(_ours(row, column[1]) for row in rows)]
    in_paper = {name for _, name, _ in shown if any(name in row["paper"] for row in rows)}
    titles = [""]
    for title, name, _ in shown:
        titles += [title, *_beside(name, in_paper, ["paper", "over it"])]
    return table(titles, [_line(row, shown, in_paper) for row in rows])


def _line(row: Row, columns: Columns, in_paper: Iterable[str]) -> List[str]:
    line = [f"`{row['label']}`"]
    for _, name, form in columns:
        ours, papers = _ours(row, name), row["paper"].get(name)
        beside = [NONE if papers is None else _as_printed(papers), over(ours, papers, ".1f")]
        line += [number(ours, form), *_beside(name, in_paper, beside)]
    return line


def _beside(name: str, in_paper: Iterable[str], cells: List[str]) -> List[str]:
    """The paper's number, and of what is no logarithm or share how far ours is above it."""
    if name not in in_paper:
        return []
    return cells if name.endswith("ppl") or name == "sigma_z" else cells[:1]


def _ours(row: Row, name: str) -> Optional[float]:
    """A softmax's raw scores are no log-probabilities, so that it has no unnormalised PPL."""
    ours = row.get("ours") or {}
    if ("u_ppl" in name or name == OFF) and row["criterion"] == SOFTMAX:
        return None
    if name == OFF:
        part = ratio(ours.get("test_u_ppl_shifted"), ours.get("test_ppl"))
        return None if part is None else 100 * abs(part - 1)
    return ours.get(name)


def _as_printed(value: float) -> str:
    return number(value, "")
