"""Binary NCE in one Triton kernel: from features and rows to losses and G, without the scores.

A matrix product with its epilogue fused: a program accumulates one tile of the scores
m(u, i) = h_i . W_u + b_u in float32, turns it into its part of the losses and into its tile of
G(i, u) = n_u sigma(D(u, i)) - [u = w_i], and writes these alone, G in the inputs' own dtype. The
N x U scores in float32 are never in memory. A program writes nothing that another one writes, so
results are the same from run to run.

The products of two halves are exact in float32: scores, log-odds and losses have its precision. G
is rounded to the inputs' dtype, once, before the two products that make gradients of it, and what
these accumulate in float32 is rounded for the features' gradient. In bfloat16 this was seen, on
2,000 contexts and 1,200 words, to raise the gradients' root mean square error from 0.17 %, which
rounding them at the end costs anyway, to 0.21 %. float16 has no exponents below -24: entries of G
and of the features' gradient under 6e-8 are lost there, before any loss scale.

No timing on a GPU exists yet, nor has the kernel ever run on one: it is compiled for compute
capabilities 8.0 and 9.0 (no register is spilled in the loop over D) and run by Triton's interpreter
(TRITON_INTERPRET=1); the block sizes are customary ones, not tuned. So it is used where it is asked
for (``kernel="auto"``), and kernel_choice.py asks :func:`is_right` once for every variant first.

Importing this module needs the ``triton`` package; everything else here does without.
"""

import functools
import logging
from typing import Dict, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

logger = logging.getLogger(__name__)


class Blocks(NamedTuple):
    """A tile of ``contexts`` x ``words`` scores, made from slices of ``size`` of the features."""

    contexts: int
    words: int
    size: int
    warps: int
    stages: int


# By bytes a number; at most 96 KiB of shared memory, which GPUs of capability 8.0 and above have.
_BLOCKS: Dict[int, Blocks] = {2: Blocks(128, 128, 64, 8, 3), 4: Blocks(64, 64, 32, 4, 2)}
_GROUP = 8  # blocks of contexts whose programs run side by side and share rows in the L2 cache
_ALIGNMENT = 64  # G's rows start at multiples of it, or matrix products take their slow versions
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# torch 2.8 and later can leave a product of halves in the float32 that it was accumulated in.
_HAS_WIDE_PRODUCT = "dtype" in torch.ops.aten.mm.overloads()


def supports(features: Tensor, weight: Tensor) -> bool:
    """Whether :func:`binary_nce` takes them: where they are, and their dtypes."""
    runs = (features.is_cuda or _INTERPRETED) and features.device == weight.device
    return runs and features.dtype == weight.dtype and features.dtype in _DTYPES


def binary_nce(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    offset: Tensor,
    counts: Tensor,
    target: Tensor,
    *,
    factor: Optional[Tensor] = None,
    gradient: bool = True,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Losses and G of shared_scores.BinaryNCE.

    loss_i = sum_u n_u softplus(D(u, i)) - D(w_i, i); D(u, i) = h_i . W_u + b_u - offset(u).

    Args:
        features, weight: (N, D), (U, D), as :func:`supports` wants them.
        bias: (U,) or None.
        offset: (U,) log Z + log(K q(u)), nats.
        counts: (U,) n_u.
        target: (N,) int64 indices into the words.
        factor: (N,) what the rows of G are multiplied by before they are rounded, or None.
        gradient: whether G is wanted.

    Returns:
        The losses (N,) in float32, nats, and G (N, U) in the dtype of ``features``, or None.
    """
    blocks = _BLOCKS[features.element_size()]
    count, words = len(features), len(weight)
    tiles = (triton.cdiv(count, blocks.contexts), triton.cdiv(words, blocks.words))
    losses = features.new_empty((count, tiles[1]), dtype=torch.float32)
    matrix = _empty_rows(features, words) if gradient else None
    if tiles[0] * tiles[1]:
        features, weight = _with_dense_rows(features), _with_dense_rows(weight)
        factor = None if factor is None else factor.contiguous()  # a sum's gradient is expanded
        with torch.cuda.device_of(features):
            _binary_nce[(tiles[0] * tiles[1],)](
                *(
                    features,
                    weight,
                    _shift(bias, offset),
                    counts.float().contiguous(),
                    target.contiguous(),
                    factor,
                ),
                *(losses, matrix, count, words, features.size(1)),
                *(features.stride(0), weight.stride(0), 0 if matrix is None else matrix.stride(0)),
                BLOCK_N=blocks.contexts,
                BLOCK_U=blocks.words,
                BLOCK_D=blocks.size,
                GROUP=_GROUP,
                IS_WHOLE=features.size(1) % blocks.size == 0,
                RAISES=_INTERPRETED,
                num_warps=blocks.warps,
                num_stages=blocks.stages,
            )
    return losses.sum(dim=1), matrix


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right`` of halves in float32: rounded to halves first by a torch before 2.8."""
    if left.is_cuda and _HAS_WIDE_PRODUCT and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).float()


