"""The best step along a line of weights, by the exact error surface (Och 2003, section 3).

Along w + γ d the total of a hypothesis is a line in γ, with intercept F·w and slope F·d. The best
hypothesis of a list changes only where the upper envelope of its lines has a corner. With all
lists' corners merged, the summed counts, and so the measure, are known exactly on every interval
of γ.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np

from fairseq_bnce.rescoring.weights import totals

# Relative: on a narrower interval of γ the winner would depend on how numbers are rounded.
NARROWEST = 1e-9
# Where lines are all but parallel they cross beyond any number: corners are no farther than this,
# which leaves room for sums and products of them.
FARTHEST = 1e150


class Lists(NamedTuple):
    """All lists, one after the other.

    Attributes:
        features: (M, F) float64 of M hypotheses.
        counts: (M, C) int64, the measure's.
        starts: (S,) where each of the S lists begins; none is empty.
    """

    features: np.ndarray
    counts: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, features: List[np.ndarray], counts: List[np.ndarray]) -> Lists:
        """From (K_s, F) and (K_s, C) of each list."""
        sizes = [len(rows) for rows in features]
        return cls(np.concatenate(features), np.concatenate(counts), np.cumsum([0, *sizes[:-1]]))

    def owners(self) -> np.ndarray:
        """(M,) the list of each hypothesis."""
        sizes = np.diff(np.append(self.starts, len(self.features)))
        return np.repeat(np.arange(len(self.starts)), sizes)

    def best(self, weights: np.ndarray) -> np.ndarray:
        """(S,) the hypothesis of the highest total in each list, and of equals the first."""
        return _first_largest(totals(self.features, weights), self.starts, self.owners())

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """(C,) the counts of what these weights choose."""
        return self.counts[self.best(weights)].sum(0)


class Step(NamedTuple):
    """A step along a line, and what the measure is there."""

    length: float
    value: float


class Surface(NamedTuple):
    """Summed counts along a line: row i of (n + 1, C) holds between corners i - 1 and i of (n,)."""

    corners: np.ndarray
    sums: np.ndarray


def best_step(lists: Lists, weights: np.ndarray, direction: np.ndarray, measure: Any) -> Step:
    """The middle of the best interval along weights + γ·direction.

    Args:
        lists: of all sentences.
        weights, direction: (F,) float64.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.

    Returns:
        γ and the measure there; of equally good intervals the widest.
    """
    surface = error_surface(lists, weights, direction)
    lengths, widths = _middles(surface.corners)
    values = measure.sign * measure.values(surface.sums)
    values = np.where(widths > NARROWEST * np.maximum(1, np.abs(lengths)), values, -np.inf)
    candidates = np.flatnonzero(values >= values.max() - 1e-12)
    chosen = candidates[np.argmax(widths[candidates])]
    return Step(float(lengths[chosen]), float(measure.sign * values[chosen]))


def error_surface(lists: Lists, weights: np.ndarray, direction: np.ndarray) -> Surface:
    """The counts on every interval of γ, exactly."""
    intercepts, slopes = totals(lists.features, weights), totals(lists.features, direction)
    first, corners, before, after = _envelopes(intercepts, slopes, lists)
    order = np.argsort(corners, kind="stable")
    changes = lists.counts[after[order]] - lists.counts[before[order]]
    start = lists.counts[first].sum(0, keepdims=True)
    return Surface(corners[order], np.concatenate([start, start + changes.cumsum(0)]))


def _envelopes(
    intercepts: np.ndarray, slopes: np.ndarray, lists: Lists
) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All lists' upper envelopes, walked side by side from γ = -∞ on, a corner at a time.

    Returns:
        (S,) each list's hypothesis at -∞; then, of all corners, γ and the hypotheses on its left
        and on its right.
    """
    owners = lists.owners()
    first = _leftmost(intercepts, slopes, lists.starts, owners)
    current, steeper = first.copy(), np.arange(len(slopes))
    found: List[Tuple[np.ndarray, ...]] = []
    while True:
        # What is no steeper than the winner falls behind it for good.
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
    """Where a line first overtakes, and which one: the steepest of those that cross there."""
    owners = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(gammas))))
    corners = np.minimum.reduceat(gammas, starts)
    steepness = np.where(gammas <= corners[owners], slopes, -np.inf)
    return corners, _first_largest(steepness, starts, owners)


def _leftmost(
    intercepts: np.ndarray, slopes: np.ndarray, starts: np.ndarray, owners: np.ndarray
) -> np.ndarray:
    """(S,) what wins at -∞: the least slope, and of equals the highest intercept."""
    least = np.minimum.reduceat(slopes, starts)[owners]
    return _first_largest(np.where(slopes == least, intercepts, -np.inf), starts, owners)


def _first_largest(values: np.ndarray, starts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """(S,) the first position of each list's maximum."""
    largest = np.maximum.reduceat(values, starts)[owners]
    positions = np.where(values == largest, np.arange(len(values)), len(values))
    return np.minimum.reduceat(positions, starts)


def _middles(corners: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """A point in each of the (n + 1) intervals between n corners, and the interval's width.

    The outer intervals have no end: their point is a tenth of the corners' span away from the
    last one, and they count as twice as wide as that.
    """
    if not len(corners):
        return np.zeros(1), np.full(1, np.inf)
    margin = 0.1 * max(corners[-1] - corners[0], np.abs(corners[[0, -1]]).max(), 1e-6)
    edges = np.concatenate([[corners[0] - 2 * margin], corners, [corners[-1] + 2 * margin]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)
