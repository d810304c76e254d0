"""What all losses share: the words that they read, and the precision that they compute in.

Scores are made in float32 or better, and gradients are written by hand.
"""

import functools
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses import checks

Number = Union[float, Tensor]
HALVES = (torch.float16, torch.bfloat16)
_ROW_NUMBERS = 2**22  # of the rows that are held at once for scores of fresh draws
# torch 2.8 and later return the float32 sums in which a CUDA device multiplies halves.
_HAS_WIDE_PRODUCT = "dtype" in torch.ops.aten.mm.overloads() and torch.version.hip is None


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """Return the widest of the tensors' dtypes and float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def mm_dtype(a: Tensor, b: Tensor) -> torch.dtype:
    """Return the dtype in which matrix products take ``a`` and ``b``.

    Halves stay halves where :func:`wide_linear` multiplies them on tensor cores. All other tensors
    are raised to float32 or better.
    """
    are_halves = a.dtype == b.dtype and a.dtype in HALVES
    if are_halves and _HAS_WIDE_PRODUCT and a.is_cuda and b.is_cuda:
        return a.dtype
    return at_least_float32(a, b)


def wide_linear(features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """Compute h . W_u + b_u (N, U) of (N, D), (U, D) and (U,) or None, in float32 or better.

    The features and the weight have the :func:`mm_dtype`.
    """
    if features.dtype not in HALVES:
        return F.linear(features, weight, bias)
    scores = torch.mm(features, weight.t(), out_dtype=torch.float32)
    return scores if bias is None else scores.add_(bias)


def first_order(method: Callable) -> Callable:
    """Let a method of an autograd function ignore autocast and refuse second derivatives.

    For forward and backward passes that are written by hand. torch's own decorators would not do:
    ``once_differentiable`` takes second derivatives for zero where the incoming gradient is a
    constant, and ``custom_fwd`` leaves autocast on, or raises halves to float32.

    Raises:
        RuntimeError: in a backward pass with ``create_graph=True``.
    """

    @functools.wraps(method)
    def guarded(ctx: object, tensor: Tensor, *rest: object) -> object:
        if torch.is_grad_enabled():  # only in a backward pass with create_graph=True
            raise RuntimeError(f"{type(ctx).__name__}: required a first derivative, got a second")
        with torch.autocast(device_type=tensor.device.type, enabled=False):
            return method(ctx, tensor, *rest)

    return guarded


class Words(NamedTuple):
    """Rows of the output layer, one for each distinct word. Ids here are indices of these rows.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
        log_q: (U,) log-probabilities of the noise, or None.
    """

    weight: Tensor
    bias: Optional[Tensor]
    log_q: Optional[Tensor] = None

    def promoted(self, features: Tensor) -> Tuple[Tensor, "Words"]:
        """Return features and words in the dtypes that products and scores take.

        Rows are raised before they are repeated, so that the gradients of a word's several uses are
        summed in that precision, and rounded to the weight's own dtype once.
        """
        dtype = mm_dtype(features, self.weight)
        bias = None if self.bias is None else self.bias.to(at_least_float32(features, self.weight))
        return features.to(dtype), self._replace(weight=self.weight.to(dtype), bias=bias)

    def log_expected(self, log_count: Number = 0.0, log_z: Number = 0.0) -> Tensor:
        """Compute log Z + log(K q), (U,) in float32 or better."""
        assert self.log_q is not None
        # Summed in float64: log q comes in float32, and scores may be finer than that.
        return (self.log_q.double() + (log_z + log_count)).to(at_least_float32(self.weight))

    def rows(self, ids: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight (len(ids), D) and bias of some of the words."""
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        return F.embedding(ids, self.weight), bias

    def select(self, ids: Tensor) -> "Words":
        """Return some of the words."""
        return Words(*self.rows(ids), None if self.log_q is None else self.log_q[ids])

    def target_scores(self, features: Tensor, target: Tensor) -> Tensor:
        """Compute m(w_i, i) (N,) of one word after each context."""
        rows = F.embedding(target, self.weight.to(at_least_float32(self.weight)))
        scores = (rows * features).sum(dim=1)
        return scores if self.bias is None else scores + self.bias.index_select(0, target)

    def rowwise_scores(self, features: Tensor, ids: Tensor) -> Tensor:
        """Compute m(r_ik, i) (N, K) of K other words after each context."""
        exact = at_least_float32(self.weight)
        scores = _RowwiseScores.apply(features.to(exact), self.weight.to(exact), ids)
        if self.bias is None:
            return scores
        return scores + self.bias.index_select(0, ids.flatten()).view_as(ids)


class Draws(NamedTuple):
    """Noise that all tokens share.

    Attributes:
        ids: (K',) the distinct draws, as indices of words.
        counts: (K',) how often each was drawn.
    """

    ids: Tensor
    counts: Tensor


