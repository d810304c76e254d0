"""Clean the text of corpora: sentences, the novels of Project Gutenberg, and Wikipedia's dump."""

from __future__ import annotations

import re
from typing import IO, Iterator

from fairseq_bnce.text.tokens import novel_words

# ---------------------------------------------------------------- sentences

ABBREVIATION = re.compile(
    "(?:mr|mrs|ms|messrs|dr|st|rev|hon|prof|gen|col|capt|lieut|lt|sergt|sgt|maj|esq|jr|sr|mme|mlle|"
    "vs|viz|etc|nos?|vols?|chap|pp|fig|cf|ch|mt|ft|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    "co|inc|ltd|eds?)",
    re.I,
)
# All marks, closing quotes and brackets, a space, and what can begin a sentence.
BREAK = re.compile(r"""(?<![.!?])[.!?]+["')\]]*\s+(?=["'`(\[]*[A-Z0-9])""")
ABBREVIATION_LENGTH = 19  # characters before a full stop that are searched
LAST_WORD = re.compile(r"([A-Za-z.]*)\.$")


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph."""
    start = 0
    for found in BREAK.finditer(text):
        place = found.start()
        before = text[max(start, place - ABBREVIATION_LENGTH) : place + 1]
        if not (found.group().strip() == "." and is_abbreviation(before)):
            yield text[start : found.end()].strip()
            start = found.end()
    rest = text[start:].strip()
    if rest:
        yield rest


def is_abbreviation(text: str) -> bool:
    """Return whether the full stop at the end of a text belongs to its last word."""
    found = LAST_WORD.search(text)
    word = found.group(1) if found else ""
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or "." in word.strip(".") or bool(ABBREVIATION.fullmatch(word))


# ---------------------------------------------------------------- novels

HEADER_ENDS = (
    re.compile(r"end\W{0,3}the small print", re.I),  # the editions of the nineties
    re.compile(r"^\W*start of (?:the|this) project gutenberg", re.I),  # later ones
)
FOOTER = re.compile(
    r"^\W*(?:this is |you have reached )?(?:the )?end\s*(?:of|if)?\s*(?:the|this|a)?\s*"
    r"(?:wiretap/)?project gutenberg",
    re.I,
)
# Many novels end in their title alone, or have "End of" on a line of its own.
BARE_FOOTER = re.compile(r"^\W*(?:the )?project gutenberg", re.I)
BARE_FOOTER_LINES = 20
END_OF = re.compile(r"^\W*(?:the )?end(?: of(?: the)?)?\W*$|^\W*of\W*$", re.I)


def novel_sentences(stream: IO[bytes]) -> Iterator[str]:
    """Yield the sentences of a novel, without header and footer, as Penn-style lower-case words."""
    lines = decode(stream.read()).splitlines()
    lines = lines[body_start(lines) :]
    # Underscores mark italics.
    body = "\n".join(line.strip().replace("_", " ") for line in lines[: body_end(lines)])
    body = re.sub(r"(?<=[a-z]-)\n(?=[a-z])", "", body)  # a hyphen at the end of a line
    for paragraph in re.split(r"\n\n+", body):
        yield from map(novel_words, split_sentences(" ".join(paragraph.split())))


def decode(content: bytes) -> str:
    """Decode UTF-8, or the code page of DOS machines, on which many of the novels were typed."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp437")


def body_start(lines: list[str]) -> int:
    """Return the number of the line behind the header, 0 without a header."""
    ends = (n + 1 for end in HEADER_ENDS for n, line in enumerate(lines) if end.search(line))
    return next(ends, 0)


def body_end(lines: list[str]) -> int:
    """Return the number of the line at which the footer begins."""
    numbers = range(len(lines) // 2, len(lines))
    end = next((number for number in numbers if FOOTER.search(lines[number])), len(lines))
    last = range(max(0, end - BARE_FOOTER_LINES), end)
    end = next((number for number in last if BARE_FOOTER.search(lines[number])), end)
    while end and (not lines[end - 1].strip("\x1a\t ") or END_OF.search(lines[end - 1])):
        end -= 1
    return end


# ---------------------------------------------------------------- Wikipedia
# By the rules of Matt Mahoney's wikifil.pl (public domain), which keep the visible text, lower-case
# it, spell every digit out and keep only words of a to z. Here, lines also end after sentences.

RULES = {
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "<ref[^<]*</ref>": "",
    "<[^>]*>": "",
    r"\[http:[^] ]*": "[",
    r"(?i)\|thumb": "",
    r"(?i)\|left": "",
    r"(?i)\|right": "",
    r"(?i)\|[0-9]+px": "",
    r"(?i)\[\[image:[^\[\]]*\|": "",
    r"(?i)\[\[category:([^|\]]*)[^]]*\]\]": r"[[\1]]",
    r"\[\[[a-z\-]*:[^\]]*\]\]": "",
    r"\[\[[^|\]]*\|": "[[",
    r"\{\{[^}]*\}\}": "",
    r"\{[^}]*\}": "",
    r"[\[\]]": "",
    "&[^;]*;": " ",
}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BLOCK = 1 << 18


def dump_sentences(dump: IO[bytes]) -> Iterator[str]:
    """Yield the sentences of a dump, their words separated by spaces."""
    for text in article_texts(dump):
        for line in without_markup(text).split("\n"):  # U+0085 is a byte of a letter here
            yield from filter(None, map(words, split_sentences(line)))


def article_texts(dump: IO[bytes]) -> Iterator[str]:
    """Yield the pieces between <text> and </text>, without redirections."""
    inside = False
    for piece in pieces(dump):
        is_page = not re.search("#redirect", piece, re.I | re.A)
        inside = is_page and (inside or "<text " in piece)
        if inside:
            yield piece
            inside = "</text>" not in piece


def pieces(dump: IO[bytes]) -> Iterator[str]:
    """Cut the dump behind each ">": a piece is a tag, with the text in front of it."""
    rest = ""
    # Latin-1 maps bytes to characters one to one: the rules are about bytes.
    for block in iter(lambda: dump.read(BLOCK), b""):
        *whole, rest = (rest + block.decode("latin-1")).split(">")
        yield from (piece + ">" for piece in whole)
    if rest:
        yield rest


def without_markup(text: str) -> str:
    """Return what a reader of the page sees."""
    text = re.sub("<.*>", "", text, count=1)
    for pattern, replacement in RULES.items():
        text = re.sub(pattern, replacement, text)
    return text


def words(text: str) -> str:
    """Return the lower-case words of a to z, with digits spelled out one by one."""
    text = re.sub("[0-9]", lambda digit: f" {DIGITS[int(digit.group())]} ", text)
    return " ".join(re.findall("[A-Za-z]+", text)).lower()
