"""fairseq_bnce.rescoring: measures against their libraries, searches against brute force."""

import math
import random
from functools import partial

import numpy as np
import pytest
import sacrebleu

from fairseq_bnce.rescoring import tuning
from fairseq_bnce.rescoring.measures import Bleu, Measure, WordErrorRate, compare
from fairseq_bnce.rescoring.tuning import Lists, best_step, error_surface


def sentences(count, seed, types=3):
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(types)]
    return [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(count)]


def problem(seed, size=12, features=3, ties=False):
    """Lists of one to nine hypotheses with features, and counts of hits out of some trials."""
    rng = np.random.default_rng(seed)
    rows, counts = [], []
    for _ in range(size):
        length = rng.integers(1, 10)
        found = rng.normal(size=(length, features))
        rows.append(np.round(found) if ties else found)
        counts.append(rng.integers(0, 9, size=(length, 2)) + [0, 9])
    return Lists.join(rows, counts)


class Hits(Measure):
    """Not additive over sentences, like BLEU: hits by trials, trials being counted too."""

    def __init__(self, sign=1):
        self.sign = sign

    def values(self, sums):
        return sums[:, 0] / sums[:, 1]


# ---------------------------------------------------------------- measures


@pytest.mark.parametrize("tokenize", ["none", "13a"])
@pytest.mark.parametrize("references", [1, 3])
def test_bleu_is_sacrebleus(tokenize, references):
    """Of few sentences, too, whose counts of longer n-grams are zero and smoothed."""
    hypotheses = sentences(40, 1)
    texts = [sentences(40, seed) for seed in range(2, 2 + references)]
    measure = Bleu(tokenize)
    counts = [measure.counts([h], r)[0] for h, r in zip(hypotheses, zip(*texts))]
    parts = [slice(start, start + size) for start in range(0, 30, 3) for size in (1, 4, 40)]
    sums = np.array([np.sum(counts[part], axis=0) for part in parts])
    assert (sums[:, 2:] > 0).all(1).any() and not (sums[:, 2:] > 0).all(1).all()
    want, options = [], {"tokenize": tokenize, "force": True}
    for part in parts:
        streams = [text[part] for text in texts]
        want.append(sacrebleu.corpus_bleu(hypotheses[part], streams, **options).score)
    np.testing.assert_allclose(measure.values(sums), want, rtol=1e-12)
    assert measure.value(sums[2]) == pytest.approx(want[2], rel=1e-12)


def test_word_error_rate_is_jiwers():
    jiwer = pytest.importorskip("jiwer")
    hypotheses, references = sentences(40, 1), sentences(40, 2)
    hypotheses[3] = ""
    measure = WordErrorRate()
    counts = [measure.counts([h], [r])[0] for h, r in zip(hypotheses, references)]
    want = 100 * jiwer.wer(references, hypotheses)
    assert measure.value(np.sum(counts, axis=0)) == pytest.approx(want, rel=1e-12)
    assert math.isnan(measure.value(np.array([3, 0])))


# ---------------------------------------------------------------- line search


def decoded(lists, weights):
    """The chosen hypotheses' counts, by a loop over the lists; of equals the first one."""
    ends = [*lists.starts[1:], len(lists.features)]
    total = 0
    for start, end in zip(lists.starts, ends):
        rows = lists.features[start:end]
        scores = [float(sum(f * w for f, w in zip(row, weights))) for row in rows]
        total = total + lists.counts[start + scores.index(max(scores))]
    return total


@pytest.mark.parametrize("seed", range(4))
def test_the_surface_is_exact_on_every_interval(seed):
    """Features are whole numbers: some lines are the same, and several cross in one point."""
    lists = problem(seed, ties=True)
    direction = np.eye(3)[seed % 3]
    weights = np.array([0.3, -0.7, 0.2])
    corners, sums = error_surface(lists, weights, direction)
    assert len(sums) == len(corners) + 1 and (np.diff(corners) >= 0).all()
    edges = np.concatenate([[corners[0] - 1], corners, [corners[-1] + 1]])
    checked = 0
    for left, right, found in zip(edges, edges[1:], sums):
        if right - left > 1e-9:
            between = weights + (left + right) / 2 * direction
            np.testing.assert_array_equal(found, decoded(lists, between))
            checked += 1
    assert checked > 5


