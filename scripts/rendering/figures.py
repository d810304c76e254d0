"""Figures in sentences, each with a mark that names its place in a JSON file.

A mark is a comment right after the figure::

    It was at 102.5<!-- = peers/mixed-novels.json#mixtures/seed=1/network -->.

The figure keeps its decimals. Behind the file stands a path, or what ``paths.calculate`` takes; a
second path needs no file if it is in the same. The mean counts where there are several values, in
one file or in all that match a pattern (``papers/gm2018/*.json``). ``~`` instead of ``=`` rounds to
the zeros at the figure's end, as in 11,000.
"""

from __future__ import annotations

import re
import statistics
from typing import Any, Callable, List, Match

from .cells import number
from .paths import calculate, values

MARK = re.compile(r"(?P<figure>[−+]?\d[\d,.]*)?<!-- (?P<kind>[=~]) (?P<place>.+?) -->")


def written(mark: Match[str], contents: Callable[[str], List[Any]]) -> str:
    """Return a figure as its file has it, with its mark.

    Args:
        mark: a match of ``MARK``.
        contents: returns what is in the file of a name, or in all files of a pattern.

    Raises:
        ValueError: for a mark without a figure, or whose place leads to no number.
    """
    figure, file = mark["figure"], ""
    if not figure:
        raise ValueError("required a figure right before the mark")
    if "--" in mark["place"]:
        raise ValueError("required a mark without --, which ends a comment")

    def read(place: str) -> List[Any]:
        nonlocal file
        name, hash_sign, path = place.partition("#")
        file = name or file
        return values(contents(file), path) if hash_sign else []

    try:
        value = statistics.fmean(calculate(mark["place"], read))
    except (TypeError, statistics.StatisticsError) as error:
        raise ValueError(f"required a path to numbers, got {error}") from None
    digits = figure.replace(",", "")
    decimals = len(digits.partition(".")[2])
    if mark["kind"] == "~":
        value = round(value, decimals or len(digits.rstrip("0")) - len(digits))
    sign = "+" * figure.startswith("+")
    return number(value, f"{sign},.{decimals}f") + mark[0][len(figure) :]
