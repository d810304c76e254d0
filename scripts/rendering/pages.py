"""The places of a page that are written from files.

A place begins with ``<!-- table: NAME from FILE, FILE -->`` on a line of its own, FILE as a link of
the page would have it or a pattern of several (``ptb/**/*.json``), and ends with ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable, List, Mapping

Table = Callable[..., List[str]]
_PLACE = re.compile(
    r"^(?P<start><!-- table: (?P<name>\S+) from (?P<files>.+?) -->)\n(?P<text>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"^<!-- table: .*$", re.MULTILINE)


class PageError(Exception):
    """A place that can't be filled; the message names it."""


def rendered(page: Path, tables: Mapping[str, Table]) -> str:
    """The text of a page as it should be.

    Args:
        page: a file in Markdown.
        tables: what makes the lines of a table out of its files' contents, by its name.

    Raises:
        PageError: for a place without an end, or whose table or file is not there.
    """
    text = page.read_text(encoding="utf-8")
    if len(_START.findall(text)) != len(_PLACE.findall(text)):
        raise PageError(f"{page}: required '<!-- table: NAME from FILE -->' ... '<!-- end -->'")
    return _PLACE.sub(lambda place: _filled(place, page, tables), text)


def _filled(place: Any, page: Path, tables: Mapping[str, Table]) -> str:
    name = place["name"]
    if name not in tables:
        raise PageError(f"{page}: table: required one of {', '.join(tables)}, got {name}")
    files = [path for file in place["files"].split(",") for path in _paths(page, file.strip())]
    lines = "".join(f"{line}\n" for line in tables[name](*map(_content, files)))
    return f"{place['start']}\n{lines}<!-- end -->"


def _paths(page: Path, file: str) -> List[Path]:
    found = sorted(path for path in page.parent.glob(file) if path.is_file())
    if not found:
        raise PageError(f"{page}: required {file}, got no such file")
    return found


def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)
