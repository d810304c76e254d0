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
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses.autograd import FirstOrderFunction, learns
from fairseq_bnce.losses.precision import (
    HALVES,
    at_least_float32,
    product_dtype,
    wide_linear,
    wide_product,
)

# Scores held at once: 16 MB of float32 about fit into the last-level cache of a CPU. On a GPU 48 MB
# are a compromise of few launches and an L2 cache of 50 MB; float32 products want to be larger.
_CHUNK_SCORES = {"cpu": 2**22, "gpu": 2**25, "halves": 3 * 2**22}
_BLOCK_CHUNKS = 12  # chunks whose halves of G are multiplied together: 288 MB at most
_ALIGNED = 64  # numbers: rows of halves start at multiples of it, or products take slow kernels
# torch's default of 20 would cost 2e-9 in accuracy; exp(50) is finite in float32.
_SOFTPLUS_THRESHOLD = 50


class BinaryNCE(NamedTuple):
    """sum_u n_u softplus(D(u, i)), minus D(w_i, i) if the targets are among the words.

    D(u, i) = m(u, i) - offset(u). G(i, u) = n_u sigma(D(u, i)) - [u = w_i].

    Attributes:
        offset: (U,) log Z + log(K q(u)), nats.
        counts: (U,) n_u.
        target: (N,) the targets as indices into the words, or None.
    """

    offset: Tensor
    counts: Tensor
    target: Optional[Tensor] = None

    def padded(self, count: int) -> "BinaryNCE":
        """The same with ``count`` more words, which change no loss."""
        return BinaryNCE(
            F.pad(self.offset, (0, count)), F.pad(self.counts, (0, count)), self.target
        )

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """The losses (n,) of a chunk, whose scores become G."""
        log_odds = scores.sub_(self.offset)
        loss = softplus(log_odds) @ self.counts
        if self.target is not None:
            loss -= _of_target(log_odds, self.target[tokens])
        if gradient:
            log_odds.sigmoid_().mul_(self.counts)
            if self.target is not None:
                _add_to_target(log_odds, self.target[tokens], -1)
        return loss


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

    def padded(self, count: int) -> "Ranking":
        """The same with ``count`` more words, which change no loss."""
        return self._replace(log_weight=F.pad(self.log_weight, (0, count), value=-math.inf))

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """The losses (n,) of a chunk, whose scores become G."""
        of_target = _of_target(scores, self.target[tokens])
        log_partition = scores.add_(self.log_weight).logsumexp(dim=1)
        deviation = log_partition - self.log_z
        if gradient:
            share = scores.sub_(log_partition[:, None]).exp_()
            share.mul_((1 + 2 * self.alpha * deviation)[:, None])
            _add_to_target(share, self.target[tokens], -1)
        return log_partition - of_target + self.alpha * deviation.square()


class OtherWords(NamedTuple):
    """logsumexp_u(m(u, i) + log_weight(u)) over the words u that are not the target.

    It is -inf where all words are the target. G(i, u) = the words' shares of the sum.

    Attributes:
        log_weight: (U,) nats.
        words: (U,) ids.
        target: (N,) ids.
    """

    log_weight: Tensor
    words: Tensor
    target: Tensor

    def padded(self, count: int) -> "OtherWords":
        """The same with ``count`` more words, which change no sum."""
        log_weight = F.pad(self.log_weight, (0, count), value=-math.inf)
        return OtherWords(log_weight, F.pad(self.words, (0, count)), self.target)

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """The sums (n,) of a chunk, whose scores become G."""
        scores.add_(self.log_weight)
        scores.masked_fill_(self.target[tokens, None] == self.words, -math.inf)
        total = scores.logsumexp(dim=1)
        if gradient:
            finite = total.masked_fill(total.isinf(), 0)  # -inf - -inf is no number
            scores.sub_(finite[:, None]).exp_()
        return total


