"""Weights of features: lines ``name= 0.2 0.8`` in files, ``name=0.2 0.8,other=1`` in commands."""

import os
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Hypothesis, NBest
from fairseq_bnce.text.reading import Line, numbered_lines, strip_bom

COMMENT = "#"  # begins a line without weights
Weights = Dict[str, Tuple[float, ...]]


def read_weights(given: str) -> Weights:
    """Read weights from a file, or from a text with ``=`` that is not the name of a file.

    Raises:
        InputError: naming the line, or the place of an item as its line, for another form.
    """
    lines: Iterable[Line] = numbered_lines(given)
    if "=" in given and not os.path.exists(given):
        lines = [Line(item, "--weights", place) for place, item in enumerate(given.split(","), 1)]
    stripped = (line._replace(text=strip_bom(line.text).strip()) for line in lines)
    weights = dict(_parse(one) for one in stripped if one.text and one.text[0] != COMMENT)
    if not weights:
        raise InputError(f"--weights: required 'name= value', got nothing in {quoted(given)}")
    return weights


def weight_lines(weights: Mapping[str, Sequence[float]]) -> List[str]:
    """Return lines that :func:`read_weights` reads."""
    texts = {name: (f"{value:.9g}" for value in values) for name, values in weights.items()}
    return [f"{name}= {' '.join(values)}" for name, values in texts.items()]


class Space:
    """The columns of a matrix of features that have weights.

    Args:
        names: of the features; each has as many columns as values in ``example``, or as weights.
        example: the first list.
        given: weights of some of the features.

    Raises:
        InputError: for a feature with neither values nor weights.
    """

    def __init__(self, names: Sequence[str], example: NBest, given: Optional[Weights] = None):
        self._example = example.hypotheses
        sizes = {name: max(len(h.values(name)) for h in self._example) for name in names}
        self._unmet = [name for name in names if not sizes[name]]
        self.sizes = {name: n or len((given or {}).get(name, ())) for name, n in sizes.items()}
        self._check_known([name for name in names if not self.sizes[name]])

    def matrix(self, nbest: NBest) -> np.ndarray:
        """Return (hypotheses, columns) float64; missing features are 0.

        Raises:
            InputError: for another number of values than in the example, or values that are
                not finite.
        """
        return np.array([self._row(hypothesis) for hypothesis in nbest.hypotheses])

    def check_met(self) -> None:
        """Raise InputError for a feature that no list had: its name may be misspelt."""
        self._check_known(self._unmet)

    def vector(self, weights: Mapping[str, Sequence[float]]) -> np.ndarray:
        """Return (columns,) float64; 0 for a feature without a weight.

        Raises:
            InputError: for a feature with another number of weights than of values.
        """
        found: List[float] = []
        for name, size in self.sizes.items():
            values = weights.get(name, (0.0,) * size)
            if len(values) != size:
                raise InputError(f"--weights: {name} requires {size}, got {len(values)}")
            found += values
        return np.array(found)

    def weights(self, vector: np.ndarray) -> Weights:
        """Return the weights of a vector; the inverse of :meth:`vector`."""
        parts = np.split(vector, np.cumsum([*self.sizes.values()])[:-1])
        return {name: tuple(part.tolist()) for name, part in zip(self.sizes, parts)}

    def _row(self, hypothesis: Hypothesis) -> np.ndarray:
        values = {name: hypothesis.values(name) for name in self.sizes}
        self._unmet = [name for name in self._unmet if not values[name]]
        parts = [values[name] or (0.0,) * size for name, size in self.sizes.items()]
        row = np.concatenate([(), *parts])
        if [*map(len, parts)] != [*self.sizes.values()] or not np.isfinite(row).all():
            sizes = ", ".join(f"{size} of {quoted(name)}" for name, size in self.sizes.items())
            raise hypothesis.line.error(f"finite values, {sizes}", row.tolist())
        return row

    def _check_known(self, missing: Sequence[str]) -> None:
        if missing:
            known = dict.fromkeys(name for h in self._example for name in (*h.features, *h.added))
            required = f"a feature {quoted(missing[0])}, which is to have a weight"
            raise self._example[0].line.error(required, f"{', '.join(known) or 'none'} alone")


def totals(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (hypotheses,) weighted sums of (hypotheses, columns); equal rows have equal sums.

    ``matrix @ weights`` calls a BLAS, whose rounding depends on the row's place in the matrix.
    """
    return np.einsum("ij,j->i", matrix, weights)


def ranking(matrix: np.ndarray, weights: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return (order, totals): best first; equal hypotheses keep their order."""
    found = totals(matrix, weights)
    return np.argsort(-found, kind="stable"), found


def _parse(item: Line) -> Tuple[str, Tuple[float, ...]]:
    name, _, values = item.text.rpartition("=")  # names of sparse features may contain "="
    try:
        numbers = tuple(map(float, values.split()))
    except ValueError:
        numbers = ()
    if len(name.split()) != 1 or not numbers or not np.isfinite(numbers).all():
        raise item.error("'name= value', comments on lines of their own", quoted(item.text))
    return name.strip(), numbers
