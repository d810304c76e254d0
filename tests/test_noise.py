"""The noise distribution: its probabilities, its draws (chi-squared) and what it refuses."""

import math
from functools import partial

import pytest
import torch

from fairseq_bnce.noise import NoiseDistribution

FLOOR = 1.001e-3  # at most this share of the mass may go to words without counts


def zipf(vocab):
    """Counts in proportion to 1 / rank."""
    return 1e6 / torch.arange(1, vocab + 1, dtype=torch.float64)


def normalised(counts):
    """Probabilities in proportion to the counts, in float64."""
    return counts.double() / counts.double().sum()


def fits(ids, probabilities):
    """True if the draws may well come from the probabilities: Pearson's chi-squared test."""
    observed = torch.bincount(ids.flatten(), minlength=len(probabilities)).double()
    expected = probabilities * ids.numel()
    assert expected.min() > 5
    statistic = ((observed - expected) ** 2 / expected).sum()
    freedom = torch.tensor(len(probabilities) - 1.0)
    return torch.special.gammaincc(freedom / 2, statistic / 2) > 1e-4


def seeded(seed):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


# ---- probabilities ---------------------------------------------------------------------------


COUNTS, RANKS = torch.tensor([3, 0, 8, 500, 8]), torch.tensor([3.0, 4.0, 1.0, 0.0, 2.0])
# A power, or a constructor of COUNTS; and the shares, not normalised.
OF_COUNTS = [
    *((power, (COUNTS + 1).double() ** power) for power in (1.0, 0.75, 0.5, 2.0, 0.0)),
    (NoiseDistribution.log_uniform, torch.log((RANKS + 2) / (RANKS + 1))),
    (lambda counts: NoiseDistribution.uniform(len(counts)), torch.ones(5)),
]


@pytest.mark.parametrize("kind, want", OF_COUNTS)
def test_log_q(kind, want):
    """In proportion to the shares of the kind; normalised, in float32."""
    is_power = isinstance(kind, float)
    log_q = (NoiseDistribution(COUNTS + 1, power=kind) if is_power else kind(COUNTS)).log_q
    assert log_q.dtype == torch.float32 and log_q.shape == (5,)
    assert torch.allclose(log_q.double(), normalised(want).log(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("power", [1.0, 0.75])
@pytest.mark.parametrize("vocab, seen", [(6, 5), (200_000, 3)])
def test_floor(vocab, seen, power):
    """Unseen words get a little mass each and little together; the seen keep their ratios."""
    counts = torch.zeros(vocab)
    counts[:seen] = torch.arange(1, seen + 1).float() ** 2
    log_q = NoiseDistribution(counts, power=power).log_q.double()
    q = log_q.exp()
    assert log_q.isfinite().all() and q.sum().item() == pytest.approx(1, abs=1e-5)
    assert 0 < q[seen:].sum() <= FLOOR
    assert q[seen:].max() < q[:seen].min()
    assert torch.allclose(normalised(q[:seen]), normalised(counts[:seen].double() ** power))


def test_high_power_leaves_every_word():
    """log q is finite also where count^power is too small for float64."""
    log_q = NoiseDistribution(torch.tensor([1000.0, 1.0, 0.0]), power=300.0).log_q
    assert log_q.isfinite().all() and log_q.exp()[0] > 1 - FLOOR


def test_floor_is_drawn():
    """A word's draws follow log_q, floor included: unseen words do come up."""
    noise = NoiseDistribution(torch.tensor([1.0, 2.0, 0.0, 0.0]))
    expected = noise.log_q.double().exp()
    count = int(60 / expected.min())
    assert count < 2e7
    ids = noise.sample(count, generator=seeded(3))
    assert fits(ids, expected / expected.sum())


# ---- draws -----------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 0.75])
def test_draws_follow_q(power):
    """Chi-squared of a million draws of a Zipf distribution."""
    ids = NoiseDistribution(zipf(200), power=power).sample(10**6, generator=seeded(1))
    assert fits(ids, normalised(zipf(200) ** power))
    assert not fits(ids, normalised(zipf(200) ** (power + 0.05)))


def test_very_rare_words_are_all_drawn():
    """100,000 words of probability 1e-8 after a common one: steps that float32 sums cannot make.

    About 2000 draws of them hold some 20 repeats; were only every sixth word possible, 120.
    """
    counts = torch.ones(100_001)
    counts[0] = 99_900_000
    ids = NoiseDistribution(counts).sample(2 * 10**6, generator=seeded(6))
    rare = ids[ids > 0]
    assert abs(len(rare) - 2000) < 200
    assert len(rare) - len(rare.unique()) < 50


def test_draws_are_independent():
    """Pairs of neighbouring draws fill the table of products."""
    ids = NoiseDistribution(torch.tensor([5.0, 3.0, 2.0])).sample(10**5, generator=seeded(5))
    q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    pairs = ids[0::2] * 3 + ids[1::2]
    assert fits(pairs, torch.outer(q, q).flatten())


@pytest.mark.parametrize("shape", [0, 1, 7, (), (3,), (4, 5), (0, 5), (2, 3, 4)])
def test_shape_and_type(shape):
    """n is a number of draws or a shape; ids are int64 and inside the vocabulary."""
    ids = NoiseDistribution(zipf(9)).sample(shape, generator=seeded(0))
    assert ids.shape == (torch.Size([shape]) if isinstance(shape, int) else torch.Size(shape))
    assert ids.dtype == torch.int64
    assert ((ids >= 0) & (ids < 9)).all()


def test_generator_repeats_draws():
    """A seed repeats its draws, each call draws anew, and torch's own state (dropout) stays."""
    noise, before = NoiseDistribution(zipf(1000)), torch.get_rng_state()
    first = noise.sample(100, generator=seeded(1))
    assert torch.equal(first, noise.sample(100, generator=seeded(1)))
    assert not torch.equal(first, noise.sample(100, generator=seeded(2)))
    generator = seeded(1)
    assert torch.equal(first, noise.sample(100, generator=generator))
    assert not torch.equal(first, noise.sample(100, generator=generator))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(3)  # without a generator torch's own is used
    first = noise.sample(100)
    torch.manual_seed(3)
    assert torch.equal(first, noise.sample(100)) and not torch.equal(first, noise.sample(100))


WRONG_COUNTS = [[1.0, -2.0], [1.0, math.nan], [1.0, math.inf], [0.0, 0.0], [], [[1.0, 1.0]], 4.0]
WRONG_COUNTS += [torch.ones(2, requires_grad=True)]  # the gradient would be lost


WRONG = [
    *(("counts", counts, 1.0) for counts in WRONG_COUNTS),
    *(("power", [3.0, 2.0, 1.0], power) for power in (-0.5, math.nan, math.inf)),
]


@pytest.mark.parametrize("name, counts, power", WRONG)
def test_wrong_arguments(name, counts, power):
    """A negative power would draw the rarest words most."""
    counts = torch.as_tensor(counts)
    kinds = [partial(NoiseDistribution, power=power), NoiseDistribution.log_uniform]
    for make in kinds if name == "counts" else kinds[:1]:
        with pytest.raises(ValueError, match=name):
            make(counts)