@functools.lru_cache(maxsize=None)
def is_right(
    device: torch.device,
    dtype: torch.dtype,
    size: int,
    bias: bool,
    factor: bool,
    gradient: bool,
) -> bool:
    """Whether a variant of the kernel compiles here and agrees with torch; warns if not.

    Args:
        device, dtype, size: of the features (N, size): the kernel is another one where ``size`` is
            a multiple of a tile's.
        bias, factor, gradient: which of these arguments of :func:`binary_nce` it will have.
    """
    problem = _Problem.random(size, bias, factor)
    try:
        _check(problem.to(device, dtype), gradient)
    except Exception as error:  # Triton's own, the compiler's, the driver's: all have a remedy
        logger.warning(
            "the Triton kernel of batch NCE is not used for %s on %s: %s", dtype, device, error
        )
        return False
    return True


class _Problem(NamedTuple):
    """Arguments of :func:`binary_nce`."""

    features: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    offset: Tensor
    counts: Tensor
    target: Tensor
    factor: Optional[Tensor]

    @classmethod
    def random(cls, size: int, bias: bool, factor: bool) -> "_Problem":
        """150 contexts and 200 words, without a draw from the generator of the training."""
        rng = torch.Generator().manual_seed(1)
        features, weight = (torch.randn(n, size, generator=rng) / size**0.25 for n in (150, 200))
        words = torch.arange(200)
        return cls(
            features,
            weight,
            torch.linspace(-1, 1, 200) if bias else None,
            words % 7 + 0.5,
            1 + words % 5,
            words[:150] % 71,
            torch.linspace(-1, 2, 150) if factor else None,
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> "_Problem":
        """Features and weight in ``dtype``."""
        given = {name: part for name, part in self._asdict().items() if part is not None}
        moved = self._replace(**{name: part.to(device) for name, part in given.items()})
        return moved._replace(features=moved.features.to(dtype), weight=moved.weight.to(dtype))

    def wanted(self) -> Tuple[Tensor, Tensor]:
        """Losses and G in float64, by torch alone."""
        shift = -self.offset if self.bias is None else self.bias - self.offset
        log_odds = self.features.double() @ self.weight.double().t() + shift
        hit = F.one_hot(self.target, len(self.weight)).double()
        losses = F.softplus(log_odds, threshold=50) @ self.counts.double() - (log_odds * hit).sum(1)
        matrix = log_odds.sigmoid() * self.counts - hit
        return losses, matrix if self.factor is None else matrix * self.factor[:, None]


def _check(problem: _Problem, gradient: bool) -> None:
    """Raise ArithmeticError unless losses, G and a product are torch's own."""
    features = problem.features
    losses, matrix = binary_nce(*problem[:6], factor=problem.factor, gradient=gradient)
    of_losses, of_matrix = problem.wanted()
    _require_near("losses", losses, of_losses, 1e-5)
    if matrix is not None:
        _require_near("G", matrix, of_matrix, 2 * torch.finfo(features.dtype).eps)
        got = product(matrix.t(), features)
        _require_near("product", got, matrix.t().double() @ features.double(), 1e-2)


def _require_near(name: str, got: Tensor, wanted: Tensor, tolerance: float) -> None:
    difference = ((got - wanted).abs().max() / wanted.abs().max()).item()
    if not difference <= tolerance:  # NaN too
        raise ArithmeticError(f"{name}: required {tolerance:.0e} of torch's, got {difference:.0e}")


def _empty_rows(like: Tensor, columns: int) -> Tensor:
    """(len(like), columns), whose rows start at aligned places.

    What lies between them is 0, since a product may read it, and 0 times NaN is NaN.
    """
    rows = like.new_empty((len(like), triton.cdiv(columns, _ALIGNMENT) * _ALIGNMENT))
    rows[:, columns:] = 0
    return rows[:, :columns]


def _with_dense_rows(matrix: Tensor) -> Tensor:
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def _shift(bias: Optional[Tensor], offset: Tensor) -> Tensor:
    """(U,) what makes log-odds of the products h . W."""
    return (-offset if bias is None else bias - offset).float()


@triton.jit
def _binary_nce(
    features,
    weight,
    shift,
    counts,
    target,
    factor,
    losses,
    gradient,
    contexts,
    words,
    size,
    features_stride,
    weight_stride,
    gradient_stride,
    BLOCK_N: tl.constexpr,
    BLOCK_U: tl.constexpr,
    BLOCK_D: tl.constexpr,
    GROUP: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    RAISES: tl.constexpr,
):
    """A tile: its scores, then its part of the losses (losses: (N, blocks of words)) and of G."""
    word_blocks = tl.cdiv(words, BLOCK_U)
    row_block, word_block = _tile(tl.cdiv(contexts, BLOCK_N), word_blocks, GROUP)
    rows = row_block * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = word_block * BLOCK_U + tl.arange(0, BLOCK_U)
    is_row, is_column = rows < contexts, columns < words
    # What lies outside is computed from the first row or column, and neither counted nor stored.
    left = features + tl.where(is_row, rows, 0).to(tl.int64)[:, None] * features_stride
    right = weight + tl.where(is_column, columns, 0).to(tl.int64)[None, :] * weight_stride
    scores = _products(left, right, size, BLOCK_N, BLOCK_U, BLOCK_D, IS_WHOLE, RAISES)

    log_odds = scores + tl.load(shift + columns, mask=is_column, other=0.0)[None, :]
    count = tl.load(counts + columns, mask=is_column, other=0.0)[None, :]
    loss, slope = _softplus_and_sigmoid(log_odds)
    loss, slope = loss * count, slope * count
    hit = tl.load(target + rows, mask=is_row, other=-1)[:, None] == columns[None, :]
    loss -= tl.where(hit, log_odds, 0.0)
    slope -= tl.where(hit, 1.0, 0.0)
    tl.store(losses + rows.to(tl.int64) * word_blocks + word_block, tl.sum(loss, 1), mask=is_row)
    if gradient is not None:
        if factor is not None:
            slope *= tl.load(factor + rows, mask=is_row, other=0.0)[:, None]
        place = gradient + rows.to(tl.int64)[:, None] * gradient_stride + columns[None, :]
        inside = is_row[:, None] & is_column[None, :]
        tl.store(place, slope.to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def _tile(row_blocks, word_blocks, GROUP: tl.constexpr):
    """This program's (block of contexts, block of words); GROUP blocks of contexts in turn."""
    program = tl.program_id(0)
    first = program // (GROUP * word_blocks) * GROUP
    within = program % (GROUP * word_blocks)
    height = tl.minimum(row_blocks - first, GROUP)
    return first + within % height, within // height


@triton.jit
def _products(
    left,
    right,
    size,
    BLOCK_N: tl.constexpr,
    BLOCK_U: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    RAISES: tl.constexpr,
):
    """(BLOCK_N, BLOCK_U) float32 dot products of the rows that start at ``left`` and ``right``."""
    inner = tl.arange(0, BLOCK_D)
    left += inner[None, :]
    right += inner[:, None]
    scores = tl.zeros((BLOCK_N, BLOCK_U), tl.float32)
    for start in range(0, size, BLOCK_D):
        if IS_WHOLE:
            h = tl.load(left)
            w = tl.load(right)
        else:
            h = tl.load(left, mask=(start + inner < size)[None, :], other=0.0)
            w = tl.load(right, mask=(start + inner < size)[:, None], other=0.0)
        if RAISES:  # Triton's interpreter multiplies bfloat16's bits as integers
            h, w = h.to(tl.float32), w.to(tl.float32)
        scores = tl.dot(h, w, scores, input_precision="ieee")
        left += BLOCK_D
        right += BLOCK_D
    return scores


@triton.jit
def _softplus_and_sigmoid(x):
    """(log(1 + e^x), 1 / (1 + e^-x)) without overflow."""
    small = tl.exp(-tl.abs(x))
    # 1 + small would round a small one away, which sums over thousands of words would show.
    series = small * (1 - small * (0.5 - small * (1 / 3 - small * 0.25)))
    log1p = tl.where(small < 0.01, series, tl.log(1 + small))
    return tl.maximum(x, 0.0) + log1p, tl.where(x > 0, 1.0, small) / (1 + small)


_INTERPRETED = not isinstance(_binary_nce, triton.JITFunction)
