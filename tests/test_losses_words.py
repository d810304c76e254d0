"""The distinct words of a batch, and losses of words that were gathered before."""

import pytest
import torch
from loss_cases import (
    ROWS,
    SAMPLED_BCE,
    TARGETED,
    assert_near,
    call,
    gradients,
    make_problem,
    with_gradients,
)

from fairseq_bnce import losses
from fairseq_bnce.losses import words


def test_distinct():
    first, second = torch.tensor([[5, 2], [5, 9]]), torch.tensor([2, 7])
    found, (one, other) = words.distinct(first, second)
    assert found.tolist() == [2, 5, 7, 9]
    assert torch.equal(found[one], first) and torch.equal(found[other], second)


@pytest.mark.parametrize("seed", range(20))
def test_distinct_with_draws(seed):
    rng = torch.Generator().manual_seed(seed)
    draws = torch.randint(12, (1 + seed % 7,), generator=rng)
    first, second = torch.randint(12, (seed,), generator=rng), torch.randint(30, (2, 3))
    found, (one, other), drawn, counts = words.distinct_with_draws(draws, first, second)
    want, often = draws.unique(return_counts=True)
    assert torch.equal(found[drawn], want) and torch.equal(counts, often)
    assert torch.equal(found, torch.cat([draws, first, second.flatten()]).unique())
    assert torch.equal(found[one], first) and torch.equal(found[other], second)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("name", TARGETED)
def test_gathered_words_give_the_same_loss(name, bias):
    problem = with_gradients(make_problem(17, draws=9, bias=bias), torch.float64)
    keys = [key for key in ("target", "noise_ids", "fresh_ids") if key in ROWS[name].tensors]
    used, numbers = words.distinct(*(problem[key] for key in keys))
    gathered = {**problem, **dict(zip(keys, numbers)), "log_q": problem["log_q"][used]}
    want = call(losses, name, problem).sum()
    want_gradients = gradients(want, problem)
    for key in ("weight", "bias")[: 2 if bias else 1]:
        gathered[key] = problem[key][used]
    loss = call(losses, name, gathered).sum()
    assert_near(loss, want, 1e-12)
    found = gradients(loss, problem)
    for key, gradient in want_gradients.items():
        assert_near(found[key], gradient, 1e-12)


@pytest.mark.parametrize("name", ["shared_nce", *SAMPLED_BCE])
def test_counts_stand_for_repeated_draws(name):
    problem = with_gradients(make_problem(17), torch.float64)
    ids, counts = torch.tensor([3, 1, 4]), torch.tensor([2, 1, 5])
    repeated = {**problem, "noise_ids": ids.repeat_interleave(counts)}
    counted = {**problem, "noise_ids": ids}
    want = call(losses, name, repeated, reduction="none")
    got = call(losses, name, counted, reduction="none", noise_counts=counts)
    assert_near(got, want, 1e-12)


@pytest.mark.parametrize(
    "counts, said",
    [
        (torch.tensor([1, 2]), r"noise_counts: required shape \(3\), got shape \(2,\)"),
        (torch.ones(3), "noise_counts: required dtype torch.int64, got torch.float32"),
        (torch.tensor([1, 0, 2]), "noise_counts: required at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("name", ["shared_nce", "bce_is"])
def test_bad_counts(name, counts, said):
    problem = {**make_problem(17), "noise_ids": torch.tensor([3, 1, 4])}
    with pytest.raises(ValueError, match=said):
        call(losses, name, problem, noise_counts=counts)
