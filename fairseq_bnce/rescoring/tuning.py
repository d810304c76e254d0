"""Fit weights to a measure: line searches along the coordinates, from several starts (Och 2003).

Along w + γ d the total of a hypothesis is a line in γ, with intercept F·w and slope F·d. The best
hypothesis of a list changes only at a corner of the upper envelope of its lines. With the corners
of all lists merged, the summed counts, and so the measure, are known exactly between corners.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_bnce.rescoring.weights import totals

SMALLEST_GAIN = 1e-9  # of the measure; a smaller gain is rounding
# Relative: on a narrower interval of γ the winner depends on rounding.
NARROWEST = 1e-9
# A bound of corners, which almost parallel lines would exceed; sums and products stay finite.
FARTHEST = 1e150


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

    def owners(self) -> np.ndarray:
        """Return (M,) the list of each hypothesis."""
        sizes = np.diff(np.append(self.starts, len(self.features)))
        return np.repeat(np.arange(len(self.starts)), sizes)

    def best(self, weights: np.ndarray) -> np.ndarray:
        """Return (S,) the first hypothesis with the highest total in each list."""
        return _first_largest(totals(self.features, weights), self.starts, self.owners())

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Return (C,) the summed counts of the hypotheses that these weights choose."""
        return self.counts[self.best(weights)].sum(0)


class Step(NamedTuple):
    """A step along a line, and the measure after it."""

    length: float
    value: float


class Surface(NamedTuple):
    """Summed counts along a line: row i of (n + 1, C) holds between corners i - 1 and i of (n,)."""

    corners: np.ndarray
    sums: np.ndarray


def best_step(lists: Lists, weights: np.ndarray, direction: np.ndarray, measure: Any) -> Step:
    """Find the middle of the best interval along weights + γ·direction.

    Args:
        lists: of all sentences.
        weights, direction: (F,) float64.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.

    Returns:
        γ and the measure there, in the widest of equally good intervals.
    """
    surface = error_surface(lists, weights, direction)
    lengths, widths = _middles(surface.corners)
    values = measure.sign * measure.values(surface.sums)
    values = np.where(widths > NARROWEST * np.maximum(1, np.abs(lengths)), values, -np.inf)
    candidates = np.flatnonzero(values >= values.max() - 1e-12)
    chosen = candidates[np.argmax(widths[candidates])]
    return Step(float(lengths[chosen]), float(measure.sign * values[chosen]))


def error_surface(lists: Lists, weights: np.ndarray, direction: np.ndarray) -> Surface:
    """Return the exact counts on every interval of γ."""
    intercepts, slopes = totals(lists.features, weights), totals(lists.features, direction)
    first, corners, before, after = _envelopes(intercepts, slopes, lists)
    order = np.argsort(corners, kind="stable")
    changes = lists.counts[after[order]] - lists.counts[before[order]]
    start = lists.counts[first].sum(0, keepdims=True)
    return Surface(corners[order], np.concatenate([start, start + changes.cumsum(0)]))


def _envelopes(
    intercepts: np.ndarray, slopes: np.ndarray, lists: Lists
) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Walk the upper envelopes of all lists side by side, from γ = -∞, a corner at a time.

    Returns:
        (S,) each list's hypothesis at -∞; then, of all corners, γ and the hypotheses on its left
        and on its right.
    """
    owners = lists.owners()
    first = _leftmost(intercepts, slopes, lists.starts, owners)
    current, steeper = first.copy(), np.arange(len(slopes))
    found: List[Tuple[np.ndarray, ...]] = []
    while True:
        # A line no steeper than the winner stays below it.
        steeper = steeper[slopes[steeper] > slopes[current[owners[steeper]]]]
        if not len(steeper):
            break
        winners = current[owners[steeper]]
        rise = intercepts[winners] - intercepts[steeper]
        with np.errstate(over="ignore"):
            gammas = rise / (slopes[steeper] - slopes[winners])
        gammas = np.clip(gammas, -FARTHEST, FARTHEST)
        starts = np.flatnonzero(np.diff(owners[steeper], prepend=-1))
        corners, places = _next_corners(gammas, slopes[steeper], starts)
        moving, following = owners[steeper[starts]], steeper[places]
        found.append((corners, current[moving], following))
        current[moving] = following
    if not found:
        return first, np.zeros(0), np.zeros(0, dtype=int), np.zeros(0, dtype=int)
    corners, before, after = (np.concatenate(parts) for parts in zip(*found))
    return first, corners, before, after


def _next_corners(
    gammas: np.ndarray, slopes: np.ndarray, starts: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Return each list's next corner, and the steepest of the lines that cross there."""
    owners = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(gammas))))
    corners = np.minimum.reduceat(gammas, starts)
    steepness = np.where(gammas <= corners[owners], slopes, -np.inf)
    return corners, _first_largest(steepness, starts, owners)


def _leftmost(
    intercepts: np.ndarray, slopes: np.ndarray, starts: np.ndarray, owners: np.ndarray
) -> np.ndarray:
    """Return (S,) the winner at -∞: the least slope, then the highest intercept."""
    least = np.minimum.reduceat(slopes, starts)[owners]
    return _first_largest(np.where(slopes == least, intercepts, -np.inf), starts, owners)


def _first_largest(values: np.ndarray, starts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return (S,) the first position of each list's maximum."""
    largest = np.maximum.reduceat(values, starts)[owners]
    positions = np.where(values == largest, np.arange(len(values)), len(values))
    return np.minimum.reduceat(positions, starts)


def _middles(corners: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Return a point in each of the (n + 1) intervals of n corners, and the intervals' widths.

    The outer intervals are taken to be a fifth as wide as the span of the corners.
    """
    if not len(corners):
        return np.zeros(1), np.full(1, np.inf)
    margin = 0.1 * max(corners[-1] - corners[0], np.abs(corners[[0, -1]]).max(), 1e-6)
    edges = np.concatenate([[corners[0] - 2 * margin], corners, [corners[-1] + 2 * margin]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


class Tuned(NamedTuple):
    """Weights (F,), and the measure of the hypotheses that they choose."""

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
    """Return the best weights found by searches from ``start`` and from random weights.

    Args:
        lists: of all sentences.
        start: (F,) weights; zeros stand for the first feature alone.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
        restarts: number of random starts.
        seed: of the random starts.
        on_line: called after every line search.

    Returns:
        Weights whose absolute values sum to 1.
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
    """Search along one coordinate after the other, until no coordinate gains."""
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
    """Scale weights so that absolute values sum to 1; zeros stay."""
    total = np.abs(weights).sum()
    return weights / total if total > 0 else weights


def _moved(
    lists: Lists, weights: np.ndarray, coordinate: np.ndarray, step: Step, measure: Any
) -> Tuned:
    """Return the weights after a step, with the measure computed anew: corners are rounded."""
    there = normalised(weights + step.length * coordinate)
    return Tuned(there, measure.value(lists.sums(there)))


def _spread(lists: Lists) -> np.ndarray:
    """Return (F,) the standard deviation of each feature within its list."""
    sizes = np.diff(np.append(lists.starts, len(lists.features)))
    means = np.add.reduceat(lists.features, lists.starts) / sizes[:, None]
    spread = (lists.features - means[lists.owners()]).std(0)
    return np.where(spread > 0, spread, 1.0)
