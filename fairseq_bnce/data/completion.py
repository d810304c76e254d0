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
from fairseq_bnce.text.reading import TextLines

if TYPE_CHECKING:  # get-data needs no numpy
    import numpy as np

LETTERS = "abcde"
GAP = re.compile("_{5,}")
MACHINE_LINE = re.compile(r"\s*([0-9]+)\s*([a-e])\)(.*?)\[([^\[\]]+)\](.*)")
MACHINE_FORM = "lines '1a) words [choice] words'"
Choice = Tuple[str, str, str]  # the question's name, the letter, the sentence
Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


class Question(NamedTuple):
    """A question's name, and its sentence with each of the five choices, a to e."""

    name: str
    sentences: Tuple[str, ...]


def read_questions(path: str) -> List[Question]:
    """Read the questions of a table or of the machine format.

    Raises:
        InputError: naming a line that is no question, or a question without its five choices.
    """
    letters: Dict[str, str] = {}
    sentences: Dict[str, List[str]] = {}
    for name, letter, sentence in _read_choices(path, "question", *LETTERS):
        letters[name] = letters.get(name, "") + letter
        sentences.setdefault(name, []).append(sentence)
    for name, found in letters.items() or [("1", "none")]:
        if found != LETTERS:
            required = f"choices a to e of question {quoted(name)}, once and in this order"
            raise InputError(f"{path}: required {required}, got {found}")
    return [Question(name, tuple(choices)) for name, choices in sentences.items()]


def right_letters(questions: Sequence[Question], path: str) -> List[str]:
    """Read the answers in a file, and return the right choice of each question.

    Raises:
        InputError: for a question without an answer, and as :func:`read_answers`.
    """
    answers = read_answers(path)
    missing = [question.name for question in questions if question.name not in answers]
    if missing:
        raise InputError(f"{path}: required an answer to question {quoted(missing[0])}, got none")
    return [answers[question.name] for question in questions]


def read_answers(path: str) -> Dict[str, str]:
    """Read the letter of each question's right choice, from a table or the machine format.

    Raises:
        InputError: for another letter, or several answers to a question.
    """
    found: Dict[str, str] = {}
    for name, letter, _ in _read_choices(path, "answer"):
        if letter not in tuple(LETTERS) or name in found:
            required = f"one answer from a to e to question {quoted(name)}"
            raise InputError(f"{path}: required {required}, got {quoted(letter)}")
        found[name] = letter
    return found


def _read_choices(path: str, *columns: str) -> Iterator[Choice]:
    """Yield the choices in a file; the table must have these columns besides "id"."""
    text = TextLines([path])
    lines = list(text)
    text.warn()
    if MACHINE_LINE.match(next(filter(str.strip, lines), "")):
        return _machine_choices(path, lines)
    return _table_choices(path, lines, ["id", *columns])


def _machine_choices(path: str, lines: Sequence[str]) -> Iterator[Choice]:
    for number, line in enumerate(lines, 1):
        found = MACHINE_LINE.fullmatch(line)
        if found:
            name, letter, *sentence = found.groups()
            yield name, letter, "".join(sentence).strip()
        elif line.strip():
            raise InputError(f"{path}, line {number}: required {MACHINE_FORM}, got {quoted(line)}")


def _table_choices(path: str, lines: Sequence[str], columns: Sequence[str]) -> Iterator[Choice]:
    reader = csv.reader(f"{line}\n" for line in lines)
    heading = [_plain(title) for title in next(reader, [])]
    if not set(columns) <= set(heading):
        required = f"{MACHINE_FORM}, or a table with columns {', '.join(columns)}"
        raise InputError(f"{path}, line 1: required {required}, got {quoted(','.join(heading))}")
    for row in filter(None, reader):
        cells = dict(zip(heading, map(str.strip, row)))
        before, *after = GAP.split(cells.get("question", "_____"))
        if len(row) != len(heading) or len(after) != 1 or not all(cells[name] for name in columns):
            required = f"{', '.join(columns)}, with one _____ in a question"
            where, got = f"{path}, line {reader.line_num}", quoted(",".join(row))
            raise InputError(f"{where}: required {required}, got {got}")
        if "answer" in columns:
            yield cells["id"], _plain(cells["answer"]), ""
        else:
            for letter in LETTERS:
                yield cells["id"], letter, before + cells[letter] + after[0]


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
