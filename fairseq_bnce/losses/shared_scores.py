"""Losses over the scores of all contexts with the same words, (N, U), chunk by chunk.

An objective turns the scores of a chunk of contexts into losses and overwrites the scores with the
gradient matrix G(i, u) = d loss_i / d m(u, i). Two products with G give the gradients of features
and weight. Extra memory is bounded whatever N and U are. For the sum of the losses, the forward
pass makes the gradients too, so that nothing is computed twice. For one loss a token, the backward
pass makes the scores again, because it alone knows the losses' weights.

Halves on a CUDA device are multiplied as halves with float32 sums. G is rounded to halves once,
before its two products; scores, losses and log-odds stay in float32.

This module knows no vocabulary: ``weight`` holds the rows of the U words and no others.
"""

import math
from typing import Any, List, NamedTuple, Optional, Protocol, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses.words import HALVES, at_least_float32, first_order, mm_dtype, wide_linear

# Scores held at once: 16 MB of float32 about fit into the last-level cache of a CPU. On a GPU 48 MB
# are a compromise of few launches and an L2 cache of 50 MB; float32 products want to be larger.
_CHUNK_SCORES = {"cpu": 2**22, "gpu": 2**25, "halves": 3 * 2**22}
_BLOCK_CHUNKS = 12  # chunks whose halves of G are multiplied together: 288 MB at most
_ALIGNED = 64  # numbers: rows of halves start at multiples of it, or products take slow kernels
# torch's default of 20 would cost 2e-9 in accuracy; exp(50) is finite in float32.
_SOFTPLUS_THRESHOLD = 50


_Inputs = Tuple[Tensor, Tensor, Optional[Tensor]]  # features, weight and bias


class Objective(Protocol):
    """Losses of contexts from their scores (n, U) with all words."""

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """Compute the losses (n,) of a chunk of tokens; with ``gradient``, the scores become G."""

    def padded(self, more: int) -> "Objective":
        """Return the same objective with ``more`` further words, which change no loss."""


class BinaryNCE(NamedTuple):
    """sum_u n_u softplus(D(u, i)), minus D(w_i, i) if the targets are among the words.

    D(u, i) = m(u, i) - offset(u). G(i, u) = n_u sigma(D(u, i)) - [u = w_i].

    Attributes:
        offset: (U,) log Z + log(K q(u)), nats.
        counts: (U,) n_u.
        target: (N,) the targets as indices into the words, or None.
        left_out: (N,) the word that a token's sum leaves out, as an index or -1, or None.
    """

    offset: Tensor
    counts: Tensor
    target: Optional[Tensor] = None
    left_out: Optional[Tensor] = None

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        log_odds = scores.sub_(self.offset)
        if self.left_out is not None:
            _leave_out(log_odds, self.left_out[tokens])
        loss = softplus(log_odds) @ self.counts.to(log_odds)  # float64 features, float32 rows
        target = None if self.target is None else self.target[tokens, None]
        if target is not None:
            loss -= log_odds.gather(1, target)[:, 0]
        if gradient:
            log_odds.sigmoid_().mul_(self.counts)
            if target is not None:
                log_odds.scatter_(1, target, -1, reduce="add")
        return loss

    def padded(self, more: int) -> "BinaryNCE":
        offset, counts = (F.pad(values, (0, more)) for values in self[:2])
        return self._replace(offset=offset, counts=counts)


class Ranking(NamedTuple):
    """log Z^_i - m(w_i, i) + alpha (log Z^_i - log Z)^2, with an estimate Z^ over the words.

    log Z^_i = logsumexp_u(m(u, i) + log_weight(u)).
    G(i, u) = (1 + 2 alpha (log Z^_i - log Z)) p(u | i) - [u = w_i], p the words' shares of Z^_i.

    Attributes:
        log_weight: (U,) the words' importance weights, nats.
        target: (N,) the targets as indices into the words.
        alpha: weight of the self-normalisation.
        log_z: the constant log Z, nats.
    """

    log_weight: Tensor
    target: Tensor
    alpha: float
    log_z: Union[float, Tensor]

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        target = self.target[tokens, None]
        of_target = scores.gather(1, target)[:, 0]
        log_partition = scores.add_(self.log_weight).logsumexp(dim=1)
        deviation = log_partition - self.log_z
        if gradient:
            share = scores.sub_(log_partition[:, None]).exp_()
            share.mul_((1 + 2 * self.alpha * deviation)[:, None])
            share.scatter_(1, target, -1, reduce="add")
        return log_partition - of_target + self.alpha * deviation.square()

    def padded(self, more: int) -> "Ranking":
        return self._replace(log_weight=F.pad(self.log_weight, (0, more), value=-math.inf))


class OtherWords(NamedTuple):
    """logsumexp_u(m(u, i) + log_weight(u)) over the words u that are not the target.

    The sum is -inf where all words are the target. G(i, u) = the words' shares of the sum.

    Attributes:
        log_weight: (U,) nats.
        target: (N,) the targets as indices into the words, -1 for a target that is not among them.
    """

    log_weight: Tensor
    target: Tensor

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        _leave_out(scores.add_(self.log_weight), self.target[tokens])
        total = scores.logsumexp(dim=1)
        if gradient:
            finite = total.masked_fill(total.isinf(), 0)  # -inf - -inf is no number
            scores.sub_(finite[:, None]).exp_()
        return total

    def padded(self, more: int) -> "OtherWords":
        return self._replace(log_weight=F.pad(self.log_weight, (0, more), value=-math.inf))


