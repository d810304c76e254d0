"""Losses over the scores of all contexts with the same words, (N, U), chunk by chunk.

A chunk of contexts is scored, turned into its losses, and its scores overwritten by the gradient
matrix G(i, u) = d loss_i / d m(u, i), from which the gradients of features, weight and bias are
made at once: extra memory is one chunk, whatever N and U are. For the sum of the losses, this is
done in the forward pass, so that nothing is computed twice; for one loss a token, whose weights
only the backward pass knows, the scores are made again there.

BinaryNCE with the targets among the words, of float16 or bfloat16 on a GPU, can be left to the
fused kernel of kernels.py (kernel_choice.py says when): torch's way, below, is its reference, its
fallback and the default.

No fairseq and no vocabulary here: ``weight`` holds the rows of the U words and no others.
"""

from typing import Any, Callable, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses import kernel_choice
from fairseq_bnce.losses.autograd import FirstOrderFunction, learns
from fairseq_bnce.losses.precision import HALVES, at_least_float32

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
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    objective: Any,
    reduction: str,
    kernel: Optional[str] = None,
) -> Tensor:
    """The losses of an objective over the words' scores m(u, i) = h_i . W_u + b_u.

    Args:
        features: (N, D), in any precision; halves stay halves where the kernel takes them.
        weight, bias: (U, D) and (U,) or None, likewise; the bias never stays in halves.
        objective: one of the classes above.
        reduction: "sum" or "none".
        kernel: see :func:`kernel_choice.chosen_kernel`.

    Returns:
        A scalar or (N,), nats; differentiable once.
    """
    is_kernels = _has_kernel(objective) and kernel_choice.is_fused(
        features, weight, bias, kernel=kernel, reduction=reduction
    )
    score = _by_kernel if is_kernels else _by_torch
    dtype = at_least_float32(features, weight)
    bias = None if bias is None else bias.to(dtype)
    if not is_kernels:
        features, weight = features.to(dtype), weight.to(dtype)
    has_backward = learns(features, weight, bias)
    return _SharedLoss.apply(
        features, weight, bias, objective, reduction == "sum", has_backward, score
    )


def _has_kernel(objective: Any) -> bool:
    return isinstance(objective, BinaryNCE) and objective.target is not None


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return F.softplus(x, threshold=_SOFTPLUS_THRESHOLD)


class _Inputs(NamedTuple):
    features: Tensor
    weight: Tensor
    bias: Optional[Tensor]


# (inputs, objective, tokens, factor or None, whether G is wanted) -> the losses (n,) of a chunk,
# and G (n, U), its rows times their factors; anything in its place where it is not wanted.
Score = Callable[[_Inputs, Any, slice, Optional[Tensor], bool], Tuple[Tensor, Any]]


class _SharedLoss(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        objective: Any,
        summed: bool,
        learns: bool,
        score: Score,
    ) -> Tensor:
        inputs = _Inputs(features, weight, bias)
        gradients = _Gradients(inputs) if learns and summed else None
        losses = features.new_empty(len(features), dtype=at_least_float32(features))
        for tokens in _chunks(features, weight):
            losses[tokens], matrix = score(inputs, objective, tokens, None, gradients is not None)
            if gradients is not None:
                gradients.add(tokens, matrix)
            del matrix  # before the next one is made
        ctx.objective, ctx.score, ctx.is_made = objective, score, gradients is not None
        ctx.save_for_backward(*(inputs if gradients is None else gradients.made()))
        return losses.sum() if summed else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        if ctx.is_made:
            of_features, of_weight, of_bias = ctx.saved_tensors
            of_bias = None if of_bias is None else of_bias * grad
            return _rounded(of_features * grad, of_weight * grad, of_bias)
        inputs = _Inputs(*ctx.saved_tensors)
        gradients = _Gradients(inputs)
        for tokens in _chunks(inputs.features, inputs.weight):
            _, matrix = ctx.score(inputs, ctx.objective, tokens, grad[tokens], True)
            gradients.add(tokens, matrix)
            del matrix
        return _rounded(*gradients.made())


class _Gradients:
    """Of the features, the weight and the bias, from one chunk's G after the other."""

    def __init__(self, inputs: _Inputs):
        features, weight, bias = inputs
        self.features, self.weight = features, weight
        self.is_half = weight.dtype in HALVES
        self.of_features = torch.empty_like(features)
        zero = weight.new_zeros((), dtype=at_least_float32(weight)).expand(weight.shape)
        self.of_weight = zero if self.is_half else torch.zeros_like(weight)
        self.of_bias = None if bias is None else torch.zeros_like(bias)

    def add(self, tokens: slice, matrix: Tensor) -> None:
        torch.mm(matrix, self.weight, out=self.of_features[tokens])
        if self.is_half:
            # Into the new product: the only one of its size, if there is one chunk.
            of_chunk = kernel_choice.triton_kernels().product(matrix.t(), self.features[tokens])
            self.of_weight = of_chunk.add_(self.of_weight)
        else:
            self.of_weight.addmm_(matrix.t(), self.features[tokens])
        if self.of_bias is not None:
            self.of_bias += matrix.sum(dim=0, dtype=self.of_bias.dtype)

    def made(self) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """What has been added up; the weight's is not rounded to halves yet."""
        return self.of_features, self.of_weight, self.of_bias


def _rounded(
    of_features: Tensor, of_weight: Tensor, of_bias: Optional[Tensor]
) -> Tuple[Optional[Tensor], ...]:
    """What _SharedLoss's backward pass returns; features and weight are of one dtype."""
    return (of_features, of_weight.to(of_features.dtype), of_bias, *[None] * 4)


def _by_torch(
    inputs: _Inputs, objective: Any, tokens: slice, factor: Optional[Tensor], gradient: bool
) -> Tuple[Tensor, Any]:
    scores = F.linear(inputs.features[tokens], inputs.weight, inputs.bias)
    losses = objective(scores, tokens, gradient)
    return losses, scores if factor is None else scores.mul_(factor[:, None])


def _by_kernel(
    inputs: _Inputs, objective: Any, tokens: slice, factor: Optional[Tensor], gradient: bool
) -> Tuple[Tensor, Any]:
    offset, counts, target = objective
    words = (inputs.weight, inputs.bias, offset, counts, target[tokens])
    return kernel_choice.triton_kernels().binary_nce(
        inputs.features[tokens], *words, factor=factor, gradient=gradient
    )


def _chunks(features: Tensor, weight: Tensor) -> Iterator[slice]:
    """The tokens to be scored together."""
    scores = _CHUNK_SCORES["cpu" if features.device.type == "cpu" else "gpu"]
    size = max(1, scores // max(1, len(weight)))
    for first in range(0, len(features), size):
        yield slice(first, min(first + size, len(features)))


def _of_target(scores: Tensor, target: Tensor) -> Tensor:
    return scores.gather(1, target[:, None]).squeeze(1)


def _add_to_target(matrix: Tensor, target: Tensor, value: float) -> None:
    ones = torch.full_like(target, value, dtype=matrix.dtype)
    matrix.scatter_add_(1, target[:, None], ones[:, None])
