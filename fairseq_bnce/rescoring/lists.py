"""Hypotheses with features, in lists of one sentence each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from fairseq_bnce.errors import quoted
from fairseq_bnce.text.reading import Line

Features = Dict[str, Tuple[float, ...]]


@dataclass
class Hypothesis:
    """One entry of a list.

    Attributes:
        list_id: the name of its list.
        words: its words, separated by spaces; bytes that are not UTF-8 are lone surrogates.
        features: the values of each feature in the list; a higher value is better.
        line: the line that it was read from.
        parts: what its format keeps of the line.
        added: the value of each added feature, in order; a higher value is better.
    """

    list_id: str
    words: str
    features: Features
    line: Line
    parts: Any = None
    added: Dict[str, float] = field(default_factory=dict)

    def values(self, name: str) -> Tuple[float, ...]:
        """Return the values of a feature, added or not; empty if it has no such feature."""
        return (self.added[name],) if name in self.added else self.features.get(name, ())


class NBest(NamedTuple):
    """All hypotheses of one sentence, in their order."""

    list_id: str
    hypotheses: List[Hypothesis]


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
            raise line.error(
                "the hypotheses of a list one after the other",
                f"{quoted(nbest.list_id)} again, whose list began in line {begun[nbest.list_id]}",
            )
        begun[nbest.list_id] = line.number
        yield nbest


def number(text: str, line: Line, what: str) -> float:
    """Return the number that a text is; raise InputError, with ``what`` it should be."""
    try:
        return float(text)
    except ValueError:
        raise line.error(f"a number as {what}", quoted(text)) from None
