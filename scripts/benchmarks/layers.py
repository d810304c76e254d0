"""The bare output layer of every system: loss, gradients and an SGD update, without a model.

A layer is called with features (N, D) and targets (N,), both on its device, and makes one update
of its own weights; the features' gradient is computed, too. No gradient outlives a call.
"""

from __future__ import annotations

from typing import Callable, Dict, Tuple

import torch
import torch.nn.functional as F
from experiments.recipes import cutoffs
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.noise import NoiseDistribution

from .systems import System

Layer = Callable[[Tensor, Tensor], None]
# (features, target, weight, bias) -> mean loss
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

RATE = 0.1  # of SGD
DRAWS = 100  # of shared_nce, its default


def make(system: System, noise: NoiseDistribution, size: int, device: torch.device) -> Layer:
    """A layer of V x ``size`` random weights with a bias (adaptive_loss: without).

    Args:
        noise: over V words, on ``device``.
    """
    if system.criterion == "adaptive_loss":
        return _adaptive(len(noise), size, device)
    weight = torch.empty(len(noise), size, device=device).uniform_(-0.1, 0.1)
    bias = noise.log_q.clone()
    if system.is_row_sparse:
        return _RowSparse(system, noise, weight, bias)
    return _Dense(_loss(system, noise), weight, bias)


class _Dense:
    """Gradients of all V rows, and SGD over them."""

    def __init__(self, loss: Loss, *weights: Tensor):
        self._loss = loss
        self._weights = [weight.requires_grad_() for weight in weights]
        self._optimizer = torch.optim.SGD(self._weights, lr=RATE)

    def __call__(self, features: Tensor, target: Tensor) -> None:
        self._loss(features.detach().requires_grad_(), target, *self._weights).backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class _RowSparse:
    """Gradients of the batch's own rows, and SGD over those."""

    def __init__(self, system: System, noise: NoiseDistribution, *weights: Tensor):
        self._draws = DRAWS if system.criterion == "shared_nce" else 0
        self._noise, self._weights = noise, weights

    def __call__(self, features: Tensor, target: Tensor) -> None:
        words, target, drawn = self._vocabulary(target)
        rows = [weight.index_select(0, words).requires_grad_() for weight in self._weights]
        log_q = self._noise.log_q.index_select(0, words)
        features = features.detach().requires_grad_()
        _nce(features, target, *rows, log_q, drawn).backward()
        for weight, part in zip(self._weights, rows):
            weight.index_add_(0, words, part.grad, alpha=-RATE)

    def _vocabulary(self, target: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """The distinct words, and targets and draws as indices into them."""
        both = torch.cat([target, self._noise.sample(self._draws)])
        words, inverse = torch.unique(both, return_inverse=True)
        return (words, *inverse.split([len(target), self._draws]))


def _nce(features: Tensor, target: Tensor, weight, bias, log_q, drawn: Tensor) -> Tensor:
    arguments = (features, target, weight, bias, log_q)
    if len(drawn):
        return losses.shared_nce_loss(*arguments, drawn) / len(target)
    return losses.batch_nce_loss(*arguments) / len(target)


def _loss(system: System, noise: NoiseDistribution) -> Loss:
    """The mean loss of a system with dense gradients."""
    nothing = torch.zeros(0, dtype=torch.int64, device=noise.log_q.device)
    every: Dict[str, Loss] = {
        "cross_entropy": lambda h, y, w, b: F.cross_entropy(F.linear(h, w, b), y),
        "linear_cross_entropy": _linear_cross_entropy,
        "bnce": lambda h, y, w, b: _nce(h, y, w, b, noise.log_q, nothing),
        "shared_nce": lambda h, y, w, b: _nce(h, y, w, b, noise.log_q, noise.sample(DRAWS)),
    }
    return every[system.name]


def _linear_cross_entropy(features: Tensor, target: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # Without options it would be the plain cross_entropy.
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(features, weight, target, linear_bias=bias, options=options)


def _adaptive(vocab: int, size: int, device: torch.device) -> Layer:
    softmax = AdaptiveSoftmax(vocab, size, cutoffs(vocab), dropout=0.0).to(device)

    def loss(features: Tensor, target: Tensor, *_: nn.Parameter) -> Tensor:
        logits, targets = softmax(features, target)
        pairs = [(x, y) for x, y in zip(logits, targets) if y is not None]
        return sum(F.cross_entropy(x, y, reduction="sum") for x, y in pairs) / len(target)

    return _Dense(loss, *softmax.parameters())
