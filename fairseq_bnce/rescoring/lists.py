"""N-best lists, and what their formats have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

from fairseq_bnce.errors import quoted
from fairseq_bnce.text.reading import Line

Features = Dict[str, Tuple[float, ...]]

SCORE = "score"  # the feature with the list's own total


@dataclass
class Hypothesis:
    """One entry of a list.

    Attributes:
        list_id: the name of its list.
        words: its words, separated by spaces; bytes that are not UTF-8 are lone surrogates.
        features: the values of each feature in the list; a higher value is better.
        line: the line that it was read from.
        parts: what its format keeps of the line; a dictionary has all values by their names.
        added: the value of each added feature, in order; a higher value is better.
    """

    list_id: str
    words: str
    features: Features
    line: Line
    parts: Any = None
    added: Dict[str, float] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether the list has a feature, or another value, with this name."""
        return name in self.features or isinstance(self.parts, dict) and name in self.parts

    def values(self, name: str) -> Tuple[float, ...]:
        """Return the values of a feature, added or not; empty if it has no such feature."""
        return (self.added[name],) if name in self.added else self.features.get(name, ())


class NBest(NamedTuple):
    """All hypotheses of one sentence, in their order; at least one.

    Attributes:
        list_id: the name of the list.
        hypotheses: see above.
        head: what the list's format keeps for the whole list. Lists keep their order, so that the
            head of the first list may hold a header of the file.
    """

    list_id: str
    hypotheses: List[Hypothesis]
    head: Any = ()

    def words(self) -> int:
        """Return the number of words of all hypotheses."""
        return sum(len(hypothesis.words.split()) for hypothesis in self.hypotheses)


class Format(Protocol):
    """How lists of one format are read and written.

    ``group`` makes lists of neighbouring hypotheses, ``common`` references, ``number`` and
    ``format_number`` read and write numbers, and ``Line.error`` makes errors.
    """

    count_sign: int = 1  # -1 if features are negative costs
    metric: str = "bleu"  # the default of --metric
    has_costs: bool = False  # whether features come in files of their own
    own_features: Sequence[str] = (SCORE,)  # scores of the system, in the lists themselves

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:
        """Yield the lists.

        Args:
            lines: of the file of lists.
            costs: the file of each feature's costs; other formats than Kaldi's have none.

        Raises:
            InputError: naming the line, for one of another form.
        """

    def written(self, nbest: NBest, totals: Sequence[float] = ()) -> List[str]:
        """Return the lines of a list with its added features, and with totals if given."""
        return [*nbest.head, *map(self.entry, nbest.hypotheses, totals or repeat(None))]

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> Any:
        """Return a hypothesis as :meth:`written` has it: with its added features.

        Args:
            total: replaces the list's own score; None keeps that score.
        """

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return what --best writes of the first hypothesis of a list."""

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the references of each list, one from each file, if all files have its id."""


def group(hypotheses: Iterable[Hypothesis]) -> Iterator[NBest]:
    """Yield the lists of neighbouring hypotheses with one id, one list at a time."""
    for list_id, members in groupby(hypotheses, lambda hypothesis: hypothesis.list_id):
        yield NBest(list_id, list(members))


def unique_lists(lists: Iterable[NBest]) -> Iterator[NBest]:
    """Yield the lists; raise InputError for a list in two parts, which is not one sentence."""
    begun: Dict[str, int] = {}
    for nbest in lists:
        line = nbest.hypotheses[0].line
        if nbest.list_id in begun:
            got = f"{quoted(nbest.list_id)} again, which began in line {begun[nbest.list_id]}"
            raise line.error("the hypotheses of a list one after the other", got)
        begun[nbest.list_id] = line.number
        yield nbest


def common(texts: Iterable[Dict[str, str]]) -> Dict[str, List[str]]:
    """Return the references of each list that all texts have."""
    first, *others = texts
    ids = set(first).intersection(*others)
    return {list_id: [text[list_id] for text in (first, *others)] for list_id in ids}


def number(text: str, line: Line, what: str) -> float:
    """Return the number that a text is; raise InputError, with ``what`` it should be."""
    try:
        return float(text)
    except ValueError:
        raise line.error(f"a number as {what}", quoted(text)) from None


def format_number(value: float) -> str:
    """Format nats and counts without trailing zeros."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
