#!/usr/bin/env python3
"""Write the tables and marked figures of README.md and docs/ from the committed JSON results.

    render_tables.py            # rewrite the pages that differ
    render_tables.py --check    # only show differences (exit status 1 if any)
    render_tables.py docs/results/ptb.md README.md

A table stands between two markers of its page. The first marker names the table and its files,
relative to the page (JSON, or .jsonl with one JSON value a line). Commas separate several files. A
pattern such as ptb/**/*.json stands for all files that match:

    <!-- table: ptb-perplexity from ptb/comparison.json -->
    <!-- end -->

A figure in a sentence has its mark right after it (all of rendering/figures.py):

    The GRU was at 102.5<!-- = peers/novels.json#runs/valid_ppl -->.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, List, Match, Sequence

import environment  # noqa: F401
from experiments.command import HelpFormatter, UsageError, start
from rendering import figures
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
_PLACE = re.compile(
    r"^(?P<start><!-- table: (?P<name>\S+) from (?P<files>.+?) -->)\n(?P<text>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"^<!-- table: .*$", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a page differs."""
    chosen = _parser().parse_args(arguments)
    pages = chosen.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = [page for page in pages if _is_stale(page, write=not chosen.check)]
    return 1 if stale and chosen.check else 0


def _is_stale(page: Path, write: bool) -> bool:
    """Return whether a page differs from its files, and print the difference."""
    old, new = page.read_text(encoding="utf-8"), rendered(page)
    if old == new:
        return False
    both = old.splitlines(), new.splitlines()
    print("\n".join(difflib.unified_diff(*both, str(page), "from its files", lineterm="", n=0)))
    if write:
        page.write_text(new, encoding="utf-8")
    return True


def rendered(page: Path) -> str:
    """Return the text of a page with its tables and figures made from their files.

    Args:
        page: a file in Markdown.

    Raises:
        UsageError: for a marker that is incomplete, or names no known table or file.
    """
    text = page.read_text(encoding="utf-8")
    if len(_START.findall(text)) != len(_PLACE.findall(text)):
        raise UsageError(f"{page}: required '<!-- table: NAME from FILE -->' ... '<!-- end -->'")
    text = _PLACE.sub(lambda place: _filled(place, page), text)
    return figures.MARK.sub(lambda mark: _figure(mark, page), text)


def _figure(mark: Match[str], page: Path) -> str:
    try:
        return figures.written(mark, lambda file: [_content(path) for path in _paths(page, file)])
    except ValueError as error:
        raise UsageError(f"{page}: {mark[0]}: {error}") from None


def _filled(place: Match[str], page: Path) -> str:
    name = place["name"]
    if name not in TABLES:
        raise UsageError(f"{page}: table: required one of {', '.join(TABLES)}, got {name}")
    files = [path for file in place["files"].split(",") for path in _paths(page, file.strip())]
    lines = "".join(f"{line}\n" for line in TABLES[name](*map(_content, files)))
    return f"{place['start']}\n{lines}<!-- end -->"


def _paths(page: Path, file: str) -> List[Path]:
    found = sorted(page.parent.glob(file))
    if not found:
        raise UsageError(f"{page}: required {file}, got no such file")
    return found


@lru_cache(maxsize=None)
def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    add("--check", action="store_true", help="write nothing, show what differs")
    return parser


if __name__ == "__main__":
    start(main)
