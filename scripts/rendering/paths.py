"""Numbers in JSON by their path: names and choices, separated by slashes.

``runs/label=bnce@0.07/train/curve/update=500/ppl`` goes into ``runs``, keeps the entries with the
label ``bnce@0.07``, and of their curves the points after 500 updates. A path may lead to several
values, as to those of several seeds. A number chooses an entry of a list by its place.
"""

from __future__ import annotations

from typing import Any, Iterable, List


def values(content: Any, path: str) -> List[Any]:
    """Return all values that a path leads to.

    Raises:
        KeyError: for a path that leads nowhere.
    """
    found = [content]
    for part in path.split("/"):
        found = [value for one in found for value in _step(one, part)]
        if not found:
            raise KeyError(part)
    return found


def _step(value: Any, part: str) -> Iterable[Any]:
    if isinstance(value, list):
        if part.isdigit():
            return value[int(part) : int(part) + 1]
        return [found for one in value for found in _step(one, part)]
    if not isinstance(value, dict):
        return []
    name, equals, wanted = part.partition("=")
    if part in value:
        return [value[part]]
    return [value] if equals and name in value and str(value[name]) == wanted else []
