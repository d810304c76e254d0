"""The plugin's optimisers: every flag that adds a parameter, what they refuse, and other states."""

import math
from functools import partial

import pytest
import torch
from fairseq import optim
from test_row_sparse import trained
from tools import LSTM, build, subclasses

from fairseq_bnce.optim import update_rules

pytestmark = pytest.mark.usefixtures("empty_folder")

FULL, HALF = torch.float32, torch.bfloat16
OURS = list(subclasses(update_rules.RowSparseOptimizer))


# ---- what is refused ---------------------------------------------------------------------------


# ---- states of other runs ----------------------------------------------------------------------


def updated(rule, dtype, state=None, updates=3, sparse=False, **options):
    """(parameter, optimizer) after some updates of a parameter of ones."""
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=dtype))
    optimizer = rule([parameter], lr=1e-3)
    if state is not None:
        optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        group.update(options)  # as --optimizer-overrides does, after loading
    for _ in range(updates):
        gradient = torch.full_like(parameter, 0.5)
        parameter.grad = gradient.to_sparse(1) if sparse else gradient
        optimizer.step()
    return parameter, optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_momentum_may_come_by_an_override(dtype):
    _, before = updated(update_rules.SparseSGD, dtype)
    parameter, after = updated(update_rules.SparseSGD, dtype, before.state_dict(), momentum=0.9)
    assert "velocity" in after.state[parameter] and after.state[parameter]["step"] == 6
    usual, _ = updated(update_rules.SparseSGD, dtype, momentum=0.9)
    if dtype == torch.float32:
        assert torch.equal(parameter, usual)
    # and go: what is left of it does no harm
    updated(update_rules.SparseSGD, dtype, after.state_dict(), momentum=0.0)


