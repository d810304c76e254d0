"""What a table of a paper is: rows to train, and the paper's numbers for them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Mapping, Sequence, Tuple

from comparison.recipes import Recipe, Variant

# (title, name of the measurement, format of a number)
Columns = Sequence[Tuple[str, str, str]]

PERPLEXITY = ("valid PPL^f", "valid_ppl", ".1f")
TEST = ("test PPL^f", "test_ppl", ".1f")
SPREAD = (("µ_z", "mu_z", ".2f"), ("σ_z", "sigma_z", ".2f"))
SPEED = (("words/s", "words_per_second", ",.0f"), ("p90", "words_per_second_p90", ",.0f"))


@dataclass(frozen=True)
class Row:
    """One system.

    Attributes:
        variant: label, criterion, and all flags that other rows lack, the architecture's too.
        paper: what the paper reports, by the name of the measurement; what is not known is absent.
    """

    variant: Variant
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        title: paper and table.
        corpus: the arguments of fairseq-bnce get-data that make the data.
        regime: what all rows are trained and scored with.
        columns: measurements; a row's paper value stands beside ours where it is known.
        about: what is the paper's, what is a guess, and where its numbers are from.
        is_drawn: whether the 2-D histograms of entropy and log Z are drawn, too.
    """

    title: str
    corpus: str
    regime: Recipe
    rows: Sequence[Row]
    columns: Columns
    about: str
    is_drawn: bool = False


def row(label: str, criterion: str, flags: str, **paper: float) -> Row:
    """A row from a command line's words."""
    return Row(Variant(label, criterion, tuple(shlex.split(flags))), paper)


def regime(name: str, about: str, training: str, scoring: str) -> Recipe:
    """A regime from command lines' words."""
    return Recipe(name, about, tuple(shlex.split(training)), tuple(shlex.split(scoring)))
