#!/usr/bin/env python3
"""Write the tables of README.md and docs/ from the committed JSON of their results.

    render_tables.py            # writes the pages that differ, and names them
    render_tables.py --check    # only tell pages that differ (exit status 1)
    render_tables.py --list     # the names that markers can have
    render_tables.py docs/ptb.md README.md

A table stands between two lines of its page, with the files that it is made of, as a link of the
page would name them (JSON, or with .jsonl JSON by lines):

    <!-- table: ptb-perplexity from ptb/comparison.json -->
    <!-- end -->
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import difflib
import sys
from pathlib import Path
from typing import List, Sequence

from experiments.command import HelpFormatter, start
from rendering.pages import PageError, rendered
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 with --check if a page differs, 2 for a place that can't be filled."""
    chosen = _parser().parse_args(arguments)
    if chosen.list:
        print("\n".join(TABLES))
        return 0
    pages = chosen.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    try:
        stale = [page for page in pages if _is_stale(page, write=not chosen.check)]
    except PageError as error:
        print(f"render_tables.py: error: {error}", file=sys.stderr)
        return 2
    return 1 if stale and chosen.check else 0


def _is_stale(page: Path, write: bool) -> bool:
    """Whether a page differs from what it should be; says where."""
    old, new = page.read_text(encoding="utf-8"), rendered(page, TABLES)
    if old == new:
        return False
    print("\n".join(_difference(page, old, new)))
    if write:
        page.write_text(new, encoding="utf-8")
    return True


def _difference(page: Path, old: str, new: str) -> List[str]:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), str(page), "from its files", lineterm="", n=0
    )
    return list(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    add("--check", action="store_true", help="write nothing, tell what differs")
    add("--list", action="store_true", help="print the names of the tables")
    return parser


if __name__ == "__main__":
    start(main)
