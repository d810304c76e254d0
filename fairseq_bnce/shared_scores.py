"""Losses over the scores of all contexts with the same words, (N, U), chunk by chunk.

A chunk of contexts is scored, turned into its losses, and its scores overwritten by the gradient
matrix G(i, u) = d loss_i / d m(u, i), from which the gradients of features, weight and bias are
made at once: extra memory is one chunk, whatever N and U are. For the sum of the losses, this is
done in the forward pass, so that nothing is computed twice; for one loss a token, whose weights
only the backward pass knows, the scores are made again there.

No fairseq and no vocabulary here: ``weight`` holds the rows of the U words and no others.
"""

from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Scores held at once: 2^22 float32 are 16 MB, which a CPU's last-level cache about holds; a GPU
# wants larger matrix products.
_CHUNK_SCORES = {"cpu": 2**22, "gpu": 2**25}
# torch's default of 20 would cost 2e-9 in accuracy; exp(50) is finite in float32.
_SOFTPLUS_THRESHOLD = 50


class BinaryNCE(NamedTuple):
    """sum_u n_u softplus(D(u, i)), less D(w_i, i) if the targets are among the words.

    D(u, i) = m(u, i) - offset(u). G(i, u) = n_u sigma(D(u, i)) - [u = w_i].

    Attributes:
        offset: (U,) log Z + log(K q(u)), nats.
        counts: (U,) n_u.
        target: (N,) the targets as indices into the words, or None.
    """

    offset: Tensor
    counts: Tensor
    target: Optional[Tensor] = None

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """Losses (n,) of a chunk, whose scores become G."""
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
    log_z: float

    def __call__(self, scores: Tensor, tokens: slice, gradient: bool) -> Tensor:
        """Losses (n,) of a chunk, whose scores become G."""
        of_target = _of_target(scores, self.target[tokens])
        log_partition = scores.add_(self.log_weight).logsumexp(dim=1)
        deviation = log_partition - self.log_z
        if gradient:
            share = scores.sub_(log_partition[:, None]).exp_()
            share.mul_((1 + 2 * self.alpha * deviation)[:, None])
            _add_to_target(share, self.target[tokens], -1)
        return log_partition - of_target + self.alpha * deviation.square()


def shared_loss(
    features: Tensor, weight: Tensor, bias: Optional[Tensor], objective: Any, reduction: str
) -> Tensor:
    """The losses of an objective over the words' scores m(u, i) = h_i . W_u + b_u.

    Args:
        features: (N, D), in the precision of the scores.
        weight, bias: (U, D) and (U,) or None, in the same.
        objective: one of the classes above.
        reduction: "sum" or "none".

    Returns:
        A scalar or (N,), nats; differentiable once.
    """
    return _SharedLoss.apply(features, weight, bias, objective, reduction == "sum")


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return F.softplus(x, threshold=_SOFTPLUS_THRESHOLD)


class _SharedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, objective, summed):
        needed = any(ctx.needs_input_grad)
        gradients = _Gradients(features, weight, bias) if needed and summed else None
        losses = features.new_empty(len(features))
        for tokens, scores in _chunks(features, weight, bias):
            losses[tokens] = objective(scores, tokens, gradients is not None)
            if gradients is not None:
                gradients.add(tokens, scores)
        ctx.objective, ctx.gradients = objective, gradients
        if gradients is None:
            ctx.save_for_backward(features, weight, bias)
        return losses.sum() if summed else losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        if ctx.gradients is not None:
            return (*ctx.gradients.times(grad), None, None)
        features, weight, bias = ctx.saved_tensors
        gradients = _Gradients(features, weight, bias)
        for tokens, scores in _chunks(features, weight, bias):
            ctx.objective(scores, tokens, True)
            gradients.add(tokens, scores.mul_(grad[tokens, None]))
        return (*gradients.of, None, None)


class _Gradients:
    """Of the features, the weight and the bias, from one chunk's G after the other."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Optional[Tensor]):
        self.features, self.weight = features, weight
        of_bias = None if bias is None else torch.zeros_like(bias)
        self.of = (torch.empty_like(features), torch.zeros_like(weight), of_bias)

    def add(self, tokens: slice, gradient: Tensor) -> None:
        of_features, of_weight, of_bias = self.of
        torch.mm(gradient, self.weight, out=of_features[tokens])
        of_weight.addmm_(gradient.t(), self.features[tokens])
        if of_bias is not None:
            of_bias += gradient.sum(dim=0)

    def times(self, factor: Tensor) -> Tuple[Optional[Tensor], ...]:
        return tuple(None if part is None else part * factor for part in self.of)


def _chunks(
    features: Tensor, weight: Tensor, bias: Optional[Tensor]
) -> Iterator[Tuple[slice, Tensor]]:
    """(tokens, their scores (n, U)), one chunk alive at a time."""
    scores = _CHUNK_SCORES["cpu" if features.device.type == "cpu" else "gpu"]
    size = max(1, scores // max(1, len(weight)))
    for first in range(0, len(features), size):
        tokens = slice(first, min(first + size, len(features)))
        yield tokens, F.linear(features[tokens], weight, bias)


def _of_target(scores: Tensor, target: Tensor) -> Tensor:
    return scores.gather(1, target[:, None]).squeeze(1)


def _add_to_target(matrix: Tensor, target: Tensor, value: float) -> None:
    ones = torch.full_like(target, value, dtype=matrix.dtype)
    matrix.scatter_add_(1, target[:, None], ones[:, None])
