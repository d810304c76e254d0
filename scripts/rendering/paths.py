"""Numbers in JSON by their path: names and choices, separated by slashes.

``runs/label=bnce@0.07/train/curve/update=500/ppl`` goes into ``runs``, keeps the entries with the
label ``bnce@0.07``, and of their curves the points after 500 updates. A path may lead to several
values, as to those of several seeds. A number chooses an entry of a list by its place, ``a|b``
several names or places, and ``*`` any text of a choice. A list's choice is its texts with commas.

:func:`calculate` also takes a word before a path, ``mean``, ``sd``, ``count``, ``min`` or ``max``
of several values, and between two paths, or a path and a number,

- ``/`` and ``times``: the quotient and the product;
- ``over``, ``under``: by how many per cent the first is above or below the second;
- ``of``: how many per cent the first is of the second.
"""

import re
import statistics
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, Sequence

_OF_SEVERAL: Dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": statistics.stdev,
    "count": len,
    "min": min,
    "max": max,
}
_OF_TWO: Dict[str, Callable[[float, float], float]] = {
    "/": lambda one, other: one / other,
    "times": lambda one, other: one * other,
    "over": lambda one, other: 100 * (one / other - 1),
    "under": lambda one, other: 100 * (1 - one / other),
    "of": lambda one, other: 100 * one / other,
}
_OPERATOR = re.compile(rf" ({'|'.join(_OF_TWO)}) ")
_NUMBER = re.compile(r"[\d.e]+")


def values(content: Any, path: str) -> List[Any]:
    """Return all values that a path leads to, but for null."""
    found = [content]
    for part in path.split("/"):
        found = [value for one in found for value in _step(one, part) if value is not None]
    return found


def calculate(text: str, read: Callable[[str], List[Any]]) -> List[Any]:
    """Return the values of a path, or of what is calculated from paths; nothing if one is unknown.

    Args:
        read: returns the values of a path.
    """
    first, operator, second = (*_OPERATOR.split(text), "", "")[:3]
    found = _operand(first, read)
    if not operator:
        return found
    other = [float(second)] if _NUMBER.fullmatch(second) else _operand(second, read)
    if not (found and other):
        return []
    return [_OF_TWO[operator](statistics.fmean(found), statistics.fmean(other))]


def _operand(text: str, read: Callable[[str], List[Any]]) -> List[Any]:
    word, _, path = text.partition(" ")
    if word not in _OF_SEVERAL:
        return read(text)
    found = read(path)
    return [_OF_SEVERAL[word](found)] if found else []


def _step(value: Any, part: str) -> Iterable[Any]:
    if isinstance(value, list):
        if part.replace("|", "").isdigit():
            return [value[int(place)] for place in part.split("|") if int(place) < len(value)]
        return [found for one in value for found in _step(one, part)]
    if not isinstance(value, dict):
        return []
    name, equals, wanted = part.partition("=")
    if part in value or not equals:
        return [value[key] for key in part.split("|") if key in value]
    text = _text(value.get(name))
    return [value] if any(fnmatchcase(text, one) for one in wanted.split("|")) else []


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
