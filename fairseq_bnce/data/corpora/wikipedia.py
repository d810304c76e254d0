"""The text of a Wikipedia dump, by the rules of Matt Mahoney's wikifil.pl (public domain).

Those rules keep the visible text, lower-case it, spell every digit out and leave words of the
letters a to z alone. Here, lines are broken after sentences in addition, which changes no word.
"""

from __future__ import annotations

import re
from typing import IO, Iterable, Iterator

from fairseq_bnce.data.corpora.sentences import split_sentences
from fairseq_bnce.errors import InputError

# wikifil.pl's, in its order; the first one is applied once, the others everywhere.
RULES = [
    (re.compile(pattern, flags), replacement, count)
    for pattern, flags, replacement, count in (
        ("<.*>", 0, "", 1),
        ("&amp;", 0, "&", 0),
        ("&lt;", 0, "<", 0),
        ("&gt;", 0, ">", 0),
        ("<ref[^<]*</ref>", 0, "", 0),
        ("<[^>]*>", 0, "", 0),
        (r"\[http:[^] ]*", 0, "[", 0),
        (r"\|thumb", re.I, "", 0),
        (r"\|left", re.I, "", 0),
        (r"\|right", re.I, "", 0),
        (r"\|[0-9]+px", re.I, "", 0),
        (r"\[\[image:[^\[\]]*\|", re.I, "", 0),
        (r"\[\[category:([^|\]]*)[^]]*\]\]", re.I, r"[[\1]]", 0),
        (r"\[\[[a-z\-]*:[^\]]*\]\]", 0, "", 0),
        (r"\[\[[^|\]]*\|", 0, "[[", 0),
        (r"\{\{[^}]*\}\}", 0, "", 0),
        (r"\{[^}]*\}", 0, "", 0),
        (r"[\[\]]", 0, "", 0),
        ("&[^;]*;", 0, " ", 0),
    )
]
DIGIT_NAMES = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
DIGITS = {str(digit): f" {name} " for digit, name in enumerate(DIGIT_NAMES)}
DIGIT = re.compile("[0-9]")
# Not str.lower(): other letters are word breaks, whatever their case.
LOWER = {ord(letter): ord(letter.lower()) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
WORDS = re.compile("[a-z]+")
REDIRECT = re.compile("#redirect", re.I | re.A)
BLOCK = 1 << 18
RECORD_LIMIT = 1 << 26  # characters; the longest article has a fraction of them


def records(dump: IO[bytes]) -> Iterator[str]:
    """The dump in pieces that end with ">": its tags, and the text up to the next one."""
    rest = ""
    # Latin-1 maps bytes to characters one to one: the rules are about bytes.
    for block in iter(lambda: dump.read(BLOCK), b""):
        *whole, rest = (rest + block.decode("latin-1")).split(">")
        yield from (record + ">" for record in whole)
        if len(rest) > RECORD_LIMIT:
            raise InputError(
                "an XML dump of Wikipedia is required, but there is no tag in a piece of "
                f"{len(rest):,} bytes"
            )
    if rest:
        yield rest


def article_texts(pieces: Iterable[str]) -> Iterator[str]:
    """What stands between <text> and </text>, without redirections."""
    inside = False
    for piece in pieces:
        if "<text " in piece:
            inside = True
        if REDIRECT.search(piece):
            inside = False
        if inside:
            yield piece
            inside = "</text>" not in piece


def without_markup(text: str) -> str:
    """What a reader of the page would see."""
    for pattern, replacement, count in RULES:
        text = pattern.sub(replacement, text, count=count)
    return text


def words(text: str) -> list[str]:
    """Lower-case words of a to z; digits are spelled out one by one."""
    text = DIGIT.sub(lambda found: DIGITS[found.group()], text)
    return WORDS.findall(text.translate(LOWER))


def dump_sentences(dump: IO[bytes]) -> Iterator[str]:
    """The sentences of a dump, words separated by spaces."""
    for text in article_texts(records(dump)):
        for line in without_markup(text).split("\n"):  # U+0085 is a byte of a letter here
            for sentence in split_sentences(line):
                found = words(sentence)
                if found:
                    yield " ".join(found)
