"""What every autograd function of the package keeps to, those written later too."""

import importlib
import pkgutil
import re
import weakref

import pytest
import torch
from tools import subclasses

import fairseq_bnce
from fairseq_bnce import losses
from fairseq_bnce.losses import autograd
from fairseq_bnce.optim import row_sparse


def of_log_partition(features, weight, bias):
    return losses.log_partition(features, weight, bias)


def of_tiles(features, weight, bias):
    return losses.log_partition(features, weight, bias, chunk_tokens=2)


def of_sum(features, weight, bias):
    return losses.batch_nce_loss(features, WORDS, weight, bias, LOG_Q)


def of_each(features, weight, bias):
    return losses.batch_nce_loss(features, WORDS, weight, bias, LOG_Q, reduction="none")


def of_fresh_draws(features, weight, bias):
    draws = torch.tensor([[1, 4], [0, 0], [6, 2], [2, 3], [5, 1]])
    return losses.nce_loss(features, WORDS, weight, bias, LOG_Q, draws)


def of_ranks(features, weight, bias):
    draws = torch.tensor([1, 4, 0, 2, 2])
    return losses.sampled_softmax_loss(features, WORDS, weight, bias, LOG_Q, draws)


def of_rows(features, weight, bias):
    setattr(weight, row_sparse._MARK, True)
    return features.sum() + bias.sum() + row_sparse.gather(weight, ROWS).square().sum(1)


ROWS = torch.tensor([0, 2, 3, 5, 6])
WORDS, LOG_Q = torch.tensor([2, 0, 6, 2, 5]), torch.full((7,), -2.0)
# Calls that reach a function, by its name.
CALLS = {
    "_LogPartition": [of_log_partition, of_tiles],
    "_SharedLoss": [of_sum, of_each, of_ranks],
    "_RowwiseScores": [of_fresh_draws],
    "_GatherRows": [of_rows],
}
ALL_CALLS = pytest.mark.parametrize("call", [call for calls in CALLS.values() for call in calls])


def inputs(dtype=torch.float64):
    rng = torch.Generator().manual_seed(1)
    shapes = ((5, 3), (7, 3), (7,))
    made = [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def test_all_functions_of_the_package_are_in_the_table():
    for module in pkgutil.walk_packages(fairseq_bnce.__path__, "fairseq_bnce."):
        # Decoding needs decoders and has none; the last is a program.
        if not re.search(r"\.(decoding\..*|__main__)$", module.name):
            importlib.import_module(module.name)
    own = [
        f for f in subclasses(torch.autograd.Function) if f.__module__.startswith("fairseq_bnce.")
    ]
    own = [f for f in own if f.__module__ != "fairseq_bnce.losses.autograd"]
    assert {f.__name__ for f in own} == set(CALLS)
    assert all(issubclass(f, autograd.FirstOrderFunction) for f in own)


def derivatives(loss, tensors, **options):
    found = torch.autograd.grad(loss, tensors, **options)
    return [gradient.to_dense() for gradient in found]


@ALL_CALLS
@pytest.mark.parametrize("summed", [True, False], ids=["constant gradient", "varying gradient"])
def test_second_derivatives_are_refused(call, summed):
    """Never silently taken for zero: also where the incoming gradient is a constant."""
    tensors = inputs()
    value = call(*tensors)
    loss = value.sum() if summed else value.square().sum()
    found = derivatives(loss, tensors, create_graph=True)
    penalty = sum(gradient.square().sum() for gradient in found) + loss
    weight, of_weight = tensors[1], found[1].sum()
    for second in (
        lambda: torch.autograd.grad(of_weight, weight, retain_graph=True),
        lambda: of_weight.backward(inputs=[weight], retain_graph=True),
        penalty.backward,
    ):
        with pytest.raises(RuntimeError, match="second"):
            second()


def test_gradients_made_in_the_forward_pass_go_with_the_graph():
    """The loss that is left of it keeps nothing alive; without a gather before it, too."""
    features, weight, bias = (tensor.detach() for tensor in inputs())
    value = of_sum(features.requires_grad_(), weight, bias)
    made = weakref.ref(value.grad_fn.gradients[0])
    value.backward()
    assert made() is None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        value.backward()


@ALL_CALLS
def test_a_second_backward_pass_is_refused_unless_the_graph_is_kept(call):
    """What the first one needed is let go of."""
    tensors = inputs()
    value = call(*tensors).sum()
    first = derivatives(value, tensors, retain_graph=True)
    assert all(map(torch.equal, first, derivatives(value, tensors)))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        derivatives(value, tensors)


@ALL_CALLS
def test_create_graph_changes_no_gradient(call):
    tensors = inputs()
    usual = derivatives(call(*tensors).square().sum(), tensors)
    kept = derivatives(call(*tensors).square().sum(), tensors, create_graph=True)
    assert all(torch.equal(one, other) for one, other in zip(usual, kept))


@ALL_CALLS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_backward_pass_under_autocast_is_the_usual_one(call, dtype):
    tensors = inputs(dtype)
    usual = derivatives(call(*tensors).sum(), tensors)
    value = call(*tensors).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = derivatives(value, tensors)
        made_there = call(*tensors).sum()
    assert all(torch.equal(one, other) for one, other in zip(usual, found))
    assert all(map(torch.equal, usual, derivatives(made_there, tensors)))
