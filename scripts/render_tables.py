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

A figure in a sentence has its mark right after it:

    It was at 102.5<!-- = peers/mixed-novels.json#mixtures/seed=1/network -->.

The figure keeps its decimals. Behind the file stands what rendering/cells.py describes; a second
path needs no file if it is in the same. The mean counts where there are several values, in one file
or in all that match a pattern. ~ instead of = rounds to the zeros at the figure's end, as in
11,000.
"""

import argparse
import difflib
import re
import statistics
from pathlib import Path
from typing import Any, List, Match, Sequence

import environment  # noqa: F401
from experiments.command import HelpFormatter, UsageError, start
from rendering.cells import calculate, located, number
from rendering.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
_PLACE = re.compile(
    r"^(?P<start><!-- table: (?P<name>\S+) from (?P<files>.+?) -->)\n(?P<text>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"^<!-- table: .*$", re.MULTILINE)
_MARK = re.compile(r"(?P<figure>[−+]?\d[\d,.]*)?<!-- (?P<kind>[=~]) (?P<place>.+?) -->")


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a page differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    add("--check", action="store_true", help="write nothing, show what differs")
    chosen = parser.parse_args(arguments)
    pages = chosen.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    is_stale = False
    for page in pages:
        old, new = page.read_text(encoding="utf-8"), rendered(page)
        if old != new:
            is_stale = True
            both = old.splitlines(), new.splitlines(), str(page), "from its files"
            print("\n".join(difflib.unified_diff(*both, lineterm="", n=0)))
            if not chosen.check:
                page.write_text(new, encoding="utf-8")
    return int(is_stale and chosen.check)


def rendered(page: Path) -> str:
    """Return the text of a page with its tables and figures made from their files.

    Args:
        page: a file in Markdown.

    Raises:
        UsageError: for a marker that is incomplete, names no known table, or is of a figure for
            which there is no number.
        FileNotFoundError: for a file that is missing.
    """
    text = page.read_text(encoding="utf-8")
    if len(_START.findall(text)) != len(_PLACE.findall(text)):
        raise UsageError(f"{page}: required '<!-- table: NAME from FILE -->' ... '<!-- end -->'")
    text = _PLACE.sub(lambda place: _table(place, page), text)
    return _MARK.sub(lambda mark: _figure(mark, page), text)


def _table(place: Match[str], page: Path) -> str:
    name = place["name"]
    if name not in TABLES:
        raise UsageError(f"{page}: table: required one of {', '.join(TABLES)}, got {name}")
    files = [one for file in place["files"].split(", ") for one in located(page.parent, file)]
    lines = "".join(f"{line}\n" for line in TABLES[name](*files))
    return f"{place['start']}\n{lines}<!-- end -->"


def _figure(mark: Match[str], page: Path) -> str:
    figure, file = mark["figure"], ""
    # GitHub shows a comment with -- in it.
    if not figure or "--" in mark["place"]:
        raise UsageError(f"{page}: required a figure and a mark without --, got {mark[0]}")

    def read(place: str) -> List[Any]:
        nonlocal file
        name, hash_sign, path = place.partition("#")
        file = name or file
        return located(page.parent, f"{file}#{path}") if hash_sign else []

    try:
        value = statistics.fmean(calculate(mark["place"], read))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{page}: {mark[0]}: required a path to numbers, got {error}") from None
    digits = figure.replace(",", "")
    decimals = len(digits.partition(".")[2])
    if mark["kind"] == "~":
        value = round(value, decimals or len(digits.rstrip("0")) - len(digits))
    sign = "+" * figure.startswith("+")
    return number(value, f"{sign},.{decimals}f") + mark[0][len(figure) :]


if __name__ == "__main__":
    start(main)
