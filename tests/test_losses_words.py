"""The distinct words of a batch, and losses of words that were gathered before."""

import pytest
import torch
from loss_cases import ROWS, TARGETED, assert_near, call, gradients, make_problem, with_gradients

from fairseq_bnce import losses
from fairseq_bnce.losses import words


@pytest.mark.parametrize("seed", range(3))
def test_distinct_words(seed):
    rng = torch.Generator().manual_seed(seed)
    draws = torch.randint(12, (1 + seed,), generator=rng)
    first, second = torch.randint(12, (5 * seed,), generator=rng), torch.randint(30, (2, 3))
    want, often = draws.unique(return_counts=True)
    found, (one, other), (drawn, counts) = words.distinct_with_draws(draws, first, second)
    assert torch.equal(found[drawn], want) and torch.equal(counts, often)
    again, (of_draws, *_) = words.distinct(draws, first, second)
    assert torch.equal(again, found) and torch.equal(found[of_draws], draws)
    assert torch.equal(found, torch.cat([draws, first, second.flatten()]).unique())
    assert torch.equal(found[one], first) and torch.equal(found[other], second)


@pytest.mark.parametrize("name", TARGETED)
def test_gathered_words_give_the_same_loss(name):
    problem = with_gradients(make_problem(17, draws=9), torch.float64)
    keys = [key for key in ("target", "noise_ids", "fresh_ids") if key in ROWS[name].tensors]
    used, numbers = words.distinct(*(problem[key] for key in keys))
    gathered = {**problem, **dict(zip(keys, numbers))}
    for key in ("weight", "bias", "log_q"):
        gathered[key] = problem[key][used]
    want, loss = (call(losses, name, each).sum() for each in (problem, gathered))
    assert_near(loss, want, 1e-12)
    found = gradients(loss, problem)
    for key, gradient in gradients(want, problem).items():
        assert_near(found[key], gradient, 1e-12)
