"""Row-sparse gradients: of a (V, D) parameter, only the rows that a batch used have one.

A gradient here is torch's sparse COO tensor with one sparse dimension, the row. The gradient is
*merged* if every row occurs once, in ascending order. Nothing in this module does work or takes
memory that grows with V. fairseq itself knows no such gradients: a parameter that gets them is
marked (:func:`mark`), hidden from DistributedDataParallel, and left to an optimiser of
registered.py.
"""

import functools
from typing import Any, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_bnce import ranks
from fairseq_bnce.losses.words import HALVES, at_least_float32, distinct, first_order

_ROWS, _MARK = "fairseq_bnce_rows", "fairseq_bnce_row_sparse"
# Attributes: of a parameter that fairseq's legacy_ddp leaves to its owner; of a model, the names of
# the parameters that torch's DistributedDataParallel, which refuses sparse gradients, leaves alone.
_LEGACY_DDP_MARK = "expert"
_DDP_IGNORES = "_ddp_params_and_buffers_to_ignore"
# Ids are right by construction; to check them would make a GPU's host wait. torch 1.13 always
# checks; torch 2.12 and later warn unless told whether to.
if torch.__version__ >= "2":
    _make_sparse = functools.partial(torch.sparse_coo_tensor, check_invariants=False)
else:
    _make_sparse = torch._sparse_coo_tensor_unsafe  # type: ignore[attr-defined]  # of torch 1.13


def name_rows(model: nn.Module, *parameters: Tensor) -> None:
    """Tell the optimiser that ``parameters`` and the model's word embeddings have rows of words."""
    for parameter in [*parameters, *(module.weight for module in _embeddings(model))]:
        setattr(parameter, _ROWS, True)


def has_rows(parameter: Tensor) -> bool:
    """Return whether this parameter has a row, or a number, for each word."""
    return getattr(parameter, _ROWS, False)


def mark(model: nn.Module, *parameters: Tensor, legacy_ddp: bool = False) -> None:
    """Make ``parameters`` and the model's word embeddings row-sparse, before DDP wraps them.

    Args:
        model: its embeddings (torch.nn.Embedding, positions left out) get row-sparse gradients,
            too. A tied weight must have nothing but row-sparse uses.
        *parameters: others that the caller reads with :func:`gather` alone.
        legacy_ddp: whether fairseq's own wrapper is to leave them alone.
    """
    chosen = list(parameters)
    for module in _embeddings(model):
        if not (module.max_norm or module.scale_grad_by_freq):
            chosen.append(module.weight)
            module.__class__ = RowSparseEmbedding
    for parameter in chosen:
        setattr(parameter, _MARK, True)
        if legacy_ddp:
            setattr(parameter, _LEGACY_DDP_MARK, True)
    named = model.state_dict(keep_vars=True)  # has all the names of a tied parameter
    own = getattr(model, _DDP_IGNORES, ())
    setattr(model, _DDP_IGNORES, [*own, *(name for name in named if is_marked(named[name]))])


def _embeddings(model: nn.Module) -> List[nn.Embedding]:
    """Return the word embeddings; learned positions are of a subclass."""
    return [module for module in model.modules() if type(module) is nn.Embedding]


def is_marked(parameter: Tensor) -> bool:
    """Return whether this parameter's gradients are row-sparse."""
    return getattr(parameter, _MARK, False)


class RowSparseEmbedding(nn.Embedding):
    """torch's embedding, whose gradient is row-sparse and merged.

    A GPU's host waits for the distinct ids before the model has queued any work, and not in the
    backward pass and the optimiser, as for torch's own sparse gradients.
    """

    def forward(self, ids: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return super().forward(ids)
        words, (index,) = distinct(ids)
        rows = gather(self.weight, words)
        if self.padding_idx is not None:  # padding does not learn
            rows = torch.where((words == self.padding_idx)[:, None], rows.detach(), rows)
        # The gradients of a word's several uses are summed in float32 or better.
        return F.embedding(index, rows.to(at_least_float32(rows))).to(rows.dtype)


def gather(parameter: Tensor, ids: Tensor) -> Tensor:
    """Return ``parameter[ids]`` (U, ...), with a row-sparse gradient if the parameter is marked.

    Args:
        ids: (U,) distinct, in ascending order.
    """
    # A CPU adds no sparse gradients of halves.
    if is_marked(parameter) and (parameter.is_cuda or parameter.dtype not in HALVES):
        return _GatherRows.apply(parameter, ids)
    return parameter.index_select(0, ids)


def gradient_of(parameter: Tensor) -> Tensor:
    """Return a marked parameter's row-sparse gradient, without rows where no batch has used it."""
    gradient = parameter.grad
    if gradient is None:
        ids = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return sparse_rows(ids, parameter.new_empty(0, *parameter.shape[1:]), parameter.shape)
    if gradient.is_sparse:
        return gradient
    ids = gradient.reshape(len(gradient), -1).ne(0).any(dim=1).nonzero()[:, 0]
    return sparse_rows(ids, gradient[ids], gradient.shape, is_merged=True)


def sparse_rows(ids: Tensor, rows: Tensor, shape: torch.Size, is_merged: bool = False) -> Tensor:
    """Return the gradient of this ``shape`` whose rows ``ids`` (U,) are ``rows`` (U, ...)."""
    return _make_sparse(ids[None], rows, shape)._coalesced_(is_merged)


def merge(gradient: Tensor) -> Tensor:
    """Sum a gradient's values of each row, in float32 or better: every row comes once."""
    if gradient.is_coalesced():
        return gradient
    return _merged(gradient._indices()[0], gradient._values(), gradient)


def mean_over_ranks(parameter: Tensor) -> Tensor:
    """Return the mean of all ranks' gradients of a parameter, the same bits on every rank.

    Ranks exchange row ids (int64) and float32 rows: never a buffer of the parameter's size.
    """
    gradient = merge(gradient_of(parameter))
    ids, rows = gradient._indices()[0], gradient._values()
    exact = rows.to(at_least_float32(rows))
    all_ids, all_rows = map(torch.cat, ranks.gather_uneven(ids, exact))
    return _merged(all_ids, all_rows.div_(ranks.count()), gradient)


def _merged(ids: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """Sum the rows of each id in float32 or better; return a gradient of ``like``'s dtype."""
    summed = sparse_rows(ids, rows.to(at_least_float32(rows)), like.shape).coalesce()
    rounded = summed._values().to(like.dtype)
    return sparse_rows(summed._indices()[0], rounded, like.shape, is_merged=True)


class _GatherRows(torch.autograd.Function):
    """index_select whose gradient is row-sparse, for parameters of any number of dimensions."""

    @staticmethod
    @first_order
    def forward(ctx: Any, parameter: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = parameter.shape
        return parameter.index_select(0, ids)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None]:
        return sparse_rows(ctx.saved_tensors[0], grad, ctx.shape, is_merged=True), None
