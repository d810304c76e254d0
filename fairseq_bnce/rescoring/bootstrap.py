"""How sure a difference is: paired bootstrap over sentences (Efron 1979; Koehn 2004)."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import numpy as np

CHUNK = 100  # resamples at a time: (100, sentences) multiplicities


class Comparison(NamedTuple):
    """Two choices of hypotheses for the same sentences: the measure, and 95 % intervals.

    Attributes:
        before, after: the measure.
        before_interval, after_interval, gain_interval: percentiles 2.5 and 97.5 of the resamples;
            that of the gain is of after - before in each resample.
        sentences: how many.
    """

    before: float
    after: float
    before_interval: Tuple[float, float]
    after_interval: Tuple[float, float]
    gain_interval: Tuple[float, float]
    sentences: int


def compare(
    before: np.ndarray, after: np.ndarray, measure: Any, *, resamples: int = 1000, seed: int = 1
) -> Comparison:
    """Compare by counts (sentences, C) before and after.

    Args:
        before, after: int64 counts of ``measure``, sentence by sentence.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
        resamples: how often as many sentences are drawn with replacement, the same for both.
        seed: the result is the same for the same one.
    """
    values_of_all = measure.value(before.sum(0)), measure.value(after.sum(0))
    generator = np.random.default_rng(seed)
    values = [
        _resampled(np.stack([before, after]), measure, min(CHUNK, resamples - start), generator)
        for start in range(0, resamples, CHUNK)
    ]
    old, new = np.concatenate(values, axis=1)
    return Comparison(
        *values_of_all,
        _interval(old),
        _interval(new),
        _interval(new - old),
        len(before),
    )


def _resampled(
    counts: np.ndarray, measure: Any, resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """(2, resamples) the measure of both; a resample that has none (nan) is drawn again."""
    size = counts.shape[1]
    drawn = generator.integers(size, size=(resamples, size))
    times = np.stack([np.bincount(row, minlength=size) for row in drawn])
    values = np.stack([measure.values(times @ system) for system in counts])
    has_none = np.isnan(values).any(0)
    if has_none.any():
        values[:, has_none] = _resampled(counts, measure, int(has_none.sum()), generator)
    return values


def _interval(values: np.ndarray) -> Tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
