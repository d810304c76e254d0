"""Heads: output layers alone, forward and backward, of torch, other packages and this plugin.

A head is made for a problem and called without arguments. It computes the loss and the gradients of
features and weight, drops the gradients, and returns the loss in nats a token. A head imports its
package when it is made, so that the other heads do without (pip install '.[bench]').
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Head = Callable[[], Optional[Tensor]]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # (features, weight, target) -> mean loss

LIMIT = "three_matmuls"
DRAWS = 100  # of shared_nce, its default
ZIPF = 1.1, 2.7  # (s, q) of the targets' law: p(rank) proportional to 1 / (rank + q)^s
_ALIGNED = 64  # numbers: where rows of a matrix have to start for the fast products


@dataclass
class Problem:
    """The input of a head.

    Attributes:
        features: (N, D).
        target: (N,).
        noise: NoiseDistribution over the V words.
        weight: (V, D).
        log_z: roughly log Z_c of such scores.
    """

    features: Tensor
    target: Tensor
    noise: Any
    weight: Tensor
    log_z: float

    def step(self, loss: Tensor) -> Tensor:
        """Compute and drop the gradients of a loss, and return the loss without its graph."""
        loss.backward()
        self.drop_gradients()
        return loss.detach()

    def drop_gradients(self) -> None:
        self.features.grad = self.weight.grad = None


def make_problem(shape: str, dtype: torch.dtype, device: torch.device, seed: int = 1) -> Problem:
    """Return about standard normal scores, with targets and noise of a Zipf-Mandelbrot law.

    Args:
        shape: NxDxV: N tokens, features of size D, V words.
    """
    from fairseq_bnce.noise import NoiseDistribution

    tokens, size, vocab = map(int, shape.split("x"))
    rng = torch.Generator(device=device).manual_seed(seed)
    exponent, shift = ZIPF
    ranks = torch.arange(1, vocab + 1, dtype=torch.float64)
    noise = NoiseDistribution((ranks + shift) ** -exponent).to(device)
    target = noise.sample(tokens, generator=rng)
    features, weight = (
        torch.empty(rows, size, dtype=dtype, device=device)
        .normal_(0, scale, generator=rng)
        .requires_grad_()
        for rows, scale in ((tokens, 1.0), (vocab, size**-0.5))
    )
    return Problem(features, target, noise, weight, log_z=math.log(vocab) + 0.5)


def _exact(loss: Callable[[], Loss]) -> Callable[[Problem], Head]:
    """Return the maker of a head with a loss over all V words, and V x D gradients."""

    def make(problem: Problem) -> Head:
        function = loss()
        return lambda: problem.step(function(problem.features, problem.weight, problem.target))

    return make


def _cross_entropy(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(features, weight), target)


def _compiled() -> Loss:
    # One compilation a shape: with sizes left open it is slower.
    return torch.compile(_cross_entropy, dynamic=False)


def _cut_cross_entropy() -> Loss:
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy


def _liger() -> Loss:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger

    return liger


def _dense(problem: Problem) -> Head:
    """Make bnce with V x D gradients."""
    from fairseq_bnce import losses

    arguments = problem.features, problem.target, problem.weight, None, problem.noise.log_q
    mean = 1 / len(problem.target)
    return lambda: problem.step(losses.batch_nce_loss(*arguments, log_z=problem.log_z) * mean)


def _sparse(draws: int) -> Callable[[Problem], Head]:
    """Return the maker of bnce, or of shared_nce with ``draws``, with gradients of few rows.

    By the cores of the losses, as the criteria call them.
    """

    def make(problem: Problem) -> Head:
        from fairseq_bnce.optim import row_sparse

        row_sparse.mark(nn.Module(), problem.weight)
        return lambda: problem.step(_sparse_nce(problem, draws) / len(problem.target))

    return make


def _sparse_nce(problem: Problem, draws: int) -> Tensor:
    from fairseq_bnce.losses import nce
    from fairseq_bnce.losses.words import Words, distinct, distinct_with_draws
    from fairseq_bnce.optim import row_sparse

    def words(ids: Tensor) -> Words:
        rows = row_sparse.gather(problem.weight, ids)
        return Words(rows, None, problem.noise.log_q[ids])

    options: Dict[str, Any] = {"log_z": problem.log_z, "reduction": "sum"}
    if not draws:
        ids, (target,) = distinct(problem.target)
        return nce.batch_nce(problem.features, words(ids), target, target[:0], **options)
    drawn = problem.noise.sample(draws)
    ids, (target,), drawn, counts = distinct_with_draws(drawn, problem.target)
    return nce.shared_nce(problem.features, words(ids), target, drawn, counts, **options)


def _three_matmuls(problem: Problem) -> Head:
    """Make the products that batch NCE can't do without, on rows gathered before.

    N x U scores, the features' gradient, the rows' gradient; all in the problem's own dtype. Zeros
    make U a multiple of what fast products take.
    """
    features = problem.features.detach()
    rows = problem.weight.detach()[torch.unique(problem.target)]
    rows = F.pad(rows, (0, 0, 0, -len(rows) % _ALIGNED))

    def head() -> None:
        scores = torch.mm(features, rows.t())
        torch.mm(scores, rows)
        torch.mm(scores.t(), features)

    return head


HEADS: Dict[str, Callable[[Problem], Head]] = {
    LIMIT: _three_matmuls,
    "cross_entropy": _exact(lambda: _cross_entropy),
    "compiled": _exact(_compiled),
    "liger": _exact(_liger),
    "cut_cross_entropy": _exact(_cut_cross_entropy),
    "shared_nce_sparse": _sparse(DRAWS),
    "bnce": _dense,
    "bnce_sparse": _sparse(0),
}
