#!/usr/bin/env python3
"""Write a small English corpus that every Python installation already has.

The text is CPython's own language reference as ``help()`` shows it
(``pydoc_data.topics``): no download, 37,000 to 43,000 words of technical prose,
depending on the Python version.

Kept: paragraphs of prose, one sentence a line, topics in alphabetical order
with an empty line between paragraphs. Left out: code, grammar productions,
headings, signatures and tables (a word model learns nothing of use from them
here), and paragraphs that an earlier topic already had: many topics quote each
other, and a repeated paragraph in train and test would flatter the perplexity.
Markup is dropped: emphasis stars, list bullets, quotes around code words.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Iterator, Mapping, Sequence

PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
LIST_MARK = re.compile(r"^(?:[*-]|\d+\.|\[\d+\])\s+")
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([^\s*](?:[^*]*[^\s*])?)\1(?![\w*])")
CODE = re.compile(r"::=|>>>| = | # ")
QUOTES = re.compile(r"[\"“”]")
PLAIN_WORD = re.compile(r"[(\"'“‘]*[A-Za-z][A-Za-z'’-]*[\"'”’)]*[.,;:!?]*[\"'”’)]*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[(\"“]*[A-Z])")
MIN_WORDS = 4
MIN_PLAIN_SHARE = 0.7  # prose has about 0.9 plain words, code and grammar less than half


def is_prose(paragraph: str) -> bool:
    """Return whether a paragraph (white space already collapsed) reads as English sentences."""
    words = paragraph.split()
    if len(words) < MIN_WORDS or paragraph[-1] not in '.:!?)"”' or CODE.search(paragraph):
        return False
    plain = sum(PLAIN_WORD.fullmatch(word) is not None for word in words)
    return plain >= MIN_PLAIN_SHARE * len(words)


def paragraphs(topic: str) -> Iterator[str]:
    """Yield the prose paragraphs of one topic, each on one line, without list marks."""
    for block in PARAGRAPH_BREAK.split(topic):
        text = LIST_MARK.sub("", " ".join(block.split()))
        if is_prose(text):
            yield text


def sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of one paragraph, without markup."""
    for sentence in SENTENCE_END.split(paragraph):
        yield QUOTES.sub("", EMPHASIS.sub(r"\2", sentence))


def corpus_lines(topics: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the corpus; an empty line ends every paragraph."""
    seen = set()
    for name in sorted(topics):
        for paragraph in paragraphs(topics[name]):
            if paragraph not in seen:
                seen.add(paragraph)
                yield from sentences(paragraph)
                yield ""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, help="file to write (replaced if it exists)")
    output = parser.parse_args(arguments).output
    from pydoc_data.topics import topics  # some Linux distributions have it in another package

    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("".join(f"{line}\n" for line in corpus_lines(topics)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
