"""What the formats have in common: hypotheses with features, in lists of one sentence each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from fairseq_bnce.errors import quoted
from fairseq_bnce.text.lines import Line
from fairseq_bnce.text.numerals import decimal

Features = Dict[str, Tuple[float, ...]]


@dataclass
class Hypothesis:
    """One entry of a list.

    Attributes:
        list_id: what all entries of its list share.
        words: its words, separated by spaces; what is no UTF-8 is in it as lone surrogates.
        features: what the list says of it; more is better in each of them.
        line: where it came from.
        parts: how its format remembers the line.
        added: features that it did not come with, in order, more being better.
    """

    list_id: str
    words: str
    features: Features
    line: Line
    parts: Any = None
    added: Dict[str, float] = field(default_factory=dict)

    def values(self, name: str) -> Tuple[float, ...]:
        """Of one feature, added or not; empty where it has none of this name."""
        return (self.added[name],) if name in self.added else self.features.get(name, ())

    def names(self) -> List[str]:
        """Of all its features."""
        return [*self.features, *self.added]


class NBest(NamedTuple):
    """All hypotheses of one sentence, in the order they came in."""

    list_id: str
    hypotheses: List[Hypothesis]


def group(hypotheses: Iterable[Hypothesis]) -> Iterator[NBest]:
    """The lists that neighbouring hypotheses make; one is in memory at a time."""
    for list_id, members in groupby(hypotheses, lambda hypothesis: hypothesis.list_id):
        yield NBest(list_id, list(members))


def each_once(lists: Iterable[NBest]) -> Iterator[NBest]:
    """The same lists, for what takes a list for a sentence: of each some 150 bytes are kept.

    Raises:
        InputError: for a list that comes back after others, naming both lines.
    """
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


def check_new(hypothesis: Hypothesis, names: Iterable[str]) -> None:
    """InputError for a hypothesis that came with one of the features that are to be added."""
    for name in names:
        if name in hypothesis.features:
            raise hypothesis.line.error(
                f"no feature {name!r} (or another --feature), since it would be added", "one"
            )


def number(text: str, line: Line, what: str) -> float:
    """The number that some text stands for.

    Raises:
        InputError: if it stands for none; ``what`` says in the message what it should be.
    """
    value = decimal(text)
    if value is None:
        raise line.error(f"a number as {what}", quoted(text))
    return value
