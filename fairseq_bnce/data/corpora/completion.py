"""Sentence completion: questions with a gap and five words for it, their answers, and accuracy.

The Microsoft Research Sentence Completion Challenge (Zweig & Burges 2011) comes as a table with the
columns id, question, a) to e), or in its machine format, where every choice is a sentence of its
own, ``1a) ... and are [crying] alone in London.``
"""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_bnce.errors import QUOTED, InputError, one_line, quoted
from fairseq_bnce.text.reading import decoded, open_text, warn_of_bad_lines

if TYPE_CHECKING:  # preparing data needs none
    import numpy as np

LETTERS = "abcde"
BLANK = "_____"
GAP = re.compile("_{5,}")
# Of a line without spaces around it.
MACHINE_LINE = re.compile(r"([0-9]+)\s*([a-e])\)(.*)", re.DOTALL)
MACHINE_FORM = "'1a) words [choice] words'"
Z95 = 1.959963984540054  # the normal distribution's quantile of 97.5 %


class Question(NamedTuple):
    """A question's name, and its sentence with each of the five choices, a to e."""

    name: str
    sentences: Tuple[str, ...]


# ---------------------------------------------------------------- reading


def read_questions(path: str) -> List[Question]:
    """Questions of a table (CSV), or in the machine format: told apart by the first line.

    Raises:
        InputError: naming the line, for anything else.
    """
    lines = _lines(path)
    if _is_machine_format(lines):
        return _machine_questions(path, lines)
    columns = ("id", "question", *LETTERS)
    return _table_questions(path, list(_rows(path, lines, columns)))


def read_answers(path: str) -> Dict[str, str]:
    """The letter of the right choice by the question's name, from a table or the machine format.

    Raises:
        InputError: naming the line, for anything else, or a question that comes twice.
    """
    lines = _lines(path)
    found: Dict[str, str] = {}
    for where, name, letter in _named_letters(path, lines):
        if letter not in tuple(LETTERS):
            raise InputError(f"{where}: required an answer from a to e, got {quoted(letter)}")
        if name in found:
            again = one_line(name, QUOTED)
            raise InputError(f"{where}: required one answer to a question, got {again} again")
        found[name] = letter
    return found


def right_letters(questions: Sequence[Question], path: str) -> List[str]:
    """The right choice of each question, from the answers in a file.

    Raises:
        InputError: as :func:`read_answers`, and for a question without an answer.
    """
    answers = read_answers(path)
    for question in questions:
        if question.name not in answers:
            name = one_line(question.name, QUOTED)
            raise InputError(f"{path}: required an answer to question {name}")
    return [answers[question.name] for question in questions]


def _lines(path: str) -> List[str]:
    with open_text(path) as file:
        content = file.read()
    warn_of_bad_lines(path, sum(decoded(line)[1] for line in content.split(b"\n")))
    text = content.decode("utf-8-sig", "replace")
    lines = list(io.StringIO(text, newline=""))  # cut at line ends alone, which stay
    if not any(line.strip() for line in lines):
        raise InputError(f"{path}: required a table or the machine format, got nothing")
    return lines


def _is_machine_format(lines: Sequence[str]) -> bool:
    first = next(line for line in lines if line.strip())
    return MACHINE_LINE.fullmatch(first.strip()) is not None


def _machine_lines(path: str, lines: Sequence[str]) -> Iterator[Tuple[str, str, str, str]]:
    """(where, question, letter, sentence)"""
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            found = MACHINE_LINE.fullmatch(line.strip())
            if found is None or not re.search(r"\[[^\[\]]+\]", found.group(3)):
                got = quoted(line.strip())
                raise InputError(f"{where}: required {MACHINE_FORM}, got {got}")
            name, letter, sentence = found.groups()
            yield where, name, letter, re.sub(r"\[([^\[\]]+)\]", r"\1", sentence.strip(), count=1)


