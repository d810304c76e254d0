"""Ways to do the output layer alone, forward and backward: torch's, other packages', this plugin's.

A head is made for a problem and called without arguments: it computes the loss and the gradients
of features and weights, makes an SGD update if the problem has a rate, drops the gradients, and
returns the loss in nats a token. Every package is imported when a head that needs it is made, so
that the others are measured without it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..recipes import cutoffs

Head = Callable[[], Optional[Tensor]]
# (features, weight, target, bias) -> mean loss
Loss = Callable[[Tensor, Tensor, Tensor, Optional[Tensor]], Tensor]

LIMIT = "three_matmuls"
_EXTRA = "pip install '.[bench]'"
_ALIGNED = 64  # numbers: where rows of a matrix have to start for the fast products


@dataclass(frozen=True)
class Shape:
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
    """What a head works on.

    Attributes:
        features: (N, D).
        target: (N,), may be replaced between calls.
        noise: NoiseDistribution over the V words.
        weight: (V, D), and ``bias`` (V,) or None; ``others``: parameters of a head's own.
        log_z: about where log Z_c of such scores is.
        rate: of SGD after each call; 0 for no update.
    """

    features: Tensor
    target: Tensor
    noise: Any
    weight: Tensor
    bias: Optional[Tensor] = None
    others: Sequence[Tensor] = ()
    log_z: float = 0.0
    rate: float = 0.0

    @property
    def parameters(self) -> List[Tensor]:
        return [one for one in (self.weight, self.bias, *self.others) if one is not None]

    def step(self, loss: Tensor) -> Tensor:
        """The way back from a loss, and the update; the loss without its graph."""
        loss.backward()
        with torch.no_grad():
            for parameter in self.parameters if self.rate else ():
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-self.rate)
        self.drop_gradients()
        return loss.detach()

    def drop_gradients(self) -> None:
        for tensor in (self.features, *self.parameters):
            tensor.grad = None


def make_problem(
    shape: Shape, dtype: torch.dtype, device: torch.device, zipf: Tuple[float, float], seed: int
) -> Problem:
    """Random scores, about standard normal, and targets of a Zipf-Mandelbrot law, the noise too.

    Args:
        zipf: (s, q) of p(rank) proportional to 1 / (rank + q)^s.
    """
    from fairseq_bnce.noise import NoiseDistribution

    rng = torch.Generator(device=device).manual_seed(seed)
    exponent, shift = zipf
    ranks = torch.arange(1, shape.vocab + 1, dtype=torch.float64)
    noise = NoiseDistribution((ranks + shift) ** -exponent).to(device)

    def random(rows: int, scale: float) -> Tensor:
        made = torch.empty(rows, shape.size, dtype=dtype, device=device)
        return made.normal_(0, scale, generator=rng).requires_grad_()

    target = noise.sample(shape.tokens, generator=rng)
    features, weight = random(shape.tokens, 1.0), random(shape.vocab, shape.size**-0.5)
    return Problem(features, target, noise, weight, log_z=math.log(shape.vocab) + 0.5)


def trained_problem(noise: Any, size: int, tokens: int, rate: float) -> Problem:
    """Weights as at the start of a training, the bias that of the unigram model, random features.

    Args:
        noise: over V words, on its device.
    """
    device = noise.log_q.device
    weight = torch.empty(len(noise), size, device=device).uniform_(-0.1, 0.1).requires_grad_()
    features = torch.randn(tokens, size, device=device).requires_grad_()
    bias, target = noise.log_q.clone().requires_grad_(), noise.sample(tokens)
    return Problem(features, target, noise, weight, bias, rate=rate)


def scored_by(name: str, problem: Problem) -> Optional[str]:
    """Who makes the scores of a head of ours: kernel or torch."""
    from fairseq_bnce.losses import shared_scores

    if name not in OWN:
        return None
    # shared_nce is left to torch: halves are raised for the targets' own scores.
    is_kernels = name.startswith("bnce") and not name.endswith("_torch")
    parts = problem.features, problem.weight, None
    return "kernel" if is_kernels and shared_scores.is_fused(*parts, kernel="auto") else "torch"


def _exact(loss: Callable[[], Loss]) -> Callable[[Problem, int], Head]:
    """Of a loss over all V words, made where it is used; gradients of V x D."""

    def make(problem: Problem, draws: int) -> Head:
        function = loss()
        return lambda: problem.step(
            function(problem.features, problem.weight, problem.target, problem.bias)
        )

    return make


def _cross_entropy(features: Tensor, weight: Tensor, target: Tensor, bias: Any) -> Tensor:
    return F.cross_entropy(F.linear(features, weight, bias), target)


def _compiled() -> Loss:
    # One compilation a shape: with sizes left open it is slower.
    return torch.compile(_cross_entropy, dynamic=False)


def _torchs_own() -> Loss:
    if not hasattr(F, "linear_cross_entropy"):
        raise RuntimeError(f"not in torch {torch.__version__}, since 2.13")
    # Without options it would be the plain cross_entropy.
    options = nn.LinearCrossEntropyOptions()
    return lambda h, w, y, b: F.linear_cross_entropy(h, w, y, linear_bias=b, options=options)


def _cut_cross_entropy() -> Loss:
    try:
        from cut_cross_entropy import linear_cross_entropy
    except ImportError as error:
        raise _missing("cut-cross-entropy", error) from error
    return lambda h, w, y, _: linear_cross_entropy(h, w, y)


def _liger() -> Loss:
    try:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger
    except ImportError as error:
        raise _missing("liger-kernel", error) from error
    return lambda h, w, y, _: liger(h, w, y)


def _liger_cute() -> Loss:
    """Liger's kernels for one generation of GPUs: of Hopper, or of Blackwell."""
    if not torch.cuda.is_available():
        raise RuntimeError("required a GPU, got none")
    try:
        if torch.cuda.get_device_capability()[0] == 9:
            from liger_kernel.ops.cutedsl.ops import fused_linear_cross_entropy_sm90 as hopper

            return lambda h, w, y, _: hopper.liger_fused_linear_cross_entropy_sm90(h, w, y)
        from liger_kernel.ops.cutedsl.ops import LigerFusedLinearCrossEntropyFunction as blackwell
    except ImportError as error:
        raise _missing("liger-kernel[cutedsl]", error) from error
    return lambda h, w, y, _: blackwell.apply(h, w, y)[0]


