"""Sampled binary cross-entropy: what its optima are, and how exact it is of rare words."""

import itertools

import pytest
import torch
from loss_cases import SAMPLED_BCE, assert_near, call, gradients, make_problem, with_gradients

from fairseq_bnce import losses

# A context's words: their probabilities in the data, one above a half, and in the noise.
P = torch.tensor([0.62, 0.2, 0.11, 0.06, 0.01], dtype=torch.float64)
Q = torch.tensor([0.3, 0.1, 0.35, 0.05, 0.2], dtype=torch.float64)
DRAWS, LOG_Z = 2, 0.7


def expected_loss(name, scores):
    """Over all targets and all tuples of draws, by calls of the loss itself; scores (V,)."""
    size = len(scores)
    problem = {
        "features": scores.new_zeros(size, 1),
        "target": torch.arange(size),
        "weight": scores.new_zeros(size, 1),
        "bias": scores,
        "log_q": Q.log(),
    }
    total = scores.new_zeros(())
    for draws in itertools.product(range(size), repeat=DRAWS):
        problem["noise_ids"] = torch.tensor(draws)
        values = call(losses, name, problem, log_z=LOG_Z, reduction="none")
        total = total + Q[problem["noise_ids"]].prod() * (P @ values)
    return total


@pytest.mark.parametrize("name", ["shared_nce", *SAMPLED_BCE])
def test_the_expected_gradient_is_zero_at_the_datas_log_probabilities(name):
    """Self-normalised to log Z; of "snis" alone, the sigmoid of the scores is p."""
    odds = P / (1 - P) if name == "bce_snis" else P
    scores = (odds.log() + LOG_Z).requires_grad_()
    (gradient,) = torch.autograd.grad(expected_loss(name, scores), scores)
    assert gradient.abs().max() < 1e-7  # log_q is read in float32
    (elsewhere,) = torch.autograd.grad(expected_loss(name, scores + 1), scores)
    assert (elsewhere > 0.001).all()


@pytest.mark.parametrize("bias_of_rarest, is_target", [(-20.7, False), (-20.7, True), (0, True)])
@pytest.mark.parametrize("name", SAMPLED_BCE)
def test_the_rarest_word_is_as_exact_as_others(name, bias_of_rarest, is_target):
    """A draw of probability 1e-9 weighs 2e8, and its softplus is as small.

    As a target it may be large: the two products are not to be subtracted from each other.
    """
    problem = make_problem(17)
    log_q, bias = problem["log_q"].clone(), problem["bias"].clone()
    log_q[5], bias[5] = -20.7, bias_of_rarest
    problem["target"][:] = 5 if is_target else problem["target"]
    noise = torch.tensor([0, 1, 5, 2, 0])
    problem.update(log_q=log_q, bias=bias, noise_ids=noise, weight=problem["weight"] / 4)
    rough, fine = (with_gradients(problem, dtype) for dtype in (torch.float32, torch.float64))
    got, want = call(losses, name, rough), call(losses, name, fine)
    assert_near(got, want, 1e-5)
    found = gradients(got, rough)
    for key, gradient in gradients(want, fine).items():
        assert_near(found[key], gradient, 1e-5)
