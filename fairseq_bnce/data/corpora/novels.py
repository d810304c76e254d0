"""The novels of Project Gutenberg that the sentence-completion challenge gives for training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

from fairseq_bnce.data.corpora.completion import LETTERS, read_questions, right_letters
from fairseq_bnce.data.corpora.sentences import split_sentences
from fairseq_bnce.text.penn import novel_words

HEADER_ENDS = (
    re.compile(r"end\W{0,3}the small print", re.I),  # the editions of the nineties
    re.compile(r"^\W*start of (?:the|this) project gutenberg", re.I),  # later ones
)
FOOTER = re.compile(
    r"^\W*(?:this is |you have reached )?(?:the )?end\s*(?:of|if)?\s*(?:the|this|a)?\s*"
    r"(?:wiretap/)?project gutenberg",
    re.I,
)
# Many texts end in their title alone, or break "End of" off it: looked for in the last lines only.
BARE_FOOTER = re.compile(r"^\W*(?:the )?project gutenberg", re.I)
BARE_FOOTER_LINES = 20
END_OF = re.compile(r"^\W*(?:the )?end(?: of(?: the)?)?\W*$|^\W*of\W*$", re.I)


def decode(content: bytes) -> str:
    """UTF-8, or the code page of the DOS machines that these texts were typed on."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp437")


def body_start(lines: list[str]) -> int:
    """The line behind the header: 0 where there is none."""
    for pattern in HEADER_ENDS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return number + 1
    return 0


def body_end(lines: list[str]) -> int:
    """The line that the footer begins with."""
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


def strip_licence(text: str) -> list[str]:
    """The lines of a novel without Project Gutenberg's header and footer."""
    lines = text.splitlines()
    lines = lines[body_start(lines) :]
    return lines[: body_end(lines)]


def paragraphs(lines: list[str]) -> Iterator[str]:
    """Lines joined up to the next empty one; underscores, which mark italics, dropped."""
    joined = "\n".join(line.strip().replace("_", " ") for line in lines)
    joined = re.sub(r"(?<=[a-z]-)\n(?=[a-z])", "", joined)  # fag-end, over the end of a line
    for paragraph in re.split(r"\n\n+", joined):
        if paragraph:
            yield " ".join(paragraph.split())


def novel_sentences(content: bytes) -> Iterator[str]:
    """The sentences of a novel: Penn-style words in lower case."""
    for paragraph in paragraphs(strip_licence(decode(content))):
        for sentence in split_sentences(paragraph):
            yield novel_words(sentence)


# ---------------------------------------------------------------- questions


def write_questions(questions: Path, answers: Path | None, folder: Path) -> Path:
    """Write every candidate sentence as a line, and the lines' numbers that are right; the former.

    Question q (from 0) has the lines 5 q to 5 q + 4; ``answers.txt`` has 0 to 4 for each.
    """
    asked = read_questions(str(questions))
    if answers:
        right = right_letters(asked, str(answers))
        numbers = [f"{LETTERS.index(letter)}\n" for letter in right]
        (folder / "answers.txt").write_text("".join(numbers), encoding="utf-8")
    path = folder / "candidates.txt"
    sentences = [novel_words(text) for question in asked for text in question.sentences]
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path
