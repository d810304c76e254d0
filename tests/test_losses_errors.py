"""What the losses refuse: a ValueError that names the argument."""

import doctest
import importlib
import math

import pytest
import torch
from loss_cases import ROWS, TARGETED, call, make_problem

from fairseq_bnce import losses

LONG = torch.int64
LEARNED = torch.zeros((), requires_grad=True)
# Of a problem of 3 tokens, 7 words, 8 dimensions and 6 draws.
BAD = [
    ("features", torch.zeros(11)),
    ("features", torch.zeros(3, 8, dtype=LONG)),
    ("weight", torch.zeros(7, 9)),
    ("weight", torch.zeros(7, 8, 1)),
    ("bias", torch.zeros(1)),
    ("bias", torch.zeros(7, dtype=LONG)),
    ("log_q", torch.zeros(9)),
    ("log_q", torch.zeros(7, dtype=LONG)),
    ("log_q", make_problem(3)["log_q"].exp()),
    ("log_q", torch.full((7,), -math.inf)),
    ("target", torch.zeros(4, dtype=LONG)),
    ("target", torch.zeros(3, 1, dtype=LONG)),
    ("target", torch.zeros(3)),
    ("target", torch.tensor([0, -1, 2])),
    ("target", torch.tensor([0, 1, 7])),
    ("noise_ids", torch.zeros(3, 6, dtype=LONG)),
    ("noise_ids", torch.zeros(6)),
    ("noise_ids", torch.tensor([1, 900])),
    ("fresh_ids", torch.zeros(6, dtype=LONG)),
    ("fresh_ids", torch.zeros(4, 6, dtype=LONG)),
    ("fresh_ids", torch.full((3, 6), -5)),
    ("fresh_ids", torch.zeros(3, 0, dtype=LONG)),
]


def refuse(name, argument, options=None, **changes):
    with pytest.raises(ValueError, match=f"^{argument.replace('fresh', 'noise')}: required"):
        call(losses, name, {**make_problem(3), **changes}, **(options or {}))


@pytest.mark.parametrize("name", ROWS)
def test_bad_tensors(name):
    for argument, value in BAD:
        if argument in ROWS[name].tensors:
            refuse(name, argument, **{argument: value})


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].takes_log_z])
def test_bad_options(name):
    refuse(name, "reduction", {"reduction": "average"})  # or it would silently be another one
    if name in TARGETED:  # its gradient would be lost
        refuse(name, "log_z", {"log_z": LEARNED})
        learned = {"log_q": make_problem(3)["log_q"].requires_grad_()}
        refuse(name, "log_q", **learned)
        with torch.no_grad():
            call(losses, name, {**make_problem(3), **learned}, log_z=LEARNED)


BAD_OPTIONS = [
    ("bce_complementary", "estimator", "mc"),
    ("bce_cps", "vocab_size", -1),
    ("bce_cps", "vocab_size", 0),
    ("log_partition", "chunk_tokens", 0),
    ("partition_penalty", "alpha", -1.0),
    ("ranking", "alpha", -1.0),
    ("ranking", "alpha", math.nan),
    ("ranking", "alpha", LEARNED + 1),
]


@pytest.mark.parametrize("name, option, value", BAD_OPTIONS)
def test_bad_options_of_one_loss(name, option, value):
    refuse(name, option, {option: value})


def test_the_penalty_has_a_gradient_by_log_z():
    loss = call(losses, "partition_penalty", make_problem(3), log_z=LEARNED)
    (gradient,) = torch.autograd.grad(loss, LEARNED)
    assert gradient != 0


@pytest.mark.parametrize("name", [n for n in ROWS if "log_q" in ROWS[n].tensors and n != "nce"])
def test_no_noise(name):
    """K = 0 leaves nothing to tell the data from; a single target has no noise but draws."""
    one = {"features": torch.zeros(2, 8), "target": torch.tensor([2, -100])}
    refuse(name, "noise_ids", noise_ids=torch.zeros(0, dtype=LONG), **one)


@pytest.mark.parametrize("module", ["nce", "bce", "ranking", "partition", "words", "squashing"])
def test_examples(module):
    names = {"torch": torch, "math": math, **vars(losses)}
    module = importlib.import_module(f"fairseq_bnce.losses.{module}")
    tested = doctest.testmod(module, extraglobs=names)
    assert tested.attempted and not tested.failed
