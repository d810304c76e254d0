"""Heads: output layers alone, forward and backward, of torch, other packages and this plugin.

A head is made for a problem and called without arguments. It computes the loss and the gradients of
features and weight, drops the gradients, and returns the loss in nats a token. Heads of other
packages import them when they are made (pip install '.[bench]').
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.losses import nce
from fairseq_bnce.losses.words import Words, distinct, distinct_with_draws
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.optim import row_sparse

from .data import probabilities

Loss = Callable[[], Tensor]

LIMIT = "three_matmuls"
DRAWS = 100  # of shared_nce, its default
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


def make_problem(shape: str, dtype: torch.dtype, device: torch.device) -> Problem:
    """Return about standard normal scores, with targets and noise of a Zipf-Mandelbrot law.

    Args:
        shape: NxDxV: N tokens, features of size D, V words.
    """
    tokens, size, vocab = map(int, shape.split("x"))
    rng = torch.Generator(device=device).manual_seed(1)
    noise = NoiseDistribution(torch.from_numpy(probabilities(vocab))).to(device)
    target = noise.sample(tokens, generator=rng)
    normal = partial(torch.randn, generator=rng, dtype=dtype, device=device)
    features, weight = normal(tokens, size, requires_grad=True), normal(vocab, size)
    return Problem(features, target, noise, weight.mul_(size**-0.5), log_z=math.log(vocab) + 0.5)


def make_head(name: str, problem: Problem) -> Callable[[], Optional[Tensor]]:
    """Return a head; the weight is no longer marked as row-sparse by an earlier one."""
    problem.weight = problem.weight.detach().requires_grad_()
    loss = HEADS[name](problem)

    def head() -> Optional[Tensor]:
        value = loss()
        if value is not None:
            value.backward()
            problem.features.grad = problem.weight.grad = None
        return value if value is None else value.detach()

    return head


def _exact(problem: Problem, make: Callable[[], Any]) -> Loss:
    """Return a loss over all V words, with V x D gradients."""
    loss = make()
    return lambda: loss(problem.features, problem.weight, problem.target)


def _cross_entropy(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(features, weight), target)


def _cut_cross_entropy() -> Any:
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy


def _liger() -> Any:
    from liger_kernel.transformers import functional

    return functional.liger_fused_linear_cross_entropy


def _dense(problem: Problem) -> Loss:
    """Return bnce with V x D gradients."""
    arguments = problem.features, problem.target, problem.weight, None, problem.noise.log_q
    mean = 1 / len(problem.target)
    return lambda: losses.batch_nce_loss(*arguments, log_z=problem.log_z) * mean


def _sparse(problem: Problem, draws: int = 0) -> Loss:
    """Return bnce, or shared_nce with ``draws``, with gradients of few rows.

    By the cores of the losses, as the criteria call them.
    """
    row_sparse.mark(nn.Module(), problem.weight)
    return lambda: _sparse_nce(problem, draws) / len(problem.target)


def _sparse_nce(problem: Problem, draws: int) -> Tensor:
    def words(ids: Tensor) -> Words:
        rows = row_sparse.gather(problem.weight, ids)
        return Words(rows, None, problem.noise.log_q[ids])

    options: Dict[str, Any] = {"log_z": problem.log_z, "reduction": "sum"}
    if not draws:
        ids, (target,) = distinct(problem.target)
        return nce.batch_nce(problem.features, words(ids), target, target[:0], **options)
    ids, (target,), drawn = distinct_with_draws(problem.noise.sample(draws), problem.target)
    return nce.shared_nce(problem.features, words(ids), target, drawn, **options)


def _three_matmuls(problem: Problem) -> Callable[[], None]:
    """Return the products that batch NCE can't do without, on rows gathered before.

    N x U scores, the features' gradient, the rows' gradient; all in the problem's own dtype. Zeros
    make U a multiple of what fast products take.
    """
    features = problem.features.detach()
    rows = problem.weight.detach()[torch.unique(problem.target)]
    rows = F.pad(rows, (0, 0, 0, -len(rows) % _ALIGNED))

    def products() -> None:
        scores = torch.mm(features, rows.t())
        torch.mm(scores, rows)
        torch.mm(scores.t(), features)

    return products


HEADS: Dict[str, Callable[[Problem], Callable[[], Any]]] = {
    LIMIT: _three_matmuls,
    "bnce_sparse": _sparse,
    "bnce": _dense,
    "shared_nce_sparse": partial(_sparse, draws=DRAWS),
    "cross_entropy": partial(_exact, make=lambda: _cross_entropy),
    # One compilation a shape: with sizes left open it is slower.
    "compiled": partial(_exact, make=lambda: torch.compile(_cross_entropy, dynamic=False)),
    "liger": partial(_exact, make=_liger),
    "cut_cross_entropy": partial(_exact, make=_cut_cross_entropy),
}
