"""Tables of recipe.py's JSON: our numbers beside the paper's.

A measurement has a column with the paper's number where the paper reports any.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, Iterable, List, Optional, Sequence

from .cells import PROCESSOR_SPEED, SOFTMAX, Columns, measured, over, spread, table

Row = Dict[str, Any]

PTB: Columns = (
    ("valid PPL^f", "valid_ppl", ".1f"),
    ("σ_z", "sigma_z", ".3f"),
)
_TEST = ("test PPL^f", "test_ppl", ".1f")
NOISE: Columns = (_TEST, ("shifted", "test_u_ppl_shifted", ".1f"), PTB[1], PROCESSOR_SPEED)


def ptb(*recipes: Dict[str, Any]) -> List[str]:
    """Tabulate Goldberger & Melamud on PTB, tables 1 to 3 and 5: the rows with a run.

    Args:
        recipes: of gm2018_table1 to 5, which share rows.
    """
    return beside(PTB, sorted(_rows(recipes), key=_size))


def ptb_seeds(*recipes: Dict[str, Any]) -> List[str]:
    """Tabulate rows of a size with several seeds: mean ± deviation, beside the softmax.

    Args:
        recipes: of one table, each with another seed.
    """
    found = _by_label(recipes)
    sizes = {_size(rows[0]) for rows in found.values() if len(rows) > 1}
    lines = []
    for label, rows in found.items():
        if _size(rows[0]) in sizes:
            line = [f"`{label}`", str(len(rows))]
            softmax = found.get(f"softmax-{_size(rows[0])}", [])
            own = [row["ours"]["valid_ppl"] for row in rows]
            reference = [row["ours"]["valid_ppl"] for row in softmax]
            known = statistics.fmean(reference) if reference else None
            line += [spread(own, ".2f"), over(statistics.fmean(own), known)]
            lines.append([*line, spread([row["ours"]["sigma_z"] for row in rows], ".3f")])
    titles = ["", "seeds", "valid PPL^f", "over softmax", "σ_z"]
    return table(titles, lines)


def noise(*recipes: Dict[str, Any]) -> List[str]:
    """Tabulate Mnih & Teh on PTB: noise distribution, number of draws, context; mean ± deviation.

    Args:
        recipes: of mt2012_ptb, each with another seed.
    """
    lines = [
        ([f"`{label}`"], {name: [_ours(row, name) for row in rows] for _, name, _ in NOISE})
        for label, rows in _by_label(recipes).items()
    ]
    return measured([""], NOISE, lines)


def _by_label(recipes: Iterable[Dict[str, Any]]) -> Dict[str, List[Row]]:
    """Return the rows with a run, of recipes with different seeds."""
    found: Dict[str, List[Row]] = {}
    for row in (row for recipe in recipes for row in recipe["rows"] if row.get("ours")):
        found.setdefault(row["label"], []).append(row)
    return found


def _rows(recipes: Iterable[Dict[str, Any]]) -> List[Row]:
    """Return every row with a run, once: of the first seed that ran."""
    found: Dict[str, Row] = {}
    for row in (row for recipe in recipes for row in recipe["rows"]):
        best = (found.get(row["label"], row), row)
        found[row["label"]] = min(best, key=lambda r: r["seed"] if r.get("ours") else math.inf)
    return [row for row in found.values() if row.get("ours")]


def _size(row: Row) -> int:
    """Return the size in a label METHOD-SIZE."""
    return int(row["label"].rpartition("-")[2])


def beside(columns: Columns, rows: Sequence[Row]) -> List[str]:
    """Return a table of our numbers beside the paper's; a column without any number is left out."""
    lines = []
    for row in rows:
        numbers = {name: _ours(row, name) for _, name, _ in columns}
        numbers.update((f"paper's {name}", value) for name, value in row["paper"].items())
        lines.append(([f"`{row['label']}`"], numbers))
    known = {name for _, numbers in lines for name, value in numbers.items() if value}
    shown: List[Any] = []
    for title, name, form in columns:
        pair = (title, name, form), ("paper", f"paper's {name}", "")
        if name in known:
            shown += [column for column in pair if column[1] in known]
    return measured([""], shown, lines)


def _ours(row: Row, name: str) -> Optional[float]:
    """Return our number; raw scores of a softmax have no unnormalised perplexity."""
    ours = row.get("ours") or {}
    is_raw = "u_ppl" in name and row["criterion"] == SOFTMAX
    return None if is_raw else ours.get(name)
