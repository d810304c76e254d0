"""From lines of text to words."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Sequence

from fairseq_bnce.data.preparation.parallel import map_chunks
from fairseq_bnce.data.preparation.reading import total_bytes
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.reading import decoded
from fairseq_bnce.text.tokens import BOS, EOS, PAD, SPECIALS, UNK, words_of

ESCAPE = re.compile("&(?:apos|quot);")
PAGE = range(60, 81)  # characters of a line that was broken to fit a page
ENDED = re.compile(r"""[.!?\u2026]["'\u2019\u201d\u00bb)\]\s]*$""")


class TextOptions(NamedTuple):
    """How a line becomes words. ``language`` None: they are separated by spaces already."""

    language: str | None
    lowercase: bool
    keep_empty: bool


def sentences(words: list[str]) -> list[list[str]]:
    """The words without <s> and </s>; a line that has them in its middle is cut there.

    fairseq-preprocess ends every line with a </s> of its own, so a </s> that the
    text brings along marks the end of a line. <pad> has no meaning in text: <unk>.
    """
    if SPECIALS.isdisjoint(words):
        return [words] if words else []
    found: list[list[str]] = [[]]
    for word in words:
        if word in (BOS, EOS):
            found.append([])
        else:
            found[-1].append(UNK if word == PAD else word)
    return [sentence for sentence in found if sentence]


def count_looks(text: str, notes: Counter) -> None:
    """Count what :func:`fairseq_bnce.data.preparation.report.warnings` judges a whole text by."""
    text = text.strip()
    looks = {
        "escaped": ESCAPE.search(text),
        "of_a_page": len(text) in PAGE,
        "ended": ENDED.search(text),
    }
    notes.update(name for name, is_so in looks.items() if is_so)


def tokenize_chunk(options: TextOptions, lines: list[bytes]) -> tuple[str, Counter]:
    """The tokenised text of some lines, and counts of what was met in them."""
    notes: Counter = Counter(read=len(lines))
    written: list[str] = []
    for line in lines:
        text, mended = decoded(line)
        words = words_of(text, options.language, options.lowercase)
        found = sentences(words)
        notes.update(
            bad_utf8=int(mended),
            empty=int(not found),
            cut=max(0, len(found) - 1),
            pad=words.count(PAD),
            usable=len(found),
        )
        count_looks(text, notes)
        written += [" ".join(sentence) + "\n" for sentence in found]
        if options.keep_empty and not found:
            written.append("\n")
    return "".join(written), notes


def tokenize_files(
    names: Sequence[str], target: Path, options: TextOptions, *, workers: int, label: str
) -> Counter:
    """Write the tokenised lines of the files into ``target``; return the counts."""
    notes: Counter = Counter()
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for text, counts in map_chunks(
            tokenize_chunk, options, names, workers=workers, label=f"tokenise {label}"
        ):
            out.write(text)
            notes.update(counts)
    notes["empty_files"] = sum(total_bytes([name]) == 0 for name in names)
    if not notes["usable"]:
        raise InputError(
            f"{label}: at least one line with a word is required, but {' '.join(names)} "
            f"has {notes['read']} line(s), none with a word"
        )
    return notes
