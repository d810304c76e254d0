"""The report on prepared text: a file, and what the command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

from fairseq_bnce.data.result_folder import REPORT
from fairseq_bnce.text.tokens import BOS, EOS, PAD, UNK
from fairseq_bnce.text.writing import say

PAGE = range(60, 81)  # characters of a line that was wrapped to fit a page
# The shares of lines above or below which a text looks escaped, wrapped, or not cut at sentences.
ESCAPED, WRAPPED, ENDED = 0.01, 0.5, 0.35
NOTES = {
    "empty": "line(s) without a word",
    "empty_files": "empty input file(s)",
    "bad_utf8": "line(s) with bytes that are not UTF-8, read as U+FFFD",
    "cut": f"line break(s) made at a {BOS} or {EOS} inside a line",
    "pad": f"{PAD} in the text, written as {UNK}",
}


class SplitStats(NamedTuple):
    """Counts of a split as the model sees it; tokens are words and one </s> a line."""

    lines: int
    types: int
    tokens: int
    unk: int


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write report.json. Bytes of a file's name that are not UTF-8 are escaped."""
    text = json.dumps(report, indent=1, default=str, ensure_ascii=False)
    (folder / REPORT).write_text(text + "\n", "utf-8", errors="backslashreplace")


def print_report(report: Mapping[str, Any], out: Path) -> None:
    """Print the counts of a result, notes and warnings about its text, and its folders."""
    stats = {split: SplitStats(**found) for split, found in report["splits"].items()}
    say(_table(stats))
    say(report["vocabulary"])
    for note in _notes(report):
        say(f"note: {note}")
    for warning in _warnings(report["read"]):
        say(f"warning: {warning}")
    say(f"text: {out / 'text'}")
    if not report["settings"]["text_only"]:
        say(f"binarised data: {out / 'bin'}")


def _table(stats: Mapping[str, SplitStats]) -> str:
    rows: list[tuple[str, ...]] = [("split", "lines", "types", "tokens", UNK, "rate")]
    for split, found in stats.items():
        counts = tuple(f"{value:,}" for value in found)
        rows.append((split, *counts, f"{found.unk / found.tokens:.2%}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])])
        for row in rows
    )


def _notes(report: Mapping[str, Any]) -> Iterator[str]:
    read, splits = report["read"], report["splits"]
    kept = ", kept" if report["settings"]["keep_empty_lines"] else ", left out"
    yield f"{read['read']:,} line(s) read"
    for name, text in NOTES.items():
        if read.get(name):
            yield f"{read[name]:,} {text}{kept if name == 'empty' else ''}"
    unseen = [split for split, found in splits.items() if found["unk"] and split != "train"]
    if unseen and splits.get("train", {"unk": 1})["unk"] == 0:
        yield (
            f"train has no {UNK}, but {' and '.join(unseen)} have: a model cannot learn to predict "
            "it (cut the vocabulary, for instance with --min-count 2)"
        )


def _warnings(read: Mapping[str, int]) -> Iterator[str]:
    usable = read["usable"]
    if read.get("escaped", 0) > ESCAPED * usable:
        yield (
            f"{read['escaped']:,} line(s) have Moses' escapes (&apos; or &quot;): a model of such "
            "words does not know those of plain text; unescape the text first"
        )
    if read.get("of_a_page", 0) > WRAPPED * usable and read.get("ended", 0) < ENDED * usable:
        yield (
            f"{read['of_a_page']:,} of {usable:,} line(s) have {PAGE[0]} to {PAGE[-1]} characters, "
            f"and only {read.get('ended', 0):,} end a sentence: the text looks broken to fit a "
            "page, and each line becomes a sentence; join the lines of a paragraph first"
        )