@pytest.mark.parametrize("rule", OURS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("before, after", [(FULL, HALF), (HALF, FULL), (HALF, HALF)])
def test_a_state_of_any_precision_trains(rule, before, after, sparse):
    """Updates of 1e-3 or less, each lost on 1 in bfloat16, add up in a float32 master."""
    _, started = updated(rule, before, updates=1)
    parameter, optimizer = updated(rule, after, started.state_dict(), updates=100, sparse=sparse)
    _, usual = updated(rule, torch.float32, updates=1)
    exact, _ = updated(rule, torch.float32, usual.state_dict(), updates=100)
    assert exact[0, 0] < 0.99
    assert (parameter.float() - exact).abs().max() < 0.01
    state = optimizer.state[parameter]
    assert after == torch.float32 or state["value"].dtype == torch.float32
    assert all(each.dtype == torch.float32 for each in state.values() if torch.is_tensor(each))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("after", [torch.bfloat16, torch.float32])
def test_weights_that_were_changed_win_over_their_master(after, is_sparse):
    """As fairseq's average_checkpoints.py makes them, whatever is loaded first."""
    _, started = updated(update_rules.LazyAdam, torch.bfloat16)
    exact = started.state_dict()["state"][0]["value"]
    exact = exact if after == torch.bfloat16 else exact.bfloat16().float()  # float32 has no master
    parameter = torch.nn.Parameter(exact.to(torch.bfloat16).to(after))
    optimizer = update_rules.LazyAdam([parameter], lr=1e-3)
    optimizer.load_state_dict(started.state_dict())
    with torch.no_grad():
        parameter[2] = 5.0
    gradient = torch.full_like(parameter, 0.5)
    parameter.grad = gradient.to_sparse(1) if is_sparse else gradient
    optimizer.step()
    moved = optimizer.state[parameter].get("value", parameter.detach())
    assert torch.allclose(moved[[0, 1, 3]], exact[[0, 1, 3]] - 1e-3, atol=1e-6)
    assert torch.allclose(moved[2], torch.tensor(5 - 1e-3), atol=1e-6)
    assert torch.equal(parameter, moved.to(after))


ADAGRAD = {"eps": 0.001, "initial_accumulator": 0.5}
ADAGRAD_FLAGS = ["--adagrad-eps", "0.001", "--adagrad-initial-accumulator", "0.5"]
ADAM_FLAGS = ["--adam-betas", "(0.7, 0.95)", "--adam-eps", "0.001", "--lr", "0.2"]


FLAGS = [
    ("lazy_adam", ADAM_FLAGS, {"betas": (0.7, 0.95), "eps": 0.001, "lr": 0.2}),
    ("sparse_adagrad", ADAGRAD_FLAGS, ADAGRAD),
    ("rowwise_adagrad", ADAGRAD_FLAGS, ADAGRAD),
    ("sparse_sgd", ["--momentum", "0.5", "--wd", "0.1"], {"momentum": 0.5, "weight_decay": 0.1}),
]


@pytest.mark.parametrize("name, flags, want", FLAGS)
def test_flags_reach_the_rule(name, flags, want, corpus):
    flags = [*LSTM, "--criterion", "bnce", "--optimizer", name, *flags]
    cfg, _, model = build(corpus, *flags)
    (group,) = optim.build_optimizer(cfg.optimizer, list(model.parameters())).param_groups
    assert {option: group[option] for option in want} == want


def test_rules_of_rows_take_no_flat_parameters():
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    assert not update_rules.RowwiseAdagrad([parameter], lr=1.0).supports_flat_params


# A flag of fairseq's for halves, and an optimiser, each once.
HALVES = [
    ("--fp16", torch.half, "sparse_sgd"),
    ("--bf16", torch.bfloat16, "sparse_adagrad"),
    ("--memory-efficient-fp16", torch.half, "lazy_adam"),
    ("--memory-efficient-bf16", torch.bfloat16, "rowwise_adagrad"),
]


@pytest.mark.modern
@pytest.mark.parametrize("flag, dtype, optimizer", HALVES)
def test_trainings_in_halves_end_where_float32_does(flag, dtype, optimizer, corpus):
    """After many updates: what one leaves behind in fairseq's wrapper is seen in the next.

    Where that goes, with tied row-sparse gradients that add up over two batches.
    """
    flags = [*LSTM, "--criterion", "bnce", "--optimizer", optimizer, "--clip-norm", "0.1"]
    flags += ["--lr", {"sparse_sgd": "5"}.get(optimizer, "0.01")]
    is_sparse = flag.startswith("--memory-efficient")
    flags += ["--share-decoder-input-output-embed", "--row-sparse"] if is_sparse else []
    run = partial(trained, corpus, *flags, frequency=1 + is_sparse)
    start, _ = run(dtype=torch.float32, updates=0)
    want, norms = run(dtype=torch.float32)
    halves = [flag, flag.replace("memory-efficient-", ""), "--fp16-no-flatten-grads"]
    got, norms_of_halves = run(*halves, dtype=dtype)
    assert norms_of_halves == pytest.approx(norms, rel=0.3)
    assert distance(got, want) < 0.2 * distance(start, want)


def distance(one, other):
    return sum((one[name].float() - value).square().sum().item() for name, value in other.items())


@pytest.mark.parametrize("is_sparse", [False, True])
def test_small_gradients_of_halves_are_divided_in_float32(is_sparse, corpus):
    """The half of 1e-9 is 0, where the number of words and the loss scale may bring a gradient."""
    flags = ["--criterion", "bnce", "--optimizer", "sparse_sgd", "--lr", "1e6"]
    cfg, _, _ = build(corpus, *LSTM, *flags, "--memory-efficient-fp16")
    parameter = torch.nn.Parameter(torch.zeros(4, 3, dtype=torch.half))
    optimizer = optim.MemoryEfficientFP16Optimizer.build_optimizer(cfg, [parameter])
    parameter.grad = torch.full_like(parameter, 1e-3)
    if is_sparse:
        parameter.grad = parameter.grad.to_sparse(1)
    optimizer.multiply_grads(1e-6)
    factor = optimizer._multiply_factor
    optimizer.step()
    expected = torch.full((4, 3), -1e6 * 1e-3 * factor)
    torch.testing.assert_close(parameter.float(), expected, rtol=1e-3, atol=0.0)


MISTAKES = [("lr", -1.0), ("lr", math.nan), ("eps", -1.0), ("momentum", -1.0), ("epsilon", 1e-8)]
MISTAKES += [("betas", (0.9, 1.0))]


@pytest.mark.parametrize("rule", OURS)
@pytest.mark.parametrize("option, value", MISTAKES)
def test_values_that_can_only_be_mistakes(rule, option, value):
    """As torch.optim refuses them; an option that a rule does not have, too."""
    with pytest.raises(ValueError):
        rule([torch.nn.Parameter(torch.ones(2))], **{"lr": 0.1, option: value})


@pytest.mark.parametrize("text", ["0.9", "(1,1)", "x", "(len('a') / 2, 0.9)"])
def test_bad_betas(text, corpus):
    """They are text, and never evaluated."""
    cfg, _, model = build(corpus, *LSTM, "--criterion", "bnce", "--optimizer", "lazy_adam")
    cfg.optimizer.adam_betas = text
    with pytest.raises(ValueError, match="--adam-betas"):
        optim.build_optimizer(cfg.optimizer, list(model.parameters()))
