"""Confidence of a difference: paired bootstrap over sentences (Efron 1979; Koehn 2004)."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import numpy as np

CHUNK = 100  # resamples at a time; memory is (CHUNK, sentences)


class Comparison(NamedTuple):
    """The measure of two choices of hypotheses for the same sentences, with 95 % intervals.

    Attributes:
        before, after: the measure.
        before_interval, after_interval: percentiles 2.5 and 97.5 of the resamples.
        gain_interval: the same of after - before in each resample.
        sentences: the number of sentences.
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
    """Compare two choices by their counts (sentences, C).

    Args:
        before, after: int64 counts of ``measure`` for each sentence.
        measure: of :mod:`fairseq_bnce.rescoring.measures`.
        resamples: number of resamples; both choices share them.
        seed: of the resamples.
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
    """Return (2, resamples) measures; a resample without a measure (nan) is drawn again."""
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
