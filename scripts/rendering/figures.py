"""Figures in sentences, each with a mark that names its place in a JSON file.

A mark is a comment right after the figure::

    It was at 102.5<!-- = peers/mixed-novels.json#mixtures/seed=1/network -->.

The figure keeps its decimals. The mean counts where the path (``paths``) leads to several values,
in one file or in all that match a pattern (``papers/gm2018/*.json``).
Before the file may stand

- ``sd``, ``min`` or ``max``: of the several values, instead of their mean;

and between two places, the second of which needs no file if it is in the same,

- ``/``: how many times the second is in the first;
- ``over``, ``under``: by how many per cent the first is above or below the second;
- ``of``: how many per cent the first is of the second.

A number may stand instead of the second place: ``seconds / 0.001`` are milliseconds.

``~`` instead of ``=`` rounds to the zeros at the figure's end, as in 11,000.
"""

from __future__ import annotations

import re
import statistics
from typing import Any, Callable, Dict, List, Match, Sequence

from .cells import number
from .paths import values

MARK = re.compile(r"(?P<figure>[−+]?\d[\d,.]*)?<!-- (?P<kind>[=~]) (?P<place>.+?) -->")
_OF_TWO: Dict[str, Callable[[float, float], float]] = {
    "/": lambda one, other: one / other,
    "over": lambda one, other: 100 * (one / other - 1),
    "under": lambda one, other: 100 * (1 - one / other),
    "of": lambda one, other: 100 * one / other,
}
_OF_SEVERAL: Dict[str, Callable[[Sequence[float]], float]] = {
    "sd": statistics.stdev,
    "min": min,
    "max": max,
}
_NUMBER = re.compile(r"[\d.e]+")
_OPERATOR = re.compile(rf" ({'|'.join(map(re.escape, _OF_TWO))}) ")


def written(mark: Match[str], contents: Callable[[str], List[Any]]) -> str:
    """Return a figure as its file has it, with its mark.

    Args:
        mark: a match of ``MARK``.
        contents: returns what is in the file of a name, or in all files of a pattern.

    Raises:
        ValueError: for a mark without a figure, or whose place can't be read.
    """
    if not mark["figure"]:
        raise ValueError("required a figure right before the mark")
    if "--" in mark["place"]:
        raise ValueError("required a mark without --, which ends a comment")
    first, operator, second = (*_OPERATOR.split(mark["place"]), "", "")[:3]
    try:
        value = _value(first, "", contents)
        if operator:
            value = _OF_TWO[operator](value, _value(second, first, contents))
    except (KeyError, TypeError, statistics.StatisticsError) as error:
        raise ValueError(f"required a path to numbers, got {error}") from None
    return _like(mark["figure"], value, mark["kind"]) + mark[0][len(mark["figure"]) :]


def _value(place: str, before: str, contents: Callable[[str], List[Any]]) -> float:
    if _NUMBER.fullmatch(place):
        return float(place)
    word, _, rest = place.partition(" ")
    of_several = _OF_SEVERAL.get(word, statistics.fmean)
    name, _, path = (rest if word in _OF_SEVERAL else place).partition("#")
    file = name or before.partition("#")[0].rpartition(" ")[2]
    return of_several(values(contents(file), path))


def _like(figure: str, value: float, kind: str) -> str:
    """Return a value with the decimals and the sign of a figure."""
    digits = figure.replace(",", "")
    decimals = len(digits.partition(".")[2])
    if kind == "~":
        value = round(value, decimals or len(digits.rstrip("0")) - len(digits))
    return number(value, f"{'+' * (figure[0] == '+')},.{decimals}f")
