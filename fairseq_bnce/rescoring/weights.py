"""Weights of features: ``name= 0.2 0.8`` a line in files, ``name=0.2 0.8,other=1`` in a command."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Sequence, Tuple

import numpy as np

from fairseq_bnce.rescoring.errors import RescoringError
from fairseq_bnce.rescoring.lines import LineSource
from fairseq_bnce.rescoring.lists import Hypothesis, NBest

Weights = Dict[str, Tuple[float, ...]]


def read_weights(given: str) -> Weights:
    """From a file, or from the text itself if it has a ``=`` and is the name of no file.

    Raises:
        RescoringError: naming the line or item, for another form or a name that comes twice.
    """
    if "=" in given and not os.path.exists(given):
        items = [(f"weights, item {i}", item) for i, item in enumerate(given.split(","), 1)]
    else:
        items = [(f"{line.source}, line {line.number}", line.text) for line in LineSource(given)]
    weights: Weights = {}
    for where, item in items:
        if item.strip() and not item.lstrip().startswith("#"):
            name, values = _parse(where, item)
            if name in weights:
                raise RescoringError(f"{where}: required every name once, got {name!r} again")
            weights[name] = values
    if not weights:
        raise RescoringError(f"weights: required 'name= value', got nothing in {given!r}")
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
        names: of the features; each has as many columns as it has values in ``example``.
        example: a list that has all of them.

    Raises:
        RescoringError: for a feature that no hypothesis of ``example`` has.
    """

    def __init__(self, names: Sequence[str], example: NBest):
        self.sizes = {name: _size(name, example) for name in names}

    def matrix(self, nbest: NBest) -> np.ndarray:
        """(hypotheses, columns) float64; what a hypothesis does not have is 0.

        Raises:
            RescoringError: for another number of values than in the example, or not finite ones.
        """
        rows = [self._row(hypothesis) for hypothesis in nbest.hypotheses]
        found = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        for hypothesis, row in zip(nbest.hypotheses, found):
            if not np.isfinite(row).all():
                raise hypothesis.line.error(f"finite {', '.join(self.sizes)}", row.tolist())
        return found

    def vector(self, weights: Mapping[str, Sequence[float]]) -> np.ndarray:
        """(columns,) float64; 0 for a feature without a weight.

        Raises:
            RescoringError: for a feature with another number of weights than of values.
        """
        found: List[float] = []
        for name, size in self.sizes.items():
            values = weights.get(name, (0.0,) * size)
            if len(values) != size:
                raise RescoringError(f"weights: {name} requires {size}, got {len(values)}")
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
            values = hypothesis.values(name) or (0.0,) * size
            if len(values) != size:
                raise hypothesis.line.error(f"{size} value(s) of {name!r}", len(values))
            row += values
        return row


def ranking(matrix: np.ndarray, weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """(order, totals): best first, and of equals the one that came first."""
    totals = matrix @ weights
    return np.argsort(-totals, kind="stable"), totals


def _parse(where: str, item: str) -> Tuple[str, Tuple[float, ...]]:
    name, sign, values = item.partition("=")
    try:
        numbers = tuple(float(value) for value in values.split())
    except ValueError:
        numbers = ()
    if not sign or not name.strip() or not numbers or not np.isfinite(numbers).all():
        raise RescoringError(f"{where}: required 'name= value', got {item.strip()!r}")
    return name.strip(), numbers


def _size(name: str, example: NBest) -> int:
    sizes = [len(hypothesis.values(name)) for hypothesis in example.hypotheses]
    if not max(sizes):
        known = dict.fromkeys(n for hypothesis in example.hypotheses for n in hypothesis.names())
        raise example.hypotheses[0].line.error(
            f"a feature {name!r}, which is to have a weight", f"{', '.join(known) or 'none'} alone"
        )
    return max(sizes)
