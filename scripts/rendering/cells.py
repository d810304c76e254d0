"""Numbers in JSON by their path, numbers as the pages show them, and tables in Markdown.

A path has names and choices, separated by slashes.

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

import json
import operator
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import yaml  # a dependency of omegaconf, which fairseq needs

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
NONE = "–"
SOFTMAX = "cross_entropy"  # the criterion that the others are compared with
# Title; name of the measurement, its path or what calculate takes; format. A format in
# brackets is that of a value with the ends of its interval, one before " %" that of per cents.
Column = Tuple[str, str, str]
Columns = Sequence[Column]
Line = Tuple[Sequence[str], Mapping[str, Any]]  # labels, and numbers by name
_OF_SEVERAL: Dict[str, Any] = {"mean": fmean, "sd": stdev, "count": len, "min": min, "max": max}
_OF_TWO: Dict[str, Callable[[float, float], float]] = {
    "/": operator.truediv,
    "times": operator.mul,
    "over": lambda one, other: 100 * (one / other - 1),
    "under": lambda one, other: 100 * (1 - one / other),
    "of": lambda one, other: 100 * one / other,
}
_OPERATOR = re.compile(rf" ({'|'.join(_OF_TWO)}) ")
_NUMBER = re.compile(r"[\d.e]+")


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
    return f"{number(fmean(known), form)} ± {number(stdev(known), form)}"


def table(titles: Sequence[str], lines: Iterable[Sequence[str]], text: int = 1) -> List[str]:
    """Return a table in Markdown; the first ``text`` columns are left-aligned."""
    aligned = ["---"] * text + ["---:"] * (len(titles) - text)
    return [_line(titles), f"|{'|'.join(aligned)}|", *map(_line, lines)]


def measured(
    titles: Sequence[str], columns: Columns, lines: Iterable[Line], files: Sequence[Any] = ()
) -> List[str]:
    """Return a table of measurements.

    Args:
        titles: of the label columns.
        columns: of the numbers; a path that begins with a slash begins at the files, and has the
            row's own ``names`` in the places of {0}, {1}.
        lines: one for each row.
    """
    known = []
    for labels, found in lines:
        cells = [cell(found, column, files) for column in columns]
        # Files need not have everything that tables.yaml names.
        if "names" not in found or set(cells) != {NONE}:
            known.append([*labels, *cells])
    return table([*titles, *(title for title, _, _ in columns)], known, max(len(titles), 1))


def cell(row: Any, column: Column, files: Sequence[Any] = ()) -> str:
    """Return a number of a row, or mean and standard deviation of several."""
    _, place, form = column
    place = place.format(*row.get("names", ()))
    first, has_two, second = place.partition(" over ")
    if has_two and first == second:  # the reference itself
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


# ---------------------------------------------------------------- files and paths


def located(folder: Path, place: str) -> List[Any]:
    """Return the values at FILE#PATH, or the contents of FILE; a pattern stands for all that match.

    Raises:
        FileNotFoundError: if no file does.
    """
    pattern, has_path, path = place.partition("#")
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"required {folder / pattern}, got no such file")
    contents = list(map(_content, files))
    return values(contents, path) if has_path else contents


@lru_cache(maxsize=None)
def _content(path: Path) -> Any:
    """Return what is in a file of JSON, or a list of the lines' values in one of JSON lines."""
    text = path.read_text(encoding="utf-8")
    return [*map(json.loads, text.splitlines())] if path.suffix == ".jsonl" else json.loads(text)


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
    first, name, second = (*_OPERATOR.split(text), "", "")[:3]
    found = _operand(first, read)
    if not name:
        return found
    other = [float(second)] if _NUMBER.fullmatch(second) else _operand(second, read)
    if not (found and other):
        return []
    return [_OF_TWO[name](fmean(found), fmean(other))]


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
