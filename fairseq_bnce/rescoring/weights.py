"""Weights of features: ``name= 0.2 0.8`` a line in files, ``name=0.2 0.8,other=1`` in a command."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from fairseq_bnce.errors import QUOTED, InputError, one_line, quoted
from fairseq_bnce.rescoring.lists import Hypothesis, NBest
from fairseq_bnce.text.lines import LineSource, unmarked
from fairseq_bnce.text.numerals import decimal

# Of weights and of features that have one, as of float32: sums of their products are finite.
LARGEST = 1e38
COMMENT = "#"  # what a line of a file that is none of weights begins with
Weights = Dict[str, Tuple[float, ...]]


def read_weights(given: str) -> Weights:
    """From a file, or from the text itself if it has a ``=`` and is the name of no file.

    Raises:
        InputError: naming the line or item, for another form or a name that comes twice.
    """
    if "=" in given and not os.path.exists(given):
        items = [(f"weights, item {i}", item) for i, item in enumerate(given.split(","), 1)]
    else:
        try:
            lines = LineSource(given)
        except InputError as error:
            raise InputError(f"--weights: {error}, and no NAME=VALUE,...") from None
        items = [
            (f"{line.source}, line {line.number}", unmarked(line.text))
            for line in lines
            if not unmarked(line.text).lstrip().startswith(COMMENT)
        ]
    weights: Weights = {}
    for where, item in items:
        if item.strip():
            name, values = _parse(where, item)
            if name in weights:
                raise InputError(f"{where}: required every name once, got {quoted(name)} again")
            weights[name] = values
    if not weights:
        raise InputError(f"weights: required 'name= value', got nothing in {quoted(given)}")
    return weights


def weight_lines(weights: Mapping[str, Sequence[float]]) -> List[str]:
    """As :func:`read_weights` reads them."""
    return [
        f"{name}= {' '.join(f'{value:.9g}' for value in values)}"
        for name, values in weights.items()
    ]


class Space:
    """The features that have a weight, as columns.

    Args:
        names: of the features; each has as many columns as it has values in ``example``, or else
            weights.
        example: the first list.
        weights: of some of the features.

    Raises:
        InputError: for a feature that has neither.
    """

    def __init__(
        self,
        names: Sequence[str],
        example: NBest,
        weights: Optional[Mapping[str, Sequence[float]]] = None,
    ):
        given = weights or {}
        self.sizes = {name: _size(name, example) or len(given.get(name, ())) for name in names}
        self._unmet = {name: _lack(name, example) for name in names if not _size(name, example)}
        for name, error in self._unmet.items():
            if not self.sizes[name]:
                raise error

    def matrix(self, nbest: NBest) -> np.ndarray:
        """(hypotheses, columns) float64; what a hypothesis does not have is 0.

        Raises:
            InputError: for another number of values than in the example, or values that are
                not finite or above ``LARGEST``.
        """
        rows = [self._row(hypothesis) for hypothesis in nbest.hypotheses]
        found = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        for hypothesis, row in zip(nbest.hypotheses, found):
            if not (np.abs(row) <= LARGEST).all():
                required = f"finite {', '.join(self.sizes)}"
                got = f"{one_line(str(row.tolist()), QUOTED)} (at most {LARGEST:g} can be weighted)"
                raise hypothesis.line.error(required, got)
        return found

    def unmet(self) -> List[str]:
        """The features that no list has had until now."""
        return list(self._unmet)

    def check_met(self) -> None:
        """Raises InputError for a feature that was in none of the lists, as one misspelt."""
        for error in self._unmet.values():
            raise error

    def vector(self, weights: Mapping[str, Sequence[float]]) -> np.ndarray:
        """(columns,) float64; 0 for a feature without a weight.

        Raises:
            InputError: for a feature with another number of weights than of values.
        """
        found: List[float] = []
        for name, size in self.sizes.items():
            values = weights.get(name, (0.0,) * size)
            if len(values) != size:
                raise InputError(f"weights: {name} requires {size}, got {len(values)}")
            found += values
        return np.array(found)

    def weights(self, vector: np.ndarray) -> Weights:
        """The inverse of :meth:`vector`."""
        found, start = {}, 0
        for name, size in self.sizes.items():
            found[name] = tuple(vector[start : start + size].tolist())
            start += size
        return found

    def _row(self, hypothesis: Hypothesis) -> List[float]:
        row: List[float] = []
        for name, size in self.sizes.items():
            values = hypothesis.values(name)
            if values:
                self._unmet.pop(name, None)
            else:
                values = (0.0,) * size
            if len(values) != size:
                raise hypothesis.line.error(f"{size} value(s) of {quoted(name)}", len(values))
            row += values
        return row


def totals(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(hypotheses,) weighted sums of (hypotheses, columns); those of equal rows are equal.

    A BLAS, which ``matrix @ weights`` calls, rounds a row as its place in the matrix has it.
    """
    return np.einsum("ij,j->i", matrix, weights)


def ranking(matrix: np.ndarray, weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """(order, totals): best first, and of equals the one that came first."""
    found = totals(matrix, weights)
    return np.argsort(-found, kind="stable"), found


def _parse(where: str, item: str) -> Tuple[str, Tuple[float, ...]]:
    name, sign, values = item.rpartition("=")  # names of sparse features may hold others
    read = [decimal(value) for value in values.split()]
    numbers = [np.nan if number is None else number for number in read]
    got = quoted(item.strip())
    if not sign or len(name.split()) != 1 or not numbers or not _finite(numbers):
        required = "'name= value'"
        if COMMENT in values:
            required += ", and comments on lines of their own"
        raise InputError(f"{where}: required {required}, got {got}")
    if max(map(abs, numbers)) > LARGEST:
        required = f"'name= value', numbers of at most {LARGEST:g}"
        raise InputError(f"{where}: required {required}, got {got}")
    return name.strip(), tuple(numbers)


def _finite(numbers: Sequence[float]) -> bool:
    return bool(np.isfinite(numbers).all())


def _size(name: str, example: NBest) -> int:
    return max(len(hypothesis.values(name)) for hypothesis in example.hypotheses)


def _lack(name: str, example: NBest) -> InputError:
    known = dict.fromkeys(n for hypothesis in example.hypotheses for n in hypothesis.names())
    return example.hypotheses[0].line.error(
        f"a feature {quoted(name)}, which is to have a weight",
        f"{one_line(', '.join(known), 200) or 'none'} alone",
    )