def _missing(package: str, error: ImportError) -> RuntimeError:
    remedy = f"pip install '{package}'" if "[" in package else _EXTRA
    return RuntimeError(f"required {package} ({remedy}), got: {error}")


def _adaptive(problem: Problem, draws: int) -> Head:
    """fairseq's adaptive softmax, cut by the size of the vocabulary, with weights of its own."""
    from fairseq.modules import AdaptiveSoftmax

    vocab, size = problem.weight.shape
    softmax = AdaptiveSoftmax(vocab, size, cutoffs(vocab), dropout=0.0).to(problem.weight.device)
    problem.others = list(softmax.parameters())

    def head() -> Tensor:
        logits, targets = softmax(problem.features, problem.target)
        pairs = [(x, y) for x, y in zip(logits, targets) if y is not None]
        value: Any = sum(F.cross_entropy(x, y, reduction="sum") for x, y in pairs) / len(
            problem.target
        )
        return problem.step(value)

    return head


def _own(sparse: bool, shared: bool = False, kernel: str = "auto") -> Callable[..., Head]:
    """This plugin's: batch NCE, or with shared draws.

    Args:
        sparse: gradients of the batch's own rows, and not of V x D.
        kernel: for batch NCE.
    """

    def make(problem: Problem, draws: int) -> Head:
        from fairseq_bnce.sparse import row_sparse

        if sparse:
            row_sparse.mark(nn.Module(), *problem.parameters)
        draws = draws if shared else 0
        return lambda: problem.step(_nce(problem, sparse, draws, kernel) / len(problem.target))

    return make


def _nce(problem: Problem, sparse: bool, draws: int, kernel: str) -> Tensor:
    """The loss in nats, summed: batch NCE, or with ``draws`` that all tokens share."""
    from fairseq_bnce import losses
    from fairseq_bnce.losses import words
    from fairseq_bnce.sparse import row_sparse

    target, weight, bias, log_q = problem.target, problem.weight, problem.bias, problem.noise.log_q
    options: Dict[str, Any] = {"log_z": problem.log_z, "gathered": sparse}
    drawn = problem.noise.sample(draws) if draws else None
    if sparse and drawn is not None:
        used, (target,), options["noise_counts"] = words.distinct_draws_first(drawn, target)
        drawn = torch.arange(len(options["noise_counts"]), device=target.device)
    elif sparse:
        used, (target,) = words.distinct(target)
    if sparse:
        weight, log_q = row_sparse.gather(weight, used), log_q[used]
        bias = None if bias is None else row_sparse.gather(bias, used)
    arguments = (problem.features, target, weight, bias, log_q)
    if drawn is not None:
        return losses.shared_nce_loss(*arguments, drawn, **options)
    return losses.batch_nce_loss(*arguments, kernel=kernel, **options)


def _three_matmuls(problem: Problem, draws: int) -> Head:
    """The products that batch NCE can't do without, on rows gathered before: no loss, no softplus.

    N x U scores, the features' gradient, the rows' gradient; all in the problem's own dtype.
    """
    features = problem.features.detach()
    rows = problem.weight.detach()[torch.unique(problem.target)]
    padded = -(-len(rows) // _ALIGNED) * _ALIGNED

    def head() -> None:
        scores = features.new_empty((len(features), padded))[:, : len(rows)]
        torch.mm(features, rows.t(), out=scores)
        torch.mm(scores, rows)
        torch.mm(scores.t(), features)

    return head


EXACT: Dict[str, Callable[[Problem, int], Head]] = {
    "cross_entropy": _exact(lambda: _cross_entropy),
    "compiled": _exact(_compiled),
    "linear_cross_entropy": _exact(_torchs_own),
    "liger": _exact(_liger),
    "liger_cute": _exact(_liger_cute),
    "cut_cross_entropy": _exact(_cut_cross_entropy),
}
OWN: Dict[str, Callable[[Problem, int], Head]] = {
    "shared_nce": _own(sparse=False, shared=True),
    "shared_nce_sparse": _own(sparse=True, shared=True),
    "bnce_sparse_torch": _own(sparse=True, kernel="torch"),
    "bnce": _own(sparse=False),
    "bnce_sparse": _own(sparse=True),
}
HEADS = {**EXACT, LIMIT: _three_matmuls, **OWN}
LAYERS = {**HEADS, "adaptive_loss": _adaptive}  # normalised, but another model
