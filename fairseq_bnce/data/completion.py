"""Questions of sentence completion: a sentence with gaps, choices for them, and the answer.

The Microsoft Research Sentence Completion Challenge (Zweig & Burges 2011) has its questions in a
table (CSV) with the columns id, question and a) to e), and in two texts. The machine format has a
sentence for each choice: ``1a) ... and are [crying] alone in London.`` The human format has the
sentence once, ``1) ... and are _____ alone in London.``, and a line for each choice, ``a) crying``.
The human format's answers are ``1) [a] crying``.

A choice for several gaps has a part for each, separated by `` / `` or dots: ``more . . less``. A
choice may also be the whole sentence, as in the SAT questions of Park et al.
"""

from __future__ import annotations

import csv
import math
import re
import string
from itertools import zip_longest
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.reading import TextLines

if TYPE_CHECKING:  # get-data needs no numpy
    import numpy as np

LETTERS = string.ascii_lowercase
GAP = re.compile("_{5,}")
_FILLED_GAP = re.compile(r"\[([^\[\]]+)\]")
_BETWEEN_PARTS = re.compile(r"\s+/\s+|\s*(?:…|\.\s*\.[\s.]*)\s*")
_LINE = re.compile(r"\s*([0-9]*)\s*([a-z]?)\)\s*(.*?)\s*")
_LINE_FORM = "lines '1a) words [choice] words', or '1) words _____ words' and 'a) choice'"
Choice = Tuple[str, str, str]  # the question's name, the letter, the sentence
Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


class Question(NamedTuple):
    """A question's name, and its sentence with each of the choices: a, b and so on."""

    name: str
    sentences: Tuple[str, ...]


def read_questions(path: str) -> List[Question]:
    """Read the questions of a table or a text.

    Raises:
        InputError: naming a line that is no question, or a question without two choices or more.
    """
    letters: Dict[str, str] = {}
    sentences: Dict[str, List[str]] = {}
    for name, letter, sentence in _read_choices(path, "id", "question", "a", "b"):
        letters[name] = letters.get(name, "") + letter
        sentences.setdefault(name, []).extend([sentence] * len(letter))
    for name, found in letters.items() or [("1", "none")]:
        if found != LETTERS[: max(2, len(found))]:
            required = f"choices a, b, ... of question {quoted(name)}, once and in this order"
            raise InputError(f"{path}: required {required}, got {found or 'none'}")
    return [Question(name, tuple(choices)) for name, choices in sentences.items()]


def right_letters(questions: Sequence[Question], path: str) -> List[str]:
    """Read the answers in a table or a text, and return the right choice of each question.

    Raises:
        InputError: for a question with no answer, several answers, or an answer that is no choice.
    """
    found: Dict[str, List[str]] = {}
    for name, letter, _ in _read_choices(path, "id", "answer"):
        found.setdefault(name, []).append(letter)
    for name, sentences in questions:
        answers = found.get(name, ["none"])
        if len(answers) > 1 or answers[0] not in tuple(LETTERS[: len(sentences)]):
            required = f"one answer from a to {LETTERS[len(sentences) - 1]} to question"
            got = quoted(", ".join(answers))
            raise InputError(f"{path}: required {required} {quoted(name)}, got {got}")
    return [found[question.name][0] for question in questions]


def _read_choices(path: str, *columns: str) -> Iterator[Choice]:
    """Yield the choices in a file; a table must have these columns."""
    lines = list(TextLines([path]))
    if re.match(r"\s*[0-9]+\s*[a-z]?\)", next(filter(str.strip, lines), "")):
        return _text_choices(path, lines)
    return _table_choices(path, lines, columns)


def _text_choices(path: str, lines: Sequence[str]) -> Iterator[Choice]:
    """Yield the choices of the machine or human format; a question's line has the letter ""."""
    name = question = ""
    for place, line in enumerate(lines, 1):
        where = f"{path}, line {place}"
        found = _LINE.fullmatch(line)
        number, letter, text = found.groups() if found else ("", "", line)
        answer = re.match(r"\[([a-z])\]", text)
        if number and letter and _FILLED_GAP.search(text):
            yield number, letter, _FILLED_GAP.sub(r"\1", text)
        elif number and answer:
            yield number, answer[1], ""
        elif number and not letter:
            name, question = number, text
            yield name, "", ""
        elif name and letter and text:
            yield name, letter, _filled(question, text, where)
        elif line.strip():
            raise InputError(f"{where}: required {_LINE_FORM}, got {quoted(line)}")


def _table_choices(path: str, lines: Sequence[str], columns: Sequence[str]) -> Iterator[Choice]:
    reader = csv.reader(f"{line}\n" for line in lines)
    heading = [_plain(title) for title in next(reader, [])]
    heading = ["answer" if title == "ans" else title for title in heading]
    if not set(columns) <= set(heading):
        required = f"{_LINE_FORM}, or a table with columns {', '.join(columns)}"
        raise InputError(f"{path}, line 1: required {required}, got {quoted(','.join(heading))}")
    for row in filter(None, reader):
        cells = dict(zip(heading, map(str.strip, row)))
        where = f"{path}, line {reader.line_num}"
        if len(row) != len(heading) or not all(cells[name] for name in columns):
            raise InputError(f"{where}: required {', '.join(columns)}, got {quoted(','.join(row))}")
        if "answer" in columns:
            yield cells["id"], _plain(cells["answer"]), ""
            continue
        for letter in filter(cells.get, LETTERS):  # a question with fewer choices has empty cells
            yield cells["id"], letter, _filled(cells["question"], cells[letter], where)


def _plain(text: str) -> str:
    """Return a title or a letter without decoration: a for "a)" or " A) "."""
    return text.strip(" )").lower()


def _filled(question: str, choice: str, where: str) -> str:
    """Return the sentence of a choice."""
    around = GAP.split(question)
    gaps = len(around) - 1
    if re.fullmatch(".+".join(map(re.escape, around)), choice):
        return choice
    parts = _BETWEEN_PARTS.split(choice) if gaps > 1 else [choice]
    if len(parts) != gaps:
        required = f"a choice for {gaps} gap(s) _____, as 'one / two' for two"
        raise InputError(f"{where}: required {required}, got {quoted(choice)}")
    return "".join(map("".join, zip_longest(around, parts, fillvalue="")))


# ---------------------------------------------------------------- accuracy


def accuracy(right: int, asked: int) -> Dict[str, float]:
    """Return the share of correct answers, from 0 to 1, and its 95 % interval (Wilson 1927).

    Returns:
        right, asked, share, low and high, by these names.
    """
    share, square = right / asked, Z95**2
    middle = (right + square / 2) / (asked + square)
    spread = share * (1 - share) / asked + square / (4 * asked**2)
    half = Z95 * math.sqrt(spread) * asked / (asked + square)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return {"right": right, "asked": asked, "share": share, "low": low, "high": high}


def chosen(scores: Sequence[np.ndarray]) -> List[str]:
    """Return the letter of each question's likeliest sentence, the first of equals.

    Args:
        scores: the log-probabilities of each question's sentences.
    """
    return [LETTERS[values.argmax()] for values in scores]
