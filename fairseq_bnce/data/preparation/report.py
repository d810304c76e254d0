"""What was made, in words and a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Mapping

from fairseq_bnce.data.preparation.binarising import SplitStats
from fairseq_bnce.data.preparation.words import PAGE
from fairseq_bnce.text.tokens import BOS, EOS, PAD, UNK
from fairseq_bnce.text.writing import say

ESCAPED, WRAPPED, ENDED = 0.01, 0.5, 0.35  # shares of lines
NOTES = {
    "empty": "line(s) without a word",
    "empty_files": "empty input file(s)",
    "bad_utf8": "line(s) with bytes that are not UTF-8, read as U+FFFD",
    "cut": f"line break(s) made at a {BOS} or {EOS} inside a line",
    "pad": f"{PAD} in the text, written as {UNK}",
}


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """report.json; what is no UTF-8 in a file's name is escaped, as JSON has it."""
    text = json.dumps(report, indent=1, default=str, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", "utf-8", errors="backslashreplace")


def table(stats: Mapping[str, SplitStats]) -> str:
    """The counts of every split, in columns."""
    rows: list[tuple[str, ...]] = [("split", "lines", "types", "tokens", UNK, "rate")]
    for split, found in stats.items():
        counts = tuple(f"{value:,}" for value in found)
        rows.append((split, *counts, f"{found.unk / found.tokens:.2%}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])])
        for row in rows
    )


def remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """What the reader should know about the text, one line each."""
    read = report["read"]
    kept = ", kept" if report["settings"]["keep_empty_lines"] else ", left out"
    yield f"{read['read']:,} line(s) read"
    for name, text in NOTES.items():
        if read.get(name):
            yield f"{read[name]:,} {text}{kept if name == 'empty' else ''}"
    unseen = [s for s, found in report["splits"].items() if found["unk"] and s != "train"]
    if unseen and report["splits"].get("train", {"unk": 1})["unk"] == 0:
        yield (
            f"train has no {UNK}, but {' and '.join(unseen)} have: a model cannot learn to predict "
            "it (cut the vocabulary, for instance with --min-count 2)"
        )


def warnings(read: Mapping[str, int]) -> Iterator[str]:
    """What looks wrong with the text, one line each."""
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


def print_report(report: Mapping[str, Any], out: Path) -> None:
    """Tell the user what was made and where it is."""
    stats = {split: SplitStats(**found) for split, found in report["splits"].items()}
    say(table(stats))
    say(report["vocabulary"])
    for remark in remarks(report):
        say(f"note: {remark}")
    for warning in warnings(report["read"]):
        say(f"warning: {warning}")
    say(f"text: {out / 'text'}")
    if not report["settings"]["text_only"]:
        say(f"binarised data: {out / 'bin'}")
