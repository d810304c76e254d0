"""What every autograd function of the package keeps to, those written later too."""

import importlib
import pkgutil
import re
from functools import partial

import pytest
import torch
from tools import subclasses
from torch.utils.checkpoint import checkpoint

import fairseq_bnce
from fairseq_bnce import losses
from fairseq_bnce.optim import row_sparse

ROWS = torch.tensor([0, 2, 3, 5, 6])
WORDS, LOG_Q = torch.tensor([2, 0, 6, 2, 5]), torch.full((7,), -2.0)
DRAWS = torch.tensor([1, 4, 0, 2, 2])


def of_rows(features, weight, bias):
    setattr(weight, row_sparse._MARK, True)
    return features.sum() + bias.sum() + row_sparse.gather(weight, ROWS).square().sum(1)


def of_sum(h, w, b):
    return losses.batch_nce_loss(h, WORDS, w, b, LOG_Q)


# Calls that reach a function, by its name.
CALLS = {
    "_LogPartition": [losses.log_partition, partial(losses.log_partition, chunk_tokens=2)],
    "_SharedLoss": [
        of_sum,
        lambda h, w, b: losses.batch_nce_loss(h, WORDS, w, b, LOG_Q, reduction="none"),
        lambda h, w, b: losses.sampled_softmax_loss(h, WORDS, w, b, LOG_Q, DRAWS),
    ],
    "_RowwiseScores": [lambda h, w, b: losses.nce_loss(h, WORDS, w, b, LOG_Q, DRAWS.repeat(5, 1))],
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
    functions = list(subclasses(torch.autograd.Function))
    own = [f for f in functions if f.__module__.startswith("fairseq_bnce.")]
    assert {f.__name__ for f in own} == set(CALLS)


def derivatives(loss, tensors, **options):
    return [g.to_dense() for g in torch.autograd.grad(loss, tensors, **options)]


@ALL_CALLS
@pytest.mark.parametrize("summed", [True, False], ids=["constant gradient", "varying gradient"])
def test_second_derivatives_are_refused(call, summed):
    """Never silently taken for zero: also where the incoming gradient is a constant."""
    tensors = inputs()
    value = call(*tensors)
    loss = value.sum() if summed else value.square().sum()
    with pytest.raises(RuntimeError, match="second"):
        torch.autograd.grad(loss, tensors, create_graph=True)


@ALL_CALLS
def test_a_second_backward_pass_needs_the_graph(call):
    """What the first one needed is let go of, unless the graph is kept."""
    tensors = inputs()
    value = call(*tensors).sum()
    first = derivatives(value, tensors, retain_graph=True)
    assert all(map(torch.equal, first, derivatives(value, tensors)))
    with pytest.raises(RuntimeError):
        derivatives(value, tensors)


@ALL_CALLS
def test_gradients_under_checkpointing(call):
    tensors = inputs()
    expected = derivatives(call(*tensors).sum(), tensors)
    value = checkpoint(call, *tensors, use_reentrant=False)
    assert all(map(torch.equal, expected, derivatives(value.sum(), tensors)))
