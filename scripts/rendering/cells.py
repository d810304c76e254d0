"""Numbers as the pages show them, and the lines of a table."""

from __future__ import annotations

import statistics
from typing import List, Optional, Sequence, Tuple

NONE = "–"
SOFTMAX = "cross_entropy"  # the criterion that others are compared with
Columns = Sequence[Tuple[str, str, str]]  # (title, measurement, format)


def number(value: Optional[float], form: str) -> str:
    """With a minus sign that is one; a dash for None."""
    return NONE if value is None else format(value, form).replace("-", "−")


def over(value: Optional[float], reference: Optional[float], form: str = ".2f") -> str:
    """By how many per cent a value lies above a reference."""
    return number(100 * (value / reference - 1), form) + " %" if value and reference else NONE


def ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    """None where one of them is not known."""
    return above / below if above is not None and below else None


def interval(numbers: Optional[Sequence[float]], form: str) -> str:
    """A value with the ends of its interval; a dash for None."""
    if numbers is None:
        return NONE
    value, low, high = (number(one, form) for one in numbers)
    return f"{value} [{low}, {high}]"


def spread(values: Sequence[float], form: str) -> str:
    """The mean, with the standard deviation of several; a dash for none."""
    if not values:
        return NONE
    mean = number(statistics.fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ± {number(statistics.stdev(values), form)}"


def table(titles: Sequence[str], lines: Sequence[Sequence[str]], text: int = 1) -> List[str]:
    """A table in Markdown, its first ``text`` columns on the left and numbers on the right."""
    aligned = ["---"] * text + ["---:"] * (len(titles) - text)
    return [_line(titles), f"|{'|'.join(aligned)}|", *map(_line, lines)]


def _line(cells: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"