def shared_loss(
    features: Tensor, weight: Tensor, bias: Optional[Tensor], objective: Objective, reduction: str
) -> Tensor:
    """Compute an objective's losses over the words' scores m(u, i) = h_i . W_u + b_u.

    Args:
        features: (N, D), in any precision.
        weight, bias: (U, D) and (U,) or None, in any precision.
        objective: what to compute of the scores.
        reduction: "sum" or "none".

    Returns:
        A scalar or (N,), nats; differentiable once.
    """
    # An autograd function itself can't see whether there will be a backward pass.
    has_graph = torch.is_grad_enabled()
    return _SharedLoss.apply(features, weight, bias, objective, reduction == "sum", has_graph)


def _leave_out(scores: Tensor, place: Tensor) -> None:
    """Set one score of each row to -inf, or none where ``place`` is -1."""
    column, is_there = place.clamp(min=0)[:, None], place.ge(0)[:, None]
    scores.scatter_(1, column, scores.gather(1, column).masked_fill_(is_there, -math.inf))


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Return the sum or the mean of ``values``, or ``values``."""
    return values if reduction == "none" else getattr(values, reduction)()


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x))."""
    return F.softplus(x, threshold=_SOFTPLUS_THRESHOLD)


class _SharedLoss(torch.autograd.Function):
    @staticmethod
    @first_order
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        objective: Objective,
        is_summed: bool,
        has_graph: bool,
    ) -> Tensor:
        ctx.objective, inputs = objective, (features, weight, bias)
        ctx.save_for_backward(*inputs)
        gradient = is_summed and has_graph and any(ctx.needs_input_grad)
        losses, ctx.gradients = _evaluate(inputs, objective, None, gradient)
        return losses.sum() if is_summed else losses

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # one loss a token, or a second pass through a graph that is kept
            inputs = ctx.saved_tensors  # under torch's checkpointing, they are there once
            _, gradients = _evaluate(inputs, ctx.objective, grad.expand(len(inputs[0])), True)
        else:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(grad)
        return (*gradients, None, None, None)


def _evaluate(
    inputs: _Inputs, objective: Objective, factor: Optional[Tensor], gradient: bool
) -> Tuple[Tensor, Optional[List[Optional[Tensor]]]]:
    """Compute the losses (N,) and, where wanted, the gradients of the inputs.

    Args:
        factor: (N,) the weights of the losses in the gradients; None for 1.
    """
    features, weight, bias = inputs
    dtype, exact = mm_dtype(features, weight), at_least_float32(features, weight)
    h, w, b = features.to(dtype), weight.to(dtype), None if bias is None else bias.to(exact)
    if dtype in HALVES:
        more = -len(w) % _ALIGNED
        w, b = F.pad(w, (0, 0, 0, more)), None if b is None else F.pad(b, (0, more))
        objective = objective.padded(more)
    # The halves of G of several chunks are multiplied together; a wide G is that of one chunk.
    in_halves = gradient and dtype in HALVES
    kind = "halves" if in_halves else "cpu" if h.device.type == "cpu" else "gpu"
    size = max(1, _CHUNK_SCORES[kind] // max(1, len(w)))
    together = size * _BLOCK_CHUNKS if in_halves else size
    losses, count = h.new_empty(len(h), dtype=exact), len(h)
    sums: Optional[_Inputs] = None
    for first in range(0, max(count, 1), together):  # once for no tokens, too
        block = slice(first, min(first + together, count))
        matrix: Any = h.new_empty(block.stop - first, len(w)) if in_halves else None
        for start in range(first, max(block.stop, first + 1), size):
            tokens = slice(start, min(start + size, block.stop))
            scores = wide_linear(h[tokens], w, b)
            losses[tokens] = objective(scores, tokens, gradient)
            if factor is not None:
                scores.mul_(factor[tokens, None])
            if in_halves:
                matrix[tokens.start - first : tokens.stop - first] = scores
            else:
                matrix = scores
            del scores  # before the next ones are made
        if gradient:
            sums = _added(sums, (h, w, b), block, matrix)
        del matrix
    if sums is None:
        return losses, None
    both = zip(sums, inputs)
    return losses, [s if s is None or t is None else s[: len(t)].to(t.dtype) for s, t in both]


def _added(sums: Optional[_Inputs], inputs: _Inputs, block: slice, matrix: Tensor) -> _Inputs:
    """Add the inputs' gradients by a block's G to the sums so far."""
    features, weight, bias = inputs
    is_lone = len(matrix) == len(features)  # several blocks are summed in float32 or better
    if sums is None:  # made when the first scores are gone, for the sake of the peak of memory
        dtype = weight.dtype if is_lone else at_least_float32(weight)
        of_bias = None if bias is None else torch.zeros_like(bias)
        sums = torch.empty_like(features), torch.zeros_like(weight, dtype=dtype), of_bias
    of_features, of_weight, of_bias = sums
    torch.mm(matrix, weight, out=of_features[block])
    if is_lone:
        torch.mm(matrix.t(), features, out=of_weight)
    elif matrix.dtype in HALVES:
        of_weight += torch.mm(matrix.t(), features[block], out_dtype=torch.float32)
    else:
        of_weight.addmm_(matrix.t(), features[block])
    if of_bias is not None:
        of_bias += matrix.sum(dim=0, dtype=of_bias.dtype)
    return sums
