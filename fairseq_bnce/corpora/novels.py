"""The novels of Project Gutenberg that the sentence-completion challenge gives for training."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Iterator

from fairseq_bnce.corpora.penn import penn_words
from fairseq_bnce.corpora.sentences import split_sentences
from fairseq_bnce.errors import InputError

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
BLANK = "_____"
LETTERS = "abcde"


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
            yield " ".join(penn_words(sentence)).lower()


# ---------------------------------------------------------------- questions


def read_rows(path: Path, columns: int) -> list[list[str]]:
    """The rows of a table of questions or answers, without its heading."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.reader(lines) if row][1:]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"a table of UTF-8 text is required, but {path} is none ({error})"
        ) from error
    for number, row in enumerate(rows, 2):
        if len(row) != columns:
            raise InputError(
                f"{path}, row {number}: {columns} columns are required, but came {len(row)}"
            )
    return rows


def candidates(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(id, five sentences as the model is to see them) of every question."""
    for number, (name, question, *choices) in enumerate(read_rows(path, 2 + len(LETTERS)), 2):
        if question.count(BLANK) != 1:
            raise InputError(
                f"{path}, row {number}: one {BLANK} is required, but came {question!r}"
            )
        filled = [question.replace(BLANK, choice) for choice in choices]
        yield name, [" ".join(penn_words(sentence)).lower() for sentence in filled]


def answers(path: Path) -> dict[str, str]:
    """The letter of the right choice, by id."""
    found = {name: letter.strip(" )").lower() for name, letter in read_rows(path, 2)}
    for name, letter in found.items():
        if letter not in tuple(LETTERS):
            raise InputError(
                f"{path}: an answer from a to e is required, but {name} has {letter!r}"
            )
    return found


def write_questions(questions: Path, answer_table: Path | None, folder: Path) -> Path:
    """Write every candidate sentence as a line, and the lines' numbers that are right; the former.

    Question q (from 0) has the lines 5 q to 5 q + 4; ``answers.txt`` has 0 to 4 for each.
    """
    right = answers(answer_table) if answer_table else {}
    lines: list[str] = []
    numbers: list[str] = []
    for name, sentences in candidates(questions):
        lines += sentences
        if answer_table and name not in right:
            raise InputError(f"{answer_table}: an answer to question {name} is required, has none")
        if answer_table:
            numbers.append(str(LETTERS.index(right[name])))
    path = folder / "candidates.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if numbers:
        (folder / "answers.txt").write_text("\n".join(numbers) + "\n", encoding="utf-8")
    return path
