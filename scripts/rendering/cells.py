"""Numbers as the pages show them, and tables in Markdown."""

import statistics
from pathlib import Path
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

import yaml  # a dependency of omegaconf, which fairseq needs

from .paths import calculate, values

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
NONE = "–"
SOFTMAX = "cross_entropy"  # the criterion that the others are compared with
# Title; name of the measurement, its path or what paths.calculate takes; format. A format in
# brackets is that of a value with the ends of its interval, one before " %" that of per cents.
Column = Tuple[str, str, str]
Columns = Sequence[Column]
Line = Tuple[Sequence[str], Mapping[str, Any]]  # labels, and numbers by name


def number(value: Any, form: str) -> str:
    """Return a number with a typographic minus, a dash for None, and a text unchanged."""
    if value is None or isinstance(value, str):
        return NONE if value is None else value
    if form.endswith(" %"):
        return number(value, form[:-2]) + " %"
    return format(value, form).replace("-", "−")


def ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    """Return the quotient, or None where a number is unknown."""
    return above / below if above is not None and below else None


def spread(known: Sequence[Any], form: str) -> str:
    """Return mean and standard deviation; one number if all values agree, a dash for no value."""
    if len(set(known)) < 2:
        return number(known[0] if known else None, form)
    return f"{number(statistics.fmean(known), form)} ± {number(statistics.stdev(known), form)}"


def table(titles: Sequence[str], lines: Iterable[Sequence[str]], text: int = 1) -> List[str]:
    """Return a table in Markdown; the first ``text`` columns are left-aligned."""
    aligned = ["---"] * text + ["---:"] * (len(titles) - text)
    return [_line(titles), f"|{'|'.join(aligned)}|", *map(_line, lines)]


def measured(
    titles: Sequence[str],
    columns: Columns,
    lines: Iterable[Line],
    files: Sequence[Any] = (),
) -> List[str]:
    """Return a table of measurements.

    Args:
        titles: of the label columns.
        columns: of the numbers; a path that begins with a slash begins at the files, and has the
            row's own text "{}" in the place of {}.
        lines: one for each row.
    """
    known = []
    for labels, found in lines:
        cells = [cell(found, column, files) for column in columns]
        # Files need not have everything that tables.yaml names.
        if "{}" not in found or set(cells) != {NONE}:
            known.append([*labels, *cells])
    return table([*titles, *(title for title, _, _ in columns)], known, max(len(titles), 1))


def cell(row: Any, column: Column, files: Sequence[Any] = ()) -> str:
    """Return a number of a row, or mean and standard deviation of several."""
    _, place, form = column
    place = place.replace("{}", row.get("{}", "{}"))
    first, operator, second = place.partition(" over ")
    if operator and first == second:  # the reference itself
        return ""

    def read(path: str) -> List[Any]:
        return values(list(files), path[1:]) if path[:1] == "/" else values(row, path)

    found = calculate(place, read)
    if form[:1] == "[":
        value, *ends = (number(one, form[1:-1]) for one in (found or [[None]])[0])
        return f"{value} [{', '.join(ends)}]" if ends else value
    flat = [v for one in found for v in (one if isinstance(one, list) else [one]) if v is not None]
    return spread(flat, form)


def _line(line: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in line) + "|"
