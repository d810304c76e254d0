"""Fit weights to a measure: line searches along the coordinates, from several starts (Och 2003).

Along w + γ d the total of a hypothesis is a line in γ, with intercept F·w and slope F·d. The best
hypothesis of a list changes only at a corner of the upper envelope of its lines. With the corners
of all lists merged, the summed counts, and so the measure, are known exactly between corners.
"""

from __future__ import annotations

from itertools import cycle
from typing import Callable, List, NamedTuple, Tuple

import numpy as np

from fairseq_bnce.rescoring.measures import Measure
from fairseq_bnce.rescoring.weights import totals

SMALLEST_GAIN = 1e-9  # a smaller gain of the measure is rounding
# Relative: on a narrower interval of γ the winner depends on rounding.
NARROWEST = 1e-9


class Lists(NamedTuple):
    """The hypotheses of all lists in one matrix.

    Attributes:
        features: (M, F) float64 of M hypotheses.
        counts: (M, C) int64 counts of the measure.
        starts: (S,) the first row of each of S lists; no list is empty.
    """

    features: np.ndarray
    counts: np.ndarray
    starts: np.ndarray

    @classmethod
    def join(cls, features: List[np.ndarray], counts: List[np.ndarray]) -> Lists:
        """Join the features (K_s, F) and counts (K_s, C) of each list."""
        sizes = [len(rows) for rows in features]
        return cls(np.concatenate(features), np.concatenate(counts), np.cumsum([0, *sizes[:-1]]))

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Return (C,) the summed counts of each list's first hypothesis with the highest total."""
        return self.counts[_first_largest(totals(self.features, weights), self.starts)].sum(0)


def best_step(lists: Lists, weights: np.ndarray, direction: np.ndarray, measure: Measure) -> float:
    """Return the best γ for weights + γ·direction: the middle of the widest of the best intervals.

    Args:
        lists: of all sentences.
        weights, direction: (F,) float64.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
    """
    corners, sums = error_surface(lists, weights, direction)
    middles, widths = _intervals(corners)
    values = measure.sign * measure.values(sums)
    values = np.where(widths > NARROWEST * np.maximum(1, np.abs(middles)), values, -np.inf)
    is_best = values >= values.max() - 1e-12
    return float(middles[np.argmax(np.where(is_best, widths, -np.inf))])


def error_surface(
    lists: Lists, weights: np.ndarray, direction: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Return the corners (n,) in γ, and the exact counts (n + 1, C) on the intervals between them.

    Walks the upper envelopes of all lists side by side, from γ = -∞, a corner at a time.
    """
    intercepts, slopes = totals(lists.features, weights), totals(lists.features, direction)
    owners = _owners(lists.starts, len(slopes))
    # At -∞ the least slope wins, then the highest intercept.
    least = np.minimum.reduceat(slopes, lists.starts)[owners]
    current = _first_largest(np.where(slopes == least, intercepts, -np.inf), lists.starts)
    changes = [lists.counts[current].sum(0, keepdims=True)]
    corners = [np.full(1, -np.inf)]
    steeper = np.arange(len(slopes))
    while True:
        # A line no steeper than the winner stays below it.
        steeper = steeper[slopes[steeper] > slopes[current[owners[steeper]]]]
        if not len(steeper):
            break
        winners = current[owners[steeper]]
        rise = intercepts[winners] - intercepts[steeper]
        gammas = rise / (slopes[steeper] - slopes[winners])
        starts = np.flatnonzero(np.diff(owners[steeper], prepend=-1))
        nearest = np.minimum.reduceat(gammas, starts)
        # The steepest line that crosses the winner there is above the others.
        crosses = gammas == nearest[_owners(starts, len(gammas))]
        places = _first_largest(np.where(crosses, slopes[steeper], -np.inf), starts)
        moving, following = owners[steeper[starts]], steeper[places]
        changes.append(lists.counts[following] - lists.counts[current[moving]])
        corners.append(nearest)
        current[moving] = following
    gammas = np.concatenate(corners)
    order = np.argsort(gammas, kind="stable")
    return gammas[order[1:]], np.concatenate(changes)[order].cumsum(0)


def _owners(starts: np.ndarray, rows: int) -> np.ndarray:
    """Return (rows,) the number of each row's list."""
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, rows)))


def _first_largest(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return (S,) the first position of each list's maximum."""
    largest = np.maximum.reduceat(values, starts)[_owners(starts, len(values))]
    positions = np.where(values == largest, np.arange(len(values)), len(values))
    return np.minimum.reduceat(positions, starts)


def _intervals(corners: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return the middles and widths of the (n + 1) intervals of n corners.

    The outer intervals are taken to be a fifth as wide as the span of the corners.
    """
    if not len(corners):
        return np.zeros(1), np.full(1, np.inf)
    margin = 0.1 * max(corners[-1] - corners[0], np.abs(corners[[0, -1]]).max(), 1e-6)
    edges = np.concatenate([[corners[0] - 2 * margin], corners, [corners[-1] + 2 * margin]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def tune(
    lists: Lists,
    start: np.ndarray,
    measure: Measure,
    restarts: int = 10,
    seed: int = 1,
    on_line: Callable[[], object] = lambda: None,
) -> np.ndarray:
    """Return the best weights found by searches from ``start`` and from random weights.

    Args:
        lists: of all sentences.
        start: (F,) weights; zeros stand for the first feature alone.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
        restarts: number of random starts.
        seed: of the random starts.
        on_line: called after every line search.

    Returns:
        (F,) weights whose absolute values sum to 1.
    """
    generator = np.random.default_rng(seed)
    starts = [start if start.any() else np.eye(len(start))[0]]
    starts += list(generator.uniform(-1, 1, (restarts, len(start))) / _spread(lists))
    found = [climb(lists, weights, measure, on_line) for weights in starts]
    return max(found, key=lambda pair: measure.sign * pair[0])[1]


def climb(
    lists: Lists, weights: np.ndarray, measure: Measure, on_line: Callable
) -> Tuple[float, np.ndarray]:
    """Search along one coordinate after the other, until no coordinate gains.

    Returns:
        the measure and the weights.
    """
    weights = _normalised(weights)
    value = measure.value(lists.sums(weights))
    idle = 0  # searches in a row without a gain
    for coordinate in cycle(np.eye(len(weights))):
        step = best_step(lists, weights, coordinate, measure)
        moved = _normalised(weights + step * coordinate)
        there = measure.value(lists.sums(moved))  # measured anew: corners are rounded
        idle += 1
        if measure.sign * (there - value) > SMALLEST_GAIN:
            weights, value, idle = moved, there, 0
        on_line()
        if idle == len(weights):
            break
    return value, weights


def _normalised(weights: np.ndarray) -> np.ndarray:
    """Scale weights so that absolute values sum to 1; zeros stay."""
    return weights / (np.abs(weights).sum() or 1)


def _spread(lists: Lists) -> np.ndarray:
    """Return (F,) the standard deviation of each feature within its list."""
    owners = _owners(lists.starts, len(lists.features))
    means = np.add.reduceat(lists.features, lists.starts) / np.bincount(owners)[:, None]
    spread = (lists.features - means[owners]).std(0)
    return np.where(spread > 0, spread, 1.0)
