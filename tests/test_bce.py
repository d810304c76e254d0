"""Sampled binary cross-entropy: what its optima are, and which of its estimators are one."""

import itertools

import pytest
import torch
from loss_cases import SAMPLED_BCE, assert_near, call, gradients, make_problem, with_gradients
from torch.nn.functional import logsigmoid

from fairseq_bnce import losses

# Of a context's words, which are the data's and the noise's; one has more than half of the data.
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


def optimum(name):
    """The scores at which the expected loss is least."""
    scores = torch.zeros(len(P), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [scores],
        max_iter=100,
        tolerance_grad=1e-9,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def evaluate():
        optimizer.zero_grad()
        loss = expected_loss(name, scores)
        loss.backward()
        return loss

    optimizer.step(evaluate)
    assert scores.grad.abs().max() < 1e-7
    return scores.detach()


@pytest.mark.parametrize("name", ["shared_nce", "bce_is", "bce_cps", "bce_complementary"])
def test_scores_at_the_optimum_are_log_probabilities(name):
    """Self-normalised to log Z, and with no correction: that is in the scores already."""
    torch.testing.assert_close((optimum(name) - LOG_Z).exp(), P, rtol=0, atol=1e-6)


def test_the_optimum_of_snis_is_the_datas_log_odds():
    """The sigmoid of the scores is p; their exponential is p / (1 - p)."""
    found = optimum("bce_snis") - LOG_Z
    torch.testing.assert_close(logsigmoid(found).exp(), P, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.exp(), P / (1 - P), rtol=1e-5, atol=0)


def test_all_estimators_but_cps_have_one_expectation():
    """Of the target's term and the sum over the others, which "is" samples together."""
    scores = torch.tensor([0.3, -1.0, 0.4, -2.0, 0.1], dtype=torch.float64)
    of_data = logsigmoid(LOG_Z - scores)  # log(1 - sigma(s))
    exact = {"bce_snis": -(P @ logsigmoid(scores - LOG_Z)) - ((1 - P) * of_data).sum()}
    exact["bce_complementary"] = exact["bce_is"] = exact["bce_snis"] - P @ of_data
    for name, want in exact.items():
        assert_near(expected_loss(name, scores), want, 1e-12)


def same(got, want, problem):
    """Losses and all gradients."""
    assert_near(got, want, 1e-12)
    found = gradients(got, problem)
    for key, gradient in gradients(want, problem).items():
        assert_near(found[key], gradient, 1e-12)


def test_cps_is_nce_at_the_noise_ratio_of_the_vocabulary():
    """With as many draws as words, compensation changes nothing: plain NCE."""
    problem = with_gradients(make_problem(17), torch.float64)
    problem["noise_ids"] = torch.arange(7) // 2
    assert len(problem["weight"]) == 7
    want = call(losses, "shared_nce", problem, log_z=0.4)
    tensors = {k: problem[k] for k in ("features", "target", "weight", "bias", "log_q")}
    got = losses.sampled_bce_loss(
        **tensors, noise_ids=problem["noise_ids"], estimator="cps", log_z=0.4
    )
    same(got, want, problem)


def test_cps_under_uniform_noise_is_importance_sampling():
    problem = with_gradients(make_problem(17), torch.float64)
    problem["log_q"] = torch.full((7,), 1 / 7, dtype=torch.float64).log()
    problem["noise_ids"] = torch.tensor([0, 3, 3, 6])
    draws = [
        losses.sampled_bce_loss(
            **{k: problem[k] for k in ("features", "target", "weight", "bias", "log_q")},
            noise_ids=problem["noise_ids"],
            estimator=estimator,
        )
        for estimator in ("is", "cps")
    ]
    same(*draws, problem)


@pytest.mark.parametrize("name", ["bce_complementary", "bce_snis"])
def test_draws_of_the_target_change_nothing_but_their_number(name):
    """A draw of the target counts as one of the K, and adds no loss and no gradient."""
    problem = with_gradients(make_problem(3), torch.float64)
    problem.update(target=torch.tensor([4, 4, 4]), noise_ids=torch.tensor([4, 2, 4, 5]))
    without = {**problem, "noise_ids": torch.tensor([2, 2, 5, 5])}
    full = call(losses, name, without, reduction="none")
    hit = call(losses, name, problem, reduction="none")
    own = call(losses, name, {**problem, "noise_ids": torch.tensor([4])}, reduction="none")
    same((2 * hit - own).sum(), full.sum(), problem)


@pytest.mark.parametrize("name", SAMPLED_BCE)
def test_the_rarest_word_is_as_exact_as_others(name):
    """A draw of probability 1e-9 weighs 2e8, and its softplus is as small."""
    problem = make_problem(17)
    log_q, bias = problem["log_q"].clone(), problem["bias"].clone()
    log_q[5] = bias[5] = -20.7
    noise = torch.tensor([0, 1, 5, 2, 0])
    problem.update(log_q=log_q, bias=bias, noise_ids=noise, weight=problem["weight"] / 4)
    rough, fine = (with_gradients(problem, dtype) for dtype in (torch.float32, torch.float64))
    got, want = call(losses, name, rough), call(losses, name, fine)
    assert_near(got, want, 1e-5)
    found = gradients(got, rough)
    for key, gradient in gradients(want, fine).items():
        assert_near(found[key], gradient, 1e-5)
