"""What the losses refuse: a ValueError that names the argument, the requirement and what came."""

import math

import pytest
import torch
from loss_cases import BINARY_NCE, ROWS, SAMPLED_BCE, call, make_problem

from fairseq_bnce import losses

COUNT = 3  # tokens; the problem below has 7 words, 8 dimensions and 6 draws


def refuse(name, parts, options=None, **changes):
    """Calls the row with changed tensors; the message must hold one of each part's forms."""
    problem = dict(make_problem(COUNT), **changes)
    with pytest.raises(ValueError) as caught:
        call(losses, name, problem, **(options or {}))
    message = str(caught.value)
    for part in parts:
        assert any(form in message for form in part.split("|")), (part, message)


def cases(*table):
    """(row, argument, value, message parts) for every row that takes the argument."""
    expanded = [
        pytest.param(name, argument, value, parts, id=f"{name}-{argument}-{number}")
        for number, (argument, value, parts) in enumerate(table)
        for name, row in ROWS.items()
        if argument in row.tensors
    ]
    return pytest.mark.parametrize("name, argument, value, parts", expanded)


FLOAT, LONG = torch.float32, torch.int64


@cases(
    ("features", torch.zeros(11), ["11"]),
    ("features", torch.zeros(3, 1, 8), ["(3, 1, 8)|[3, 1, 8]"]),
    ("weight", torch.zeros(56), ["56"]),
    ("weight", torch.zeros(7, 9), ["(7, 9)|[7, 9]", "8"]),
    ("weight", torch.zeros(7, 8, 1), ["(7, 8, 1)|[7, 8, 1]"]),
    ("bias", torch.zeros(9), ["(9,)|[9]", "7"]),
    ("bias", torch.zeros(7, 1), ["(7, 1)|[7, 1]", "7"]),
    ("bias", torch.zeros(1), ["(1,)|[1]", "7"]),
    ("log_q", torch.zeros(9), ["(9,)|[9]", "7"]),
    ("log_q", torch.zeros(7, 1), ["(7, 1)|[7, 1]", "7"]),
    ("target", torch.zeros(4, dtype=LONG), ["(4,)|[4]", "3"]),
    ("target", torch.zeros(1, dtype=LONG), ["(1,)|[1]", "3"]),
    ("target", torch.zeros(3, 1, dtype=LONG), ["(3, 1)|[3, 1]"]),
    ("noise_ids", torch.zeros(3, 6, dtype=LONG), ["(3, 6)|[3, 6]"]),
    ("noise_ids", torch.tensor(1), ["()|[]"]),
)
def test_wrong_shape(name, argument, value, parts):
    """The message holds the shape that came."""
    refuse(name, [argument] + parts, **{argument: value})


@pytest.mark.parametrize("argument", ["target", "log_q"])
def test_another_device(argument):
    """As of a NoiseDistribution that stayed on the CPU: torch's own message has no name."""
    elsewhere = make_problem(COUNT)[argument].to("meta")
    parts = [argument, "device of weight", "meta"]
    refuse("bnce", parts, **{argument: elsewhere})


@cases(
    ("fresh_ids", torch.zeros(6, dtype=LONG), ["(6,)|[6]"]),
    ("fresh_ids", torch.zeros(4, 6, dtype=LONG), ["(4, 6)|[4, 6]", "3"]),
    ("fresh_ids", torch.zeros(1, 6, dtype=LONG), ["(1, 6)|[1, 6]", "3"]),
    ("fresh_ids", torch.zeros(3, 6, dtype=torch.int32), ["int64", "int32"]),
    ("fresh_ids", torch.full((3, 6), 7), ["7"]),
    ("fresh_ids", torch.full((3, 6), -5), ["-5"]),
    ("fresh_ids", torch.zeros(3, 0, dtype=LONG), ["(3, 0)|[3, 0]|none"]),
)
def test_wrong_fresh_draws(name, argument, value, parts):
    """nce_loss's noise_ids (N, K): the same checks in two dimensions."""
    refuse(name, ["noise_ids"] + parts, **{argument: value})


@cases(
    ("features", torch.zeros(3, 8, dtype=LONG), ["float", "int64"]),
    ("weight", torch.zeros(7, 8, dtype=LONG), ["float", "int64"]),
    ("bias", torch.zeros(7, dtype=LONG), ["float", "int64"]),
    ("log_q", torch.zeros(7, dtype=LONG), ["float", "int64"]),
    ("target", torch.zeros(3, dtype=torch.int32), ["int64", "int32"]),
    ("target", torch.zeros(3), ["int64", "float32"]),
    ("noise_ids", torch.zeros(6, dtype=torch.int32), ["int64", "int32"]),
    ("noise_ids", torch.zeros(6), ["int64", "float32"]),
)
def test_wrong_dtype(name, argument, value, parts):
    """The message holds the type that is required and the type that came."""
    refuse(name, [argument] + parts, **{argument: value})