def _machine_questions(path: str, lines: Sequence[str]) -> List[Question]:
    found: Dict[str, List[str]] = {}
    for where, name, letter, sentence in _machine_lines(path, lines):
        choices = found.setdefault(name, [])
        if letter != LETTERS[len(choices) : len(choices) + 1]:
            got = one_line(name, QUOTED) + letter
            raise InputError(
                f"{where}: required choices a to e of a question in this order, got {got}"
            )
        choices.append(sentence)
    for name, choices in found.items():
        if len(choices) != len(LETTERS):
            raise InputError(
                f"{path}, question {one_line(name, QUOTED)}: required choices a to e, got "
                f"{len(choices)}"
            )
    return [Question(name, tuple(choices)) for name, choices in found.items()]


def _rows(
    path: str, lines: Sequence[str], columns: Sequence[str]
) -> Iterator[Tuple[str, List[str]]]:
    """(where, values of these columns) of a table whose heading names them, in any order."""
    (_, titles), *rows = _cells(path, lines)
    heading = [_plain(title) for title in titles]
    missing = [column for column in columns if heading.count(column) != 1]
    if missing:
        raise InputError(
            f"{path}, line 1: required the machine format ({MACHINE_FORM}), or a table with "
            f"columns {', '.join(columns)}, got {one_line(', '.join(heading), QUOTED)}"
        )
    places = [heading.index(column) for column in columns]
    for where, row in rows:
        if len(row) not in (0, len(heading)):
            raise InputError(f"{where}: required {len(heading)} columns, got {len(row)}")
        if row:
            yield where, [row[place].strip() for place in places]


def _cells(path: str, lines: Sequence[str]) -> Iterator[Tuple[str, List[str]]]:
    """(where, fields) of each row, the heading's first."""
    reader = csv.reader(lines)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a field beyond 131,072 characters; before Python 3.11, a NUL
            raise InputError(
                f"{path}, line {reader.line_num}: required a table (CSV), got: {error}"
            ) from error
        yield f"{path}, line {reader.line_num}", row


def _table_questions(path: str, rows: Sequence[Tuple[str, List[str]]]) -> List[Question]:
    found: Dict[str, Question] = {}
    for where, values in rows:
        question = _filled(where, *values)
        if question.name in found:
            again = quoted(question.name)
            raise InputError(f"{where}: required every id once, got {again} again")
        found[question.name] = question
    if not found:
        raise InputError(f"{path}: required at least one question, got a heading alone")
    return list(found.values())


def _plain(text: str) -> str:
    """A column's title or a letter: a for "a)" or " A) "."""
    return text.strip(" )").lower()


def _filled(where: str, name: str, question: str, *choices: str) -> Question:
    before, *after = GAP.split(question)
    if len(after) != 1:
        got = quoted(question)
        raise InputError(f"{where}: required a question with one {BLANK}, got {got}")
    if not name or not all(choices):
        raise InputError(f"{where}: required an id and choices a to e, got an empty field")
    return Question(name, tuple(before + choice + after[0] for choice in choices))


def _named_letters(path: str, lines: Sequence[str]) -> Iterator[Tuple[str, str, str]]:
    """(where, question, letter)"""
    if _is_machine_format(lines):
        for where, name, letter, _ in _machine_lines(path, lines):
            yield where, name, letter
    else:
        for where, (name, letter) in _rows(path, lines, ("id", "answer")):
            yield where, name, _plain(letter)


# ---------------------------------------------------------------- accuracy


class Accuracy(NamedTuple):
    """How many of some questions were answered rightly."""

    right: int
    asked: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.right / self.asked

    def interval(self) -> Tuple[float, float]:
        """Where the share lies with 95 % confidence (Wilson 1927)."""
        square = Z95**2
        middle = (self.right + square / 2) / (self.asked + square)
        spread = self.share * (1 - self.share) / self.asked + square / (4 * self.asked**2)
        half = Z95 * math.sqrt(spread) * self.asked / (self.asked + square)
        return max(0.0, middle - half), min(1.0, middle + half)


def chosen(scores: np.ndarray) -> List[str]:
    """The letter of each question's likeliest sentence, of equals the first.

    Args:
        scores: (questions, 5) log-probabilities.
    """
    return [LETTERS[number] for number in scores.argmax(1)]


def accuracy(letters: Sequence[str], right: Sequence[str]) -> Accuracy:
    """Of chosen letters against the right ones."""
    return Accuracy(sum(a == b for a, b in zip(letters, right)), len(right))
