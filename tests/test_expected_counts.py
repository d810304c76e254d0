"""Expected counts of noise words: what stays the same on average, by counting all cases."""

import itertools
import math

import pytest
import torch

from fairseq_bnce import losses

WORDS, SIZE = 4, 3


@pytest.fixture
def problem():
    rng = torch.Generator().manual_seed(1)
    shapes = {"features": (1, SIZE), "weight": (WORDS, SIZE), "bias": (WORDS,)}
    made = {n: torch.randn(s, generator=rng, dtype=torch.float64) for n, s in shapes.items()}
    log_q = torch.randn(WORDS, generator=rng, dtype=torch.float64).log_softmax(0)
    return {**made, "log_q": log_q}


def mean_over_noise(value, log_q, count):
    """The mean of value(noise) over all noise of `count` draws from q."""
    total = 0.0
    for noise in itertools.product(range(WORDS), repeat=count):
        noise = torch.tensor(noise)
        total += math.exp(log_q[noise].sum()) * value(noise)
    return total


@pytest.mark.parametrize("target", range(WORDS))
@pytest.mark.parametrize("count", [1, 3])
def test_the_binary_loss_keeps_its_mean(problem, target, count):
    """And so, at the data's distribution, its optimum."""
    log_q, target = problem["log_q"], torch.tensor([target])

    def loss(are_expected):
        options = {"expected_counts": are_expected, "log_z": 0.3}
        return lambda noise: losses.batch_nce_loss(
            **problem, target=target, noise_ids=noise, **options
        ).item()

    want = mean_over_noise(loss(False), log_q, count)
    assert mean_over_noise(loss(True), log_q, count) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("target", range(WORDS))
@pytest.mark.parametrize("count", [1, 3])
def test_the_ranking_loss_estimates_the_partition_function_without_bias(problem, target, count):
    log_q, target = problem["log_q"], torch.tensor([target])
    layer = [problem[name] for name in ("features", "weight", "bias")]
    score = losses.target_scores(layer[0], target, *layer[1:])

    def estimate(noise):
        options = {"expected_counts": True, "noise_ids": noise}
        return (losses.ranking_nce_loss(**problem, target=target, **options) + score).exp().item()

    want = losses.log_partition(*layer).exp().item()
    assert mean_over_noise(estimate, log_q, count) == pytest.approx(want, rel=1e-12)
