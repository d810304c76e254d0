"""Clean the text of corpora: sentences, the novels of Project Gutenberg, and Wikipedia's dump."""

from __future__ import annotations

import re
from typing import IO, Iterable, Iterator

from fairseq_bnce.text.penn import novel_words

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


def is_abbreviation(text: str) -> bool:
    """Return whether the full stop at the end of a text belongs to its last word."""
    found = LAST_WORD.search(text)
    if not found:
        return False
    word = found.group(1)
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or "." in word.strip(".") or bool(ABBREVIATION.fullmatch(word))


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph."""
    start = 0
    for found in BREAK.finditer(text):
        place = found.start()
        before = text[max(start, place - ABBREVIATION_LENGTH) : place + 1]
        if found.group().strip() == "." and is_abbreviation(before):
            continue
        yield text[start : found.end()].strip()
        start = found.end()
    rest = text[start:].strip()
    if rest:
        yield rest


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


def decode(content: bytes) -> str:
    """Decode UTF-8, or the code page of DOS machines, on which many of the novels were typed."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp437")


def body_start(lines: list[str]) -> int:
    """Return the number of the line behind the header, 0 without a header."""
    for pattern in HEADER_ENDS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return number + 1
    return 0


def body_end(lines: list[str]) -> int:
    """Return the number of the line at which the footer begins."""
    end = next(
        (i for i in range(len(lines) // 2, len(lines)) if FOOTER.search(lines[i])), len(lines)
    )
    for number in range(max(0, end - BARE_FOOTER_LINES), end):
        if BARE_FOOTER.search(lines[number]):
            end = number
            break
    while end and (not lines[end - 1].strip("\x1a\t ") or END_OF.search(lines[end - 1])):
        end -= 1
    return end


def paragraphs(lines: list[str]) -> Iterator[str]:
    """Join lines up to the next empty line; drop underscores, which mark italics."""
    joined = "\n".join(line.strip().replace("_", " ") for line in lines)
    joined = re.sub(r"(?<=[a-z]-)\n(?=[a-z])", "", joined)  # a hyphen at the end of a line
    for paragraph in re.split(r"\n\n+", joined):
        if paragraph:
            yield " ".join(paragraph.split())


def novel_sentences(stream: IO[bytes]) -> Iterator[str]:
    """Yield the sentences of a novel, without header and footer, as Penn-style lower-case words."""
    lines = decode(stream.read()).splitlines()
    lines = lines[body_start(lines) :]
    for paragraph in paragraphs(lines[: body_end(lines)]):
        for sentence in split_sentences(paragraph):
            yield novel_words(sentence)


# ---------------------------------------------------------------- Wikipedia
# By the rules of Matt Mahoney's wikifil.pl (public domain), which keep the visible text, lower-case
# it, spell every digit out and keep only words of a to z. Here, lines also end after sentences.

TAGS = re.compile("<.*>")
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("&amp;", "&"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("<ref[^<]*</ref>", ""),
        ("<[^>]*>", ""),
        (r"\[http:[^] ]*", "["),
        (r"(?i)\|thumb", ""),
        (r"(?i)\|left", ""),
        (r"(?i)\|right", ""),
        (r"(?i)\|[0-9]+px", ""),
        (r"(?i)\[\[image:[^\[\]]*\|", ""),
        (r"(?i)\[\[category:([^|\]]*)[^]]*\]\]", r"[[\1]]"),
        (r"\[\[[a-z\-]*:[^\]]*\]\]", ""),
        (r"\[\[[^|\]]*\|", "[["),
        (r"\{\{[^}]*\}\}", ""),
        (r"\{[^}]*\}", ""),
        (r"[\[\]]", ""),
        ("&[^;]*;", " "),
    )
]
DIGIT_NAMES = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
DIGITS = {str(digit): f" {name} " for digit, name in enumerate(DIGIT_NAMES)}
DIGIT = re.compile("[0-9]")
# Unlike str.lower(), this keeps other letters, which end words.
LOWER = {ord(letter): ord(letter.lower()) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
WORDS = re.compile("[a-z]+")
REDIRECT = re.compile("#redirect", re.I | re.A)
BLOCK = 1 << 18


def records(dump: IO[bytes]) -> Iterator[str]:
    """Cut the dump behind each ">": a piece is a tag, with the text in front of it."""
    rest = ""
    # Latin-1 maps bytes to characters one to one: the rules are about bytes.
    for block in iter(lambda: dump.read(BLOCK), b""):
        *whole, rest = (rest + block.decode("latin-1")).split(">")
        yield from (record + ">" for record in whole)
    if rest:
        yield rest


def article_texts(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces between <text> and </text>, without redirections."""
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
    """Return what a reader of the page sees."""
    text = TAGS.sub("", text, count=1)
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text


def words(text: str) -> list[str]:
    """Return the lower-case words of a to z, with digits spelled out one by one."""
    text = DIGIT.sub(lambda found: DIGITS[found.group()], text)
    return WORDS.findall(text.translate(LOWER))


def dump_sentences(dump: IO[bytes]) -> Iterator[str]:
    """Yield the sentences of a dump, their words separated by spaces."""
    for text in article_texts(records(dump)):
        for line in without_markup(text).split("\n"):  # U+0085 is a byte of a letter here
            for sentence in split_sentences(line):
                found = words(sentence)
                if found:
                    yield " ".join(found)
