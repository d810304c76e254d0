"""Fill the tables of a page from files.

A table stands between the lines ``<!-- table: NAME from FILE, FILE -->`` and ``<!-- end -->``. FILE
is relative to the page; a pattern (``ptb/**/*.json``) stands for several files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable, List, Mapping

from experiments.command import UsageError

Table = Callable[..., List[str]]
_PLACE = re.compile(
    r"^(?P<start><!-- table: (?P<name>\S+) from (?P<files>.+?) -->)\n(?P<text>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"^<!-- table: .*$", re.MULTILINE)


def rendered(page: Path, tables: Mapping[str, Table]) -> str:
    """Return the text of a page with all its tables made from their files.

    Args:
        page: a file in Markdown.
        tables: for each name, a function from the contents of the files to the lines of the table.

    Raises:
        UsageError: for a marker that is incomplete, or names no known table or file.
    """
    text = page.read_text(encoding="utf-8")
    if len(_START.findall(text)) != len(_PLACE.findall(text)):
        raise UsageError(f"{page}: required '<!-- table: NAME from FILE -->' ... '<!-- end -->'")
    return _PLACE.sub(lambda place: _filled(place, page, tables), text)


def _filled(place: Any, page: Path, tables: Mapping[str, Table]) -> str:
    name = place["name"]
    if name not in tables:
        raise UsageError(f"{page}: table: required one of {', '.join(tables)}, got {name}")
    files = [path for file in place["files"].split(",") for path in _paths(page, file.strip())]
    lines = "".join(f"{line}\n" for line in tables[name](*map(_content, files)))
    return f"{place['start']}\n{lines}<!-- end -->"


def _paths(page: Path, file: str) -> List[Path]:
    found = sorted(page.parent.glob(file))
    if not found:
        raise UsageError(f"{page}: required {file}, got no such file")
    return found


def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)