def shared_loss(
    features: Tensor, weight: Tensor, bias: Optional[Tensor], objective: Any, reduction: str
) -> Tensor:
    """The losses of an objective over the words' scores m(u, i) = h_i . W_u + b_u.

    Args:
        features: (N, D), in any precision.
        weight, bias: (U, D) and (U,) or None, in any precision.
        objective: one of the classes above.
        reduction: "sum" or "none".

    Returns:
        A scalar or (N,), nats; differentiable once.
    """
    has_backward = learns(features, weight, bias)
    return _SharedLoss.apply(features, weight, bias, objective, reduction == "sum", has_backward)


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Summed, or as they are."""
    return values.sum() if reduction == "sum" else values


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return F.softplus(x, threshold=_SOFTPLUS_THRESHOLD)


class _SharedLoss(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        objective: Any,
        is_summed: bool,
        has_backward: bool,
    ) -> Tensor:
        ctx.objective = objective
        ctx.save_for_backward(features, weight, bias)
        losses, ctx.gradients = _evaluate(
            features, weight, bias, objective, gradient=is_summed and has_backward
        )
        return losses.sum() if is_summed else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        inputs = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # one loss a token, or a second pass through a graph that is kept
            factor = grad.expand(len(inputs[0]))
            features, weight, bias = inputs
            _, gradients = _evaluate(
                features, weight, bias, ctx.objective, factor=factor, gradient=True
            )
        else:
            gradients = [None if each is None else each.mul_(grad) for each in gradients]
        return (*gradients, None, None, None)


def _evaluate(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    objective: Any,
    *,
    factor: Optional[Tensor] = None,
    gradient: bool,
) -> Tuple[Tensor, Optional[List[Optional[Tensor]]]]:
    """The losses (N,); and, where wanted, the gradients of features, weight and bias.

    Args:
        factor: (N,) the weights of the losses in the gradients; None for 1.
    """
    dtype = product_dtype(features, weight)
    inputs = _Inputs(
        features.to(dtype),
        weight.to(dtype),
        None if bias is None else bias.to(at_least_float32(features, weight)),
    )
    if dtype in HALVES:
        inputs, objective = _aligned(inputs, objective)
    blocks, chunk = _blocks(inputs)
    losses = features.new_empty(len(features), dtype=at_least_float32(features, weight))
    sums: Optional[_Gradients] = None
    for block in blocks:
        matrix = _score(inputs, objective, block, chunk, losses, factor, gradient)
        if gradient:
            # Made when the first scores are gone, for the sake of the peak of memory.
            sums = sums or _Gradients(inputs, is_lone=len(blocks) == 1)
            sums.add(block, matrix)
        del matrix  # before the next one is made
    if sums is None:
        return losses, None
    of_features, of_weight, of_bias = sums.of_features, sums.of_weight, sums.of_bias
    gradients = [of_features.to(features.dtype), of_weight[: len(weight)].to(weight.dtype), None]
    if bias is not None and of_bias is not None:
        gradients[2] = of_bias[: len(weight)].to(bias.dtype)
    return losses, gradients


class _Inputs(NamedTuple):
    """Features and weight in the products' dtype, the bias in float32 or better."""

    features: Tensor
    weight: Tensor
    bias: Optional[Tensor]


def _aligned(inputs: _Inputs, objective: Any) -> Tuple[_Inputs, Any]:
    """The same with words added that change nothing, so that rows of G start where they should."""
    features, weight, bias = inputs
    more = -len(weight) % _ALIGNED
    if not more:
        return inputs, objective
    bias = None if bias is None else F.pad(bias, (0, more))
    return _Inputs(features, F.pad(weight, (0, 0, 0, more)), bias), objective.padded(more)


def _score(
    inputs: _Inputs,
    objective: Any,
    block: slice,
    chunk: int,
    losses: Tensor,
    factor: Optional[Tensor],
    gradient: bool,
) -> Tensor:
    """Write the losses of a block of tokens; return its G (n, U), whose rows have their factors."""
    features, weight, bias = inputs
    is_half = features.dtype in HALVES
    matrix = features.new_empty(
        block.stop - block.start if is_half and gradient else 0, len(weight)
    )
    for tokens in _slices(block.start, block.stop, chunk):
        scores = wide_linear(features[tokens], weight, bias)
        losses[tokens] = objective(scores, tokens, gradient)
        if factor is not None:
            scores.mul_(factor[tokens, None])
        if not is_half:  # a block is one chunk
            return scores
        if gradient:
            matrix[tokens.start - block.start : tokens.stop - block.start] = scores
    return matrix


class _Gradients:
    """The gradients of features, weight and bias, from the G of one block after the other.

    Args:
        inputs: what was scored.
        is_lone: whether there is a single block; the weight's gradient is summed in float32 or
            better otherwise.
    """

    def __init__(self, inputs: _Inputs, is_lone: bool):
        features, weight, bias = inputs
        self._features, self._weight, self._is_lone = features, weight, is_lone
        self.of_features = torch.empty_like(features)
        if is_lone:
            self.of_weight = torch.empty_like(weight)
        else:
            self.of_weight = torch.zeros_like(weight, dtype=at_least_float32(weight))
        self.of_bias = None if bias is None else torch.zeros_like(bias)

    def add(self, block: slice, matrix: Tensor) -> None:
        torch.mm(matrix, self._weight, out=self.of_features[block])
        features = self._features[block]
        if self._is_lone:
            torch.mm(matrix.t(), features, out=self.of_weight)
        elif matrix.dtype in HALVES:
            self.of_weight += wide_product(matrix.t(), features)
        else:
            self.of_weight.addmm_(matrix.t(), features)
        if self.of_bias is not None:
            self.of_bias += matrix.sum(dim=0, dtype=self.of_bias.dtype)


def _blocks(inputs: _Inputs) -> Tuple[List[slice], int]:
    """Tokens whose G is held at once, and how many of them are scored at once."""
    features, weight, _ = inputs
    is_half = features.dtype in HALVES
    device = "cpu" if features.device.type == "cpu" else "gpu"
    chunk = max(1, _CHUNK_SCORES["halves" if is_half else device] // max(1, len(weight)))
    block = chunk * _BLOCK_CHUNKS if is_half else chunk
    return list(_slices(0, len(features), block)) or [slice(0, 0)], chunk


def _slices(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def _of_target(scores: Tensor, target: Tensor) -> Tensor:
    return scores.gather(1, target[:, None]).squeeze(1)


def _add_to_target(matrix: Tensor, target: Tensor, value: float) -> None:
    matrix.scatter_(1, target[:, None], value, reduce="add")
