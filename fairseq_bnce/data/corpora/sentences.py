"""English text into sentences, by rules."""

from __future__ import annotations

import re
from typing import Iterator

ABBREVIATION = re.compile(
    "(?:mr|mrs|ms|messrs|dr|st|rev|hon|prof|gen|col|capt|lieut|lt|sergt|sgt|maj|esq|jr|sr|mme|mlle|"
    "vs|viz|etc|nos?|vols?|chap|pp|fig|cf|ch|mt|ft|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    "co|inc|ltd|eds?)",
    re.I,
)
# Marks, from the first on, closing quotes and brackets, a space, and what can begin a sentence.
BREAK = re.compile(r"""(?<![.!?])[.!?]+["')\]]*\s+(?=["'`(\[]*[A-Z0-9])""")
_LOOKED_AT = 19  # characters before a full stop
LAST_WORD = re.compile(r"([A-Za-z.]*)\.$")


def is_abbreviation(text: str) -> bool:
    """Whether the full stop at the end of some text belongs to its last word."""
    found = LAST_WORD.search(text)
    if not found:
        return False
    word = found.group(1)
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or "." in word.strip(".") or bool(ABBREVIATION.fullmatch(word))


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph."""
    start = 0
    for found in BREAK.finditer(text):
        place = found.start()
        before = text[max(start, place - _LOOKED_AT) : place + 1]
        if found.group().strip() == "." and is_abbreviation(before):
            continue
        yield text[start : found.end()].strip()
        start = found.end()
    rest = text[start:].strip()
    if rest:
        yield rest
