#!/usr/bin/env python3
"""Write the tables of README.md and docs/ from the committed JSON results.

    render_tables.py            # rewrite the pages that differ
    render_tables.py --check    # only show differences (exit status 1 if any)
    render_tables.py docs/results/ptb.md README.md

A table stands between two markers of its page. The first marker names the table and its files,
relative to the page (JSON, or .jsonl with one JSON value a line):

    <!-- table: ptb-perplexity from ptb/comparison.json -->
    <!-- end -->
"""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Sequence

import environment  # noqa: F401
from experiments.command import HelpFormatter, start
from rendering.pages import rendered
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a page differs."""
    chosen = _parser().parse_args(arguments)
    pages = chosen.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = [page for page in pages if _is_stale(page, write=not chosen.check)]
    return 1 if stale and chosen.check else 0


def _is_stale(page: Path, write: bool) -> bool:
    """Return whether a page differs from its files, and print the difference."""
    old, new = page.read_text(encoding="utf-8"), rendered(page, TABLES)
    if old == new:
        return False
    both = old.splitlines(), new.splitlines()
    print("\n".join(difflib.unified_diff(*both, str(page), "from its files", lineterm="", n=0)))
    if write:
        page.write_text(new, encoding="utf-8")
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    add("--check", action="store_true", help="write nothing, show what differs")
    return parser


if __name__ == "__main__":
    start(main)
