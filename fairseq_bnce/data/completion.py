"""Questions of sentence completion: a sentence with a gap, five choices for it, and the answer.

The Microsoft Research Sentence Completion Challenge (Zweig & Burges 2011) is a table (CSV) with the
columns id, question and a) to e), or comes in a machine format with a sentence for each choice:
``1a) ... and are [crying] alone in London.``
"""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.reading import TextLines, warn_of_bad_lines

if TYPE_CHECKING:  # get-data needs no numpy
    import numpy as np

LETTERS = "abcde"
BLANK = "_____"
GAP = re.compile("_{5,}")
MACHINE_LINE = re.compile(r"([0-9]+)\s*([a-e])\)(.*)", re.DOTALL)
MACHINE_FORM = "'1a) words [choice] words'"
Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


class Question(NamedTuple):
    """A question's name, and its sentence with each of the five choices, a to e."""

    name: str
    sentences: Tuple[str, ...]


def read_questions(path: str) -> List[Question]:
    """Read the questions of a table or of the machine format.

    Raises:
        InputError: naming a line that is no question.
    """
    lines = _read_lines(path)
    found: Dict[str, List[str]] = {}
    if _is_machine_format(lines):
        for where, name, letter, sentence in _machine_lines(path, lines):
            choices = found.setdefault(name, [])
            if letter != LETTERS[len(choices) : len(choices) + 1]:
                required = "choices a to e of a question in this order"
                raise InputError(f"{where}: required {required}, got {quoted(name + letter)}")
            choices.append(sentence)
    else:
        for where, (name, question, *choices) in _table_rows(path, lines, "question", *LETTERS):
            before, *after = GAP.split(question)
            if name in found or len(after) != 1 or not name or not all(choices):
                required = f"a new id, a question with one {BLANK}, and choices a to e"
                raise InputError(
                    f"{where}: required {required}, got {quoted(f'{name},{question}')}"
                )
            found[name] = [before + choice + after[0] for choice in choices]
    incomplete = [name for name, choices in found.items() if len(choices) != len(LETTERS)]
    if incomplete or not found:
        got = f"less for question {quoted(incomplete[0])}" if incomplete else "none"
        raise InputError(f"{path}: required questions with choices a to e, got {got}")
    return [Question(name, tuple(choices)) for name, choices in found.items()]


def right_letters(questions: Sequence[Question], path: str) -> List[str]:
    """Read the answers in a file, and return the right choice of each question.

    Raises:
        InputError: for a question without an answer, and as :func:`read_answers`.
    """
    answers = read_answers(path)
    for question in questions:
        if question.name not in answers:
            raise InputError(f"{path}: required an answer to question {quoted(question.name)}")
    return [answers[question.name] for question in questions]


def read_answers(path: str) -> Dict[str, str]:
    """Read the letter of each question's right choice, from a table or the machine format.

    Raises:
        InputError: naming a line that is no answer, or answers a question again.
    """
    lines = _read_lines(path)
    if _is_machine_format(lines):
        letters = [line[:3] for line in _machine_lines(path, lines)]
    else:
        rows = _table_rows(path, lines, "answer")
        letters = [(where, name, _plain(letter)) for where, (name, letter) in rows]
    found: Dict[str, str] = {}
    for where, name, letter in letters:
        if letter not in tuple(LETTERS) or name in found:
            required = "one answer from a to e to each question"
            raise InputError(f"{where}: required {required}, got {quoted(f'{name},{letter}')}")
        found[name] = letter
    return found


def _read_lines(path: str) -> List[str]:
    text = TextLines([path])
    lines = [f"{line}\n" for line in text]
    warn_of_bad_lines(path, text.bad_lines)
    if not any(map(str.strip, lines)):
        raise InputError(f"{path}: required a table or the machine format, got nothing")
    return lines


def _is_machine_format(lines: Sequence[str]) -> bool:
    first = next(line for line in lines if line.strip())
    return MACHINE_LINE.fullmatch(first.strip()) is not None


def _machine_lines(path: str, lines: Sequence[str]) -> Iterator[Tuple[str, str, str, str]]:
    """Yield (where, question, letter, sentence) for each line."""
    for number, line in enumerate(map(str.strip, lines), 1):
        if line:
            where = f"{path}, line {number}"
            found = MACHINE_LINE.fullmatch(line)
            if found is None or not re.search(r"\[[^\[\]]+\]", found.group(3)):
                raise InputError(f"{where}: required {MACHINE_FORM}, got {quoted(line)}")
            name, letter, sentence = found.groups()
            yield where, name, letter, re.sub(r"\[([^\[\]]+)\]", r"\1", sentence.strip(), count=1)


def _table_rows(path: str, lines: Sequence[str], *columns: str) -> Iterator[Tuple[str, List[str]]]:
    """Yield (where, the values of "id" and ``columns``) for each row of a table."""
    columns = ("id", *columns)
    reader = csv.reader(lines)
    try:
        heading = [_plain(title) for title in next(reader)]
        if any(heading.count(column) != 1 for column in columns):
            raise InputError(
                f"{path}, line 1: required the machine format ({MACHINE_FORM}), or a table with "
                f"columns {', '.join(columns)}, got {quoted(', '.join(heading))}"
            )
        places = [heading.index(column) for column in columns]
        for row in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(heading):
                raise InputError(f"{where}: required {len(heading)} columns, got {len(row)}")
            yield where, [row[place].strip() for place in places]
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: required a table (CSV), got: {error}"
        ) from error


def _plain(text: str) -> str:
    """Return a title or a letter without decoration: a for "a)" or " A) "."""
    return text.strip(" )").lower()


# ---------------------------------------------------------------- accuracy


class Accuracy(NamedTuple):
    """How many of the questions are answered correctly."""

    right: int
    asked: int

    @property
    def share(self) -> float:
        """The share of correct answers, from 0 to 1."""
        return self.right / self.asked

    def interval(self) -> Tuple[float, float]:
        """Return the 95 % confidence interval of the share (Wilson 1927)."""
        square = Z95**2
        middle = (self.right + square / 2) / (self.asked + square)
        spread = self.share * (1 - self.share) / self.asked + square / (4 * self.asked**2)
        half = Z95 * math.sqrt(spread) * self.asked / (self.asked + square)
        return max(0.0, middle - half), min(1.0, middle + half)


def chosen(scores: np.ndarray) -> List[str]:
    """Return the letter of each question's likeliest sentence, the first of equals.

    Args:
        scores: (questions, 5) log-probabilities.
    """
    return [LETTERS[number] for number in scores.argmax(1)]


def accuracy(letters: Sequence[str], right: Sequence[str]) -> Accuracy:
    """Compare chosen letters with the right ones."""
    return Accuracy(sum(a == b for a, b in zip(letters, right)), len(right))