class _RowwiseScores(torch.autograd.Function):
    """m(r_ik, i) = W_r . h_i, with the rows of only so many contexts at once.

    The sum of rows W_r, weighted by the scores' gradients, is the gradient of h: torch's embedding
    bag makes it without the N x K rows.
    """

    @staticmethod
    @first_order
    def forward(ctx: Any, features: Tensor, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(features, weight, ids)
        scores = features.new_empty(ids.shape)
        size = max(1, _ROW_NUMBERS // max(1, ids.size(1) * features.size(1)))
        parts = (tensor.split(size) for tensor in (features, ids, scores))
        for some, words, out in zip(*parts):
            torch.bmm(F.embedding(words, weight), some[:, :, None], out=out[:, :, None])
        return scores

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, Tensor, None]:
        features, weight, ids = ctx.saved_tensors
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            bags = F.embedding_bag(ids, weight, per_sample_weights=grad, mode="sum")
            (weight_grad,) = torch.autograd.grad(bags, weight, features)
        return bags.detach(), weight_grad, None


def target_scores(
    features: Tensor, target: Tensor, weight: Tensor, bias: Optional[Tensor]
) -> Tensor:
    """Compute m(w_i, i) = h_i . W_w + b_w, one dot product a token, independent of V.

    Args:
        features: (N, D) floating point.
        target: (N,) int64, ids below V.
        weight: (V, D) floating point.
        bias: (V,) floating point, or None.

    Returns:
        (N,) raw scores in float32 or better. Minus the constant log Z, the scores of a
        self-normalised model are log-probabilities in nats.

    Raises:
        ValueError: for a wrong shape or dtype, and for an id outside the vocabulary; the message
            names the argument.

    Example:
        >>> h, w = torch.ones(2, 3), torch.arange(12.0).view(4, 3)
        >>> target_scores(h, torch.tensor([0, 3]), w, None)
        tensor([ 3., 30.])
    """
    checks.check_layer(features, weight, bias)
    checks.check_tensor("target", target, (len(features),), "int64")
    used, (index,) = distinct(target)
    checks.check_values(used, {"target": target}, len(weight))
    features, words = Words(weight, bias).select(used).promoted(features)
    return words.target_scores(features, index)


def distinct(*ids: Tensor) -> Tuple[Tensor, List[Tensor]]:
    """Return the distinct words (U,) of ``ids`` (any shapes), sorted, and ``ids`` as indices."""
    words, indices, count = _numbered(ids)
    return words[: int(count)], indices


def distinct_with_draws(draws: Tensor, *ids: Tensor) -> Tuple[Tensor, List[Tensor], Draws]:
    """Return the distinct words of ``draws`` and ``ids`` together, and those of the draws.

    Args:
        draws: (K,) int64, K >= 1.
        *ids: int64, of any shapes.

    Returns:
        The distinct words (U,), sorted; ``ids`` as indices into them; and the draws.
    """
    words, (index, *indices), count = _numbered((draws, *ids))
    counts = torch.zeros_like(words).index_add_(0, index, torch.ones_like(index))
    drawn = counts.eq(0).byte().argsort(stable=True)
    word_count, drawn_count = torch.stack([count, counts.gt(0).sum()]).tolist()
    drawn = drawn[:drawn_count]
    return words[:word_count], indices, Draws(drawn, counts[drawn])


def _numbered(ids: Sequence[Tensor]) -> Tuple[Tensor, List[Tensor], Tensor]:
    """Return the distinct ids, sorted, with anything after them; ``ids`` as indices; their number.

    The count stays on its device, so that a caller can read it together with others.
    """
    flat = torch.cat([part.reshape(-1) for part in ids])
    ordered, order = flat.sort()
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    word = is_first.cumsum(0) - 1
    words = torch.empty_like(ordered).scatter_(0, word, ordered)
    index = torch.empty_like(order).scatter_(0, order, word)
    parts = index.split([part.numel() for part in ids])
    return words, [new.view_as(old) for new, old in zip(parts, ids)], is_first.sum()


def multiplicities(size: int, *ids: Tensor) -> Tensor:
    """Count how often each of ``size`` words occurs in ``ids``, (size,) float32."""
    flat = torch.cat(ids)
    # Not bincount, for which a GPU makes the host wait; ones add up exactly in any order.
    ones = torch.ones_like(flat, dtype=torch.float32)
    return torch.zeros(size, device=flat.device).index_add_(0, flat, ones)


def place_among(ids: Tensor, size: int) -> Tensor:
    """Find each of ``size`` words' place among the distinct ``ids``, (size,); -1 for others."""
    places = torch.arange(len(ids), device=ids.device)
    return ids.new_full((size,), -1).scatter_(0, ids, places)
