"""Numbers as the pages show them, and tables in Markdown."""

from __future__ import annotations

import statistics
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

NONE = "–"
SOFTMAX = "cross_entropy"  # the criterion that the others are compared with
Column = Tuple[str, str, str]  # (title, name of the measurement, format)
Columns = Sequence[Column]
SPEED: Column = ("words/s", "words_per_second", ",.0f")
PROCESSOR_SPEED: Column = ("words/processor s", "words_per_processor_second", ",.0f")
Line = Tuple[Sequence[str], Mapping[str, Any]]  # labels, and numbers by name


def number(value: Any, form: str) -> str:
    """Return a number with a typographic minus, a dash for None, and a text unchanged."""
    if value is None or isinstance(value, str):
        return NONE if value is None else value
    return format(value, form).replace("-", "−")


def over(value: Optional[float], reference: Optional[float], form: str = ".2f") -> str:
    """Return by how many per cent a value exceeds a reference."""
    return number(100 * (value / reference - 1), form) + " %" if value and reference else NONE


def ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    """Return the quotient, or None where a number is unknown."""
    return above / below if above is not None and below else None


def interval(numbers: Optional[Sequence[float]], form: str) -> str:
    """Return a value with the ends of its interval; a dash for None."""
    if numbers is None:
        return NONE
    value, low, high = (number(one, form) for one in numbers)
    return f"{value} [{low}, {high}]"


def difference(found: Mapping[str, Any], name: str) -> str:
    """Return a named difference of word error rates with its interval."""
    return interval(found["differences"].get(name), "+.2f")


def spread(values: Iterable[Optional[float]], form: str) -> str:
    """Return mean and standard deviation; one number if all values agree, a dash for no value."""
    known = [value for value in values if value is not None]
    if len(set(known)) < 2:
        return number(known[0] if known else None, form)
    return f"{number(statistics.fmean(known), form)} ± {number(statistics.stdev(known), form)}"


def table(titles: Sequence[str], lines: Iterable[Sequence[str]], text: int = 1) -> List[str]:
    """Return a table in Markdown; the first ``text`` columns are left-aligned."""
    aligned = ["---"] * text + ["---:"] * (len(titles) - text)
    return [_line(titles), f"|{'|'.join(aligned)}|", *map(_line, lines)]


def measured(titles: Sequence[str], columns: Columns, lines: Iterable[Line]) -> List[str]:
    """Return a table of measurements.

    Args:
        titles: of the label columns.
        columns: of the numbers.
        lines: one for each row.
    """
    rows = [[*labels, *cells(found, columns)] for labels, found in lines]
    return table([*titles, *(title for title, _, _ in columns)], rows, max(len(titles), 1))


def cells(found: Mapping[str, Any], columns: Columns) -> List[str]:
    """Return the numbers of one line. A list of values becomes mean and standard deviation."""
    values: Iterable[Any] = ((found.get(name), form) for _, name, form in columns)
    return [(spread if isinstance(one, list) else number)(one, form) for one, form in values]


def _line(line: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in line) + "|"