def test_intervals_too_narrow_for_rounded_numbers_are_not_taken():
    """Only between the corners 1 and 1 + 1e-12 would both lists choose their good hypothesis."""
    rows = [np.array([[0.0, 0], [-1, 1]]), np.array([[0.0, 0], [-1 - 1e-12, 1]])]
    counts = [np.array([[0, 1], [1, 1]]), np.array([[1, 1], [0, 1]])]
    lists, weights = Lists.join(rows, counts), np.array([1.0, 0])
    step = best_step(lists, weights, np.array([0, 1.0]), Hits())
    assert abs(step - 1) > 1e-3 and Hits().value(decoded(lists, weights + [0, step])) == 0.5


@pytest.mark.parametrize("sign", [1, -1])
def test_the_widest_of_equally_good_intervals(sign):
    """Good from -1 to 0 and from 0.5 to 4: the most hits, or the fewest."""
    hits = np.array([0, 1, 0, 1, 0])
    counts = [np.stack([hits if sign > 0 else 1 - hits, np.ones(5, dtype=int)], 1)]
    slopes, corners = np.array([0.0, 1, 2, 3, 4]), [-1.0, 0.0, 0.5, 4.0]
    heights = np.concatenate([[0], np.cumsum([-corner for corner in corners])])
    lists = Lists.join([np.stack([heights, slopes], 1)], counts)
    found, _ = error_surface(lists, np.array([1.0, 0]), np.array([0, 1.0]))
    assert found == pytest.approx(corners)
    assert best_step(lists, np.array([1.0, 0]), np.array([0, 1.0]), Hits(sign)) == 2.25


# ---------------------------------------------------------------- tuning


def best_of_grid(lists, measure, steps=120):
    """Two features: the best value on a fine circle of directions."""
    angles = (np.arange(steps) + 0.5) / steps * 2 * math.pi
    return max(measure.value(decoded(lists, [math.cos(x), math.sin(x)])) for x in angles)


@pytest.mark.parametrize("seed", range(3))
def test_tuning_finds_what_a_grid_finds(seed):
    lists, measure = problem(seed, features=2), Hits()
    found = tuning.tune(lists, np.array([1.0, 0]), measure, restarts=5)
    assert measure.value(decoded(lists, found)) >= best_of_grid(lists, measure) - 1e-12
    assert np.abs(found).sum() == pytest.approx(1)


def test_tuning_is_the_same_for_the_same_seed_and_never_worse_than_its_start():
    lists, start = problem(3, size=30, features=4), np.array([1.0, 0.2, 0, -0.5])
    *both, alone = (tuning.tune(lists, start, Hits(), restarts, seed=7) for restarts in (4, 4, 0))
    np.testing.assert_array_equal(*both)
    before, after, most = (Hits().value(decoded(lists, one)) for one in (start, alone, both[0]))
    assert before < after <= most


def test_a_start_of_zeros_is_not_taken_for_weights():
    """It chooses the first of each list, here the only good one: no weights do as well."""
    lists = problem(3, size=30)
    lists.counts[:] = [0, 9]
    lists.counts[lists.starts] = [9, 9]
    found = tuning.tune(lists, np.zeros(3), Hits(), restarts=3)
    assert np.abs(found).sum() == pytest.approx(1)
    assert Hits().value(decoded(lists, found)) < 1


# ---------------------------------------------------------------- bootstrap


def test_intervals_of_a_mean_are_those_of_the_normal_distribution():
    rng = np.random.default_rng(1)
    before = np.stack([rng.integers(0, 2, 400), np.ones(400, dtype=int)], 1)
    after = before.copy()
    after[:40, 0] = 1
    compared = partial(compare, before, after, Hits(), resamples=2000)
    found, again, other = (compared(seed=seed) for seed in (3, 3, 4))
    for row, values in zip(found, (before[:, 0], after[:, 0], after[:, 0] - before[:, 0])):
        half = 1.96 * values.std() / 20
        mean = values.mean()
        np.testing.assert_allclose(row, [mean, mean - half, mean + half], atol=0.006)
        assert row[0] == pytest.approx(mean, abs=1e-12)
    np.testing.assert_array_equal(found, again)
    assert (found != other).any()


def test_resamples_without_words_in_the_references_do_not_count():
    pytest.importorskip("jiwer")
    empty = [[0, 0]] * 4
    before, after = np.array([[1, 4], *empty]), np.array([[0, 4], *empty])
    found = compare(before, after, WordErrorRate(), resamples=300)
    assert found.tolist() == [[25, 25, 25], [0, 0, 0], [-25, -25, -25]]
