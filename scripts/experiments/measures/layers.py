"""Heads: output layers alone, forward and backward, of torch, other packages and this plugin.

A head is made for a problem and called without arguments. It computes the loss and the gradients of
features and weight, drops the gradients, and returns the loss in nats a token. A head imports its
package when it is made, so that the other heads do without (pip install '.[bench]').
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Head = Callable[[], Optional[Tensor]]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # (features, weight, target) -> mean loss

LIMIT = "three_matmuls"
DRAWS = 100  # of shared_nce, its default
ZIPF = 1.1, 2.7  # (s, q) of the targets' law: p(rank) proportional to 1 / (rank + q)^s
_ALIGNED = 64  # numbers: where rows of a matrix have to start for the fast products


class Shape(NamedTuple):
    """N tokens, features of size D, V words; "NxDxV" in text."""

    tokens: int
    size: int
    vocab: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
            raise ValueError(f"required NxDxV, got {text}")
        return cls(*map(int, text.split("x")))

    def __str__(self) -> str:
        return f"{self.tokens}x{self.size}x{self.vocab}"


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


def make_problem(shape: Shape, dtype: torch.dtype, device: torch.device, seed: int = 1) -> Problem:
    """Return about standard normal scores, with targets and noise of a Zipf-Mandelbrot law."""
    from fairseq_bnce.noise import NoiseDistribution

    rng = torch.Generator(device=device).manual_seed(seed)
    exponent, shift = ZIPF
    ranks = torch.arange(1, shape.vocab + 1, dtype=torch.float64)
    noise = NoiseDistribution((ranks + shift) ** -exponent).to(device)

    def random(rows: int, scale: float) -> Tensor:
        made = torch.empty(rows, shape.size, dtype=dtype, device=device)
        return made.normal_(0, scale, generator=rng).requires_grad_()

    target = noise.sample(shape.tokens, generator=rng)
    features, weight = random(shape.tokens, 1.0), random(shape.vocab, shape.size**-0.5)
    return Problem(features, target, noise, weight, log_z=math.log(shape.vocab) + 0.5)


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


def _torchs_own() -> Loss:
    options = nn.LinearCrossEntropyOptions()  # without options it is the plain cross_entropy
    return lambda h, w, y: F.linear_cross_entropy(h, w, y, options=options)


def _cut_cross_entropy() -> Loss:
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy


def _liger() -> Loss:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger

    return liger


def _liger_cute() -> Loss:
    """Return Liger's kernels for the GPU's generation: Hopper or Blackwell."""
    if torch.cuda.get_device_capability()[0] == 9:
        from liger_kernel.ops.cutedsl.ops import fused_linear_cross_entropy_sm90 as hopper

        return hopper.liger_fused_linear_cross_entropy_sm90
    from liger_kernel.ops.cutedsl.ops import LigerFusedLinearCrossEntropyFunction as blackwell

    return lambda h, w, y: blackwell.apply(h, w, y)[0]


def _own(sparse: bool, shared: bool = False) -> Callable[[Problem], Head]:
    """Return the maker of a head of this plugin.

    Args:
        sparse: gradients for the rows of the batch instead of V x D.
        shared: shared_nce instead of bnce.
    """

    def make(problem: Problem) -> Head:
        from fairseq_bnce.optim import row_sparse

        if sparse:
            row_sparse.mark(nn.Module(), problem.weight)
        draws = DRAWS if shared else 0
        return lambda: problem.step(_nce(problem, sparse, draws) / len(problem.target))

    return make


def _nce(problem: Problem, sparse: bool, draws: int) -> Tensor:
    """The loss in nats, summed: batch NCE, or with ``draws`` that all tokens share."""
    from fairseq_bnce import losses
    from fairseq_bnce.losses import nce
    from fairseq_bnce.losses.words import Words, distinct, distinct_with_draws
    from fairseq_bnce.optim import row_sparse

    features, target, log_q = problem.features, problem.target, problem.noise.log_q
    drawn = problem.noise.sample(draws) if draws else target[:0]
    options: Dict[str, Any] = {"log_z": problem.log_z, "reduction": "sum"}
    if not sparse:
        arguments = (features, target, problem.weight, None, log_q)
        if draws:
            return losses.shared_nce_loss(*arguments, drawn, **options)
        return losses.batch_nce_loss(*arguments, **options)
    # As the criteria do: the cores of the losses, with the rows of the batch's words.
    if draws:
        ids, (target,), drawn, counts = distinct_with_draws(drawn, target)
    else:
        ids, (target,) = distinct(target)
    words = Words(row_sparse.gather(problem.weight, ids), None, log_q[ids])
    if draws:
        return nce.shared_nce(features, words, target, drawn, counts, **options)
    return nce.batch_nce(features, words, target, drawn, **options)


def _three_matmuls(problem: Problem) -> Head:
    """The products that batch NCE can't do without, on rows gathered before: no loss, no softplus.

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


EXACT: Dict[str, Callable[[Problem], Head]] = {
    "cross_entropy": _exact(lambda: _cross_entropy),
    "compiled": _exact(_compiled),
    "linear_cross_entropy": _exact(_torchs_own),
    "liger": _exact(_liger),
    "liger_cute": _exact(_liger_cute),
    "cut_cross_entropy": _exact(_cut_cross_entropy),
}
OWN: Dict[str, Callable[[Problem], Head]] = {
    "shared_nce": _own(sparse=False, shared=True),
    "shared_nce_sparse": _own(sparse=True, shared=True),
    "bnce": _own(sparse=False),
    "bnce_sparse": _own(sparse=True),
}
HEADS = {**EXACT, LIMIT: _three_matmuls, **OWN}
