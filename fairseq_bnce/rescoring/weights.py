"""Weights of features: lines ``name= 0.2 0.8`` in files, ``name=0.2 0.8,other=1`` in commands."""

from __future__ import annotations

import math
import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from fairseq_bnce.errors import QUOTED, InputError, one_line, quoted
from fairseq_bnce.rescoring.lists import Hypothesis, NBest
from fairseq_bnce.text.numerals import decimal
from fairseq_bnce.text.reading import LineSource, strip_bom

LARGEST = 1e38  # of features: weighted sums stay finite
COMMENT = "#"  # begins a line of a file that holds no weights
Weights = Dict[str, Tuple[float, ...]]


def read_weights(given: str) -> Weights:
    """Read weights from a file, or from a text with ``=`` that is not the name of a file.

    Raises:
        InputError: naming the line or item, for another form or a repeated name.
    """
    if "=" in given and not os.path.exists(given):
        items = [(f"weights, item {i}", item) for i, item in enumerate(given.split(","), 1)]
    else:
        items = [
            (f"{line.source}, line {line.number}", strip_bom(line.text))
            for line in LineSource(given)
            if not strip_bom(line.text).lstrip().startswith(COMMENT)
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
    """Return lines that :func:`read_weights` reads."""
    return [
        f"{name}= {' '.join(f'{value:.9g}' for value in values)}"
        for name, values in weights.items()
    ]


class Space:
    """The columns of a matrix of features that have weights.

    Args:
        names: of the features; each has as many columns as values in ``example``, or as weights.
        example: the first list.
        weights: of some of the features.

    Raises:
        InputError: for a feature with neither values nor weights.
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
        """Return (hypotheses, columns) float64; missing features are 0.

        Raises:
            InputError: for another number of values than in the example, or values that are
                not finite or above ``LARGEST``.
        """
        rows = [self._row(hypothesis) for hypothesis in nbest.hypotheses]
        found = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        for hypothesis, row in zip(nbest.hypotheses, found):
            if not (np.abs(row) <= LARGEST).all():
                got = one_line(str(row.tolist()), QUOTED)
                raise hypothesis.line.error(f"finite {', '.join(self.sizes)}", got)
        return found

    def unmet(self) -> List[str]:
        """Return the features that no list has had until now."""
        return list(self._unmet)

    def check_met(self) -> None:
        """Raise InputError for a feature that no list had: its name may be misspelt."""
        for error in self._unmet.values():
            raise error

    def vector(self, weights: Mapping[str, Sequence[float]]) -> np.ndarray:
        """Return (columns,) float64; 0 for a feature without a weight.

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
        """Return the weights of a vector; the inverse of :meth:`vector`."""
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
    """Return (hypotheses,) weighted sums of (hypotheses, columns); equal rows have equal sums.

    ``matrix @ weights`` calls a BLAS, whose rounding depends on the row's place in the matrix.
    """
    return np.einsum("ij,j->i", matrix, weights)


def ranking(matrix: np.ndarray, weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return (order, totals): best first; equal hypotheses keep their order."""
    found = totals(matrix, weights)
    return np.argsort(-found, kind="stable"), found


def _parse(where: str, item: str) -> Tuple[str, Tuple[float, ...]]:
    name, sign, values = item.rpartition("=")  # names of sparse features may contain "="
    numbers = [decimal(value) for value in values.split()]
    is_finite = all(number is not None and math.isfinite(number) for number in numbers)
    if not sign or len(name.split()) != 1 or not numbers or not is_finite:
        required = "'name= value', comments on lines of their own"
        raise InputError(f"{where}: required {required}, got {quoted(item.strip())}")
    return name.strip(), tuple(map(float, values.split()))


def _size(name: str, example: NBest) -> int:
    return max(len(hypothesis.values(name)) for hypothesis in example.hypotheses)


def _lack(name: str, example: NBest) -> InputError:
    known = dict.fromkeys(n for hypothesis in example.hypotheses for n in hypothesis.names())
    return example.hypotheses[0].line.error(
        f"a feature {quoted(name)}, which is to have a weight",
        f"{one_line(', '.join(known), 200) or 'none'} alone",
    )
