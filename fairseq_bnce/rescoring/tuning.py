"""Fitting weights: line searches along the coordinates, from several starts (Och 2003)."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from fairseq_bnce.rescoring.line_search import Lists, Step, best_step

SMALLEST_GAIN = 1e-9  # of the measure; less is rounding


class Tuned(NamedTuple):
    """Weights (F,), and the measure of what they choose."""

    weights: np.ndarray
    value: float


def tune(
    lists: Lists,
    start: np.ndarray,
    measure: Any,
    *,
    restarts: int = 10,
    seed: int = 1,
    on_line: Optional[Callable[[], Any]] = None,
) -> Tuned:
    """The best weights that coordinate searches find from ``start`` and from random ones.

    Args:
        lists: of all sentences.
        start: (F,) weights; zeros, which would leave the lists' own order, stand for the first
            feature alone.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
        restarts: how many random starts.
        seed: of these; the result is the same for the same seed.
        on_line: called after every line search.

    Returns:
        Weights whose absolute values sum to 1: only their proportions count.
    """
    generator = np.random.default_rng(seed)
    spread = _spread(lists)
    found = climb(lists, start if start.any() else np.eye(len(start))[0], measure, on_line)
    for _ in range(restarts):
        random = generator.uniform(-1, 1, len(start)) / spread
        other = climb(lists, random, measure, on_line)
        if measure.sign * (other.value - found.value) > SMALLEST_GAIN:
            found = other
    return found


def climb(
    lists: Lists,
    weights: np.ndarray,
    measure: Any,
    on_line: Optional[Callable[[], Any]] = None,
) -> Tuned:
    """Search along one coordinate after the other, until none of them gains anything."""
    weights = normalised(weights)
    value = measure.value(lists.sums(weights))
    idle = 0  # searches in a row without a gain
    while idle < len(weights):
        for coordinate in np.eye(len(weights)):
            step = best_step(lists, weights, coordinate, measure)
            moved = _moved(lists, weights, coordinate, step, measure)
            gain = measure.sign * (moved.value - value)
            idle = 0 if gain > SMALLEST_GAIN else idle + 1
            if gain > SMALLEST_GAIN:
                weights, value = moved
            if on_line is not None:
                on_line()
            if idle == len(weights):
                break
    return Tuned(weights, value)


def normalised(weights: np.ndarray) -> np.ndarray:
    """Scaled so that absolute values sum to 1; zeros stay."""
    total = np.abs(weights).sum()
    return weights / total if total > 0 else weights


def _moved(
    lists: Lists, weights: np.ndarray, coordinate: np.ndarray, step: Step, measure: Any
) -> Tuned:
    """What the step leads to: measured, for between corners numbers are rounded."""
    there = normalised(weights + step.length * coordinate)
    return Tuned(there, measure.value(lists.sums(there)))


def _spread(lists: Lists) -> np.ndarray:
    """(F,) standard deviation of each feature within its list, which makes weights comparable."""
    sizes = np.diff(np.append(lists.starts, len(lists.features)))
    means = np.add.reduceat(lists.features, lists.starts) / sizes[:, None]
    spread = (lists.features - means[lists.owners()]).std(0)
    return np.where(spread > 0, spread, 1.0)