@cases(
    ("target", torch.tensor([0, -1, 2]), ["-1", "7|6"]),
    ("target", torch.tensor([0, 1, 7]), ["7"]),
    ("target", torch.tensor([0, 12, 2]), ["12", "7|6"]),
    ("noise_ids", torch.tensor([-3, 1]), ["-3", "7|6"]),
    ("noise_ids", torch.tensor([1, 7]), ["7"]),
    ("noise_ids", torch.tensor([1, 900]), ["900", "7|6"]),
)
def test_id_outside_the_vocabulary(name, argument, value, parts):
    """The message holds the id and the vocabulary's size (or its last id)."""
    refuse(name, [argument] + parts, **{argument: value})


@pytest.mark.parametrize("name", ["shared_nce", *SAMPLED_BCE, "sampled_softmax"])
def test_no_draws(name):
    """K = 0 leaves nothing to tell the data from."""
    refuse(name, ["noise_ids", "0|none"], noise_ids=torch.zeros(0, dtype=LONG))


@pytest.mark.parametrize(
    "name, key",
    [
        (name, key)
        for name in (*BINARY_NCE, *SAMPLED_BCE, "sampled_softmax")
        for key in ("target", "noise_ids", "fresh_ids")
        if key in ROWS[name].tensors
    ],
)
def test_zero_probability(name, key):
    """A used word of probability zero is refused, whether a target or a draw."""
    problem = make_problem(COUNT, repeated=False)
    ids = problem[key].clone()
    ids.view(-1)[1] = 9
    log_q = problem["log_q"].clone()
    log_q[9] = -math.inf
    problem.update({key: ids, "log_q": log_q})
    refuse(name, ["log_q", "-inf|zero", "9"], **problem)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].reduces])
def test_unknown_reduction(name):
    """Only "sum" and "none": a mean over tokens is the caller's business."""
    refuse(name, ["reduction", "sum", "none", "mean"], {"reduction": "mean"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].takes_log_z])
def test_log_z_must_be_finite(name, value):
    """A constant that is not finite would make every loss NaN."""
    refuse(name, ["log_z", str(value)], {"log_z": value})


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].takes_log_z])
def test_log_z_must_have_no_gradient(name):
    """It would be silently wrong, or none; the bias less log Z has the right one."""
    learned = torch.zeros((), requires_grad=True)
    if name == "partition_penalty":  # the one that promises it
        call(losses, name, make_problem(COUNT), log_z=learned).sum().backward()
        assert learned.grad != 0
    else:
        refuse(name, ["log_z: required a constant", "got one with a gradient"], {"log_z": learned})
    with torch.no_grad():
        call(losses, name, make_problem(COUNT), log_z=learned)


@pytest.mark.parametrize("name", [name for name in ROWS if "log_q" in ROWS[name].tensors])
def test_probabilities_are_no_log_probabilities(name):
    log_q = make_problem(COUNT)["log_q"].exp()
    refuse(name, ["log_q: required log-probabilities, 0 at most and finite"], log_q=log_q)


@pytest.mark.parametrize("name", ["bnce", "bnce_noise", "ranking"])
def test_one_target_needs_a_draw(name):
    """It has no noise but extra draws."""
    refuse(
        name,
        ["noise_ids: required at least one draw when there is a single target, got none"],
        features=torch.zeros(1, 8),
        target=torch.tensor([2]),
        **({"noise_ids": torch.zeros(0, dtype=LONG)} if name == "bnce_noise" else {}),
    )


@pytest.mark.parametrize("value", [-1.5, math.nan, math.inf])
def test_alpha_must_not_be_negative(value):
    """A negative alpha would reward partition functions far from the constant."""
    problem = make_problem(COUNT)
    parameters = [problem[key] for key in ROWS["partition_penalty"].tensors]
    with pytest.raises(ValueError) as caught:
        losses.partition_penalty(*parameters, alpha=value)
    assert "alpha" in str(caught.value) and str(value) in str(caught.value)


def test_unknown_estimator():
    names = "complementary or is or cps or snis"
    refuse("bce_complementary", ["estimator", names, "mc"], {"estimator": "mc"})


@pytest.mark.parametrize("value", [0, -3])
def test_vocabulary_must_have_words(value):
    refuse("bce_complementary", ["vocab_size", "at least 1", str(value)], {"vocab_size": value})


@pytest.mark.parametrize("value", [0, -3])
def test_chunk_tokens_must_be_positive(value):
    """A chunk holds at least one token."""
    refuse("log_partition", ["chunk_tokens", str(value)], {"chunk_tokens": value})
