"""The exact partition function in bounded memory: its logarithm, and what goes with it."""

import math
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce.losses import checks
from fairseq_bnce.losses.shared_scores import reduce
from fairseq_bnce.losses.squashing import squashed, squashing_slope
from fairseq_bnce.losses.words import HALVES, at_least_float32, first_order, mm_dtype, wide_linear

# Scores held at once, whatever N and V are: 16 MB of float32 about fit into the last-level cache of
# a CPU; a GPU wants larger products and few launches.
_TILE_SCORES = {"cpu": 2**22, "gpu": 2**26}
# Contexts of a tile. On a GPU as few as let a tile have all words, which is then the only one.
_TILE_TOKENS, _FEWEST_TOKENS = 1024, 256
_Tile = Tuple[slice, slice, Tensor]  # tokens, words, and a number for each of both
_VANISHING = -1e4  # e to this power is 0 in every precision, and 0 times this a number
_SHARE_SCALE = 2.0**11  # float16 has no numbers below 6e-8, as a rare word's probability may be


def partition_penalty(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    alpha: float,
    log_z: Union[float, Tensor] = 0.0,
    reduction: str = "sum",
    squash: bool = False,
) -> Tensor:
    """Compute alpha (log Z_c - log Z)^2 for every context, the self-normalisation term.

    Args:
        features: (N, D) floating point, the contexts to regularise: all of them, or a random share
            gamma of them with ``alpha`` divided by gamma.
        weight: (V, D) floating point.
        bias: (V,) floating point, or None.
        alpha: the weight of the term, at least 0.
        log_z: the constant log Z, nats; a 0-d tensor has a gradient.
        reduction: "sum", "mean" or "none".
        squash: whether scores are those of :func:`squashed`.

    Returns:
        The penalty, float32 or better: a scalar, or (N,). Differentiable once.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Reference:
        Goldberger & Melamud 2018, "Self-normalization properties of language modeling", eq. 8-10.

    Example:
        >>> h, w = torch.zeros(2, 3), torch.zeros(4, 3)  # Z_c is 4
        >>> partition_penalty(h, w, None, alpha=1.0, log_z=math.log(4) - 0.5)
        tensor(0.5000)
    """
    checks.check_options(reduction, alpha)
    deviation = log_partition(features, weight, bias, squash=squash) - log_z
    return reduce(alpha * deviation.square(), reduction)


def log_partition(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    chunk_tokens: Optional[int] = None,
    squash: bool = False,
) -> Tensor:
    """Compute log Z_c = logsumexp_v m(v, c) for every context c, exactly, in bounded memory.

    Scores are made tile by tile and never held together. The backward pass reads the scores of a
    lone tile, which the forward pass keeps, and makes those of several tiles again.

    Args:
        features: (N, D) floating point.
        weight: (V, D) floating point.
        bias: (V,) floating point, or None.
        chunk_tokens: tokens scored together, at least 1; by default tiles of a fixed size.
        squash: whether scores are those of :func:`squashed`.

    Returns:
        (N,) log Z_c in nats, float32 or better. Differentiable once.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Example:
        >>> h, w = torch.zeros(2, 3), torch.zeros(4, 3)
        >>> log_partition(h, w, None).exp()
        tensor([4., 4.])
    """
    checks.check_layer(features, weight, bias, chunk_tokens)
    return _LogPartition.apply(features, weight, bias, chunk_tokens, squash)


class Predictive(NamedTuple):
    """Statistics of p(. | c) = exp(m(., c) - log Z_c), for N contexts.

    Attributes:
        log_partition: (N,) log Z_c, nats.
        entropy: (N,) of p(. | c), nats.
        best: (N,) int64, the likeliest word.
        best_score: (N,) its score m, nats.
    """

    log_partition: Tensor
    entropy: Tensor
    best: Tensor
    best_score: Tensor


@torch.no_grad()
def predictive_statistics(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    chunk_tokens: Optional[int] = None,
    squash: bool = False,
) -> Predictive:
    """Compute log Z_c, entropy and likeliest word of every context, in bounded memory.

    The entropy is H_c = log Z_c - sum_v p(v | c) m(v, c). Table 5 of Goldberger & Melamud (2018)
    relates H_c to log Z_c. No gradients.

    Args:
        features: (N, D) floating point.
        weight: (V, D) floating point.
        bias: (V,) floating point, or None.
        chunk_tokens: tokens scored together, at least 1; by default tiles of a fixed size.
        squash: whether scores are those of :func:`squashed`.

    Returns:
        A :class:`Predictive`, in nats, float32 or better.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Example:
        >>> h, w = torch.ones(1, 2), torch.tensor([[0.0, 0.0], [1.0, 2.0]])
        >>> predictive_statistics(h, w, None).best
        tensor([1])
    """
    checks.check_layer(features, weight, bias, chunk_tokens)
    scores = _Scores(features, weight, bias, chunk_tokens, squash)
    best_score = scores.of_no_words()
    best = torch.zeros_like(best_score, dtype=torch.int64)
    # Sums of e^x and x e^x over the words so far, where x = m - best_score: differences keep the
    # digits that large scores m would take from the entropy.
    total, moment = torch.zeros_like(best_score), torch.zeros_like(best_score)
    with torch.autocast(device_type=features.device.type, enabled=False):
        for tokens, words, part in scores.tiles():
            highest, word = part.max(dim=1)
            before = best_score[tokens].clone()
            best[tokens] = torch.where(highest > before, word + words.start, best[tokens])
            best_score[tokens] = highest = torch.maximum(before, highest)
            highest = highest.masked_fill(highest.isinf(), 0)  # inf - inf is no number
            shift = (before - highest).clamp_(min=_VANISHING)
            moment[tokens] = shift.exp() * (moment[tokens] + shift * total[tokens])
            total[tokens] *= shift.exp()
            x = part.sub_(highest[:, None]).clamp_(min=_VANISHING)
            share = x.exp()
            total[tokens] += share.sum(dim=1)
            moment[tokens] += share.mul_(x).sum(dim=1)
    log_total = total.log()
    return Predictive(best_score + log_total, log_total - moment / total, best, best_score)


class _Scores(NamedTuple):
    """The scores of all words after all contexts, which exist one tile at a time."""

    features: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    chunk_tokens: Optional[int]
    squash: bool

    def of_no_words(self) -> Tensor:
        """Return log Z_c over no words: (N,), -inf."""
        dtype = at_least_float32(self.features, self.weight)
        return self.features.new_full((len(self.features),), -math.inf, dtype=dtype)

    def shares(self, log_z: Tensor) -> Iterator[_Tile]:
        """Yield d log Z_c / d score: softmax probabilities, times a squashing's slope."""
        for tokens, words, scores in self.tiles():
            slope = squashing_slope(scores) if self.squash else None
            share = scores.sub_(log_z[tokens, None]).exp_()
            yield tokens, words, share if slope is None else share.mul_(slope)

    def tiles(self) -> Iterator[_Tile]:
        """Yield scores in tiles that cover the score matrix."""
        features, weight, bias = self[:3]
        count, vocabulary = max(len(features), 1), max(len(weight), 1)
        limit, per_tile = _TILE_SCORES["gpu"], self.chunk_tokens or _TILE_TOKENS
        if features.device.type == "cpu":
            limit = _TILE_SCORES["cpu"]
        elif self.chunk_tokens is None:
            per_tile = min(max(limit // vocabulary, _FEWEST_TOKENS), _TILE_TOKENS)
        size = max(1, limit // min(per_tile, count))
        dtype, exact = mm_dtype(features, weight), at_least_float32(features, weight)
        for first_token in range(0, len(features), per_tile):
            tokens = slice(first_token, first_token + per_tile)
            for first_word in range(0, len(weight), size):
                words = slice(first_word, first_word + size)
                own = None if bias is None else bias[words].to(exact)
                scores = wide_linear(features[tokens].to(dtype), weight[words].to(dtype), own)
                scores = squashed(scores) if self.squash else scores
                yield tokens, words, scores


class _LogPartition(torch.autograd.Function):
    """logsumexp over the vocabulary whose scores live one tile at a time, both ways."""

    @staticmethod
    @first_order
    def forward(ctx: Any, *fields: Any) -> Tensor:
        """Take the fields of :class:`_Scores`."""
        scores, ctx.options = _Scores(*fields), fields[3:]
        log_z, count = scores.of_no_words(), 0
        for tokens, _, part in scores.tiles():
            highest = part.max(dim=1).values
            highest.masked_fill_(highest.isinf(), 0)  # inf - inf is no number
            total = part.sub_(highest[:, None]).exp_().sum(dim=1)
            log_z[tokens] = torch.logaddexp(log_z[tokens], highest + total.log())
            count += 1
        # A lone tile's exponentials are kept: to make them again is most of the backward pass. A
        # squashed tile's are not, because they don't tell the slopes.
        ctx.has_tile = count == 1 and not scores.squash
        saved = (part, total) if ctx.has_tile else (log_z.detach().clone(),)
        ctx.save_for_backward(*fields[:3], *saved)
        return log_z

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        features, weight, bias, *saved = ctx.saved_tensors
        # Tiles of shares are to be multiplied by the scale (N,). The scale goes to the narrow
        # factors of a product: a pass over a tile would cost as much as the product.
        shares: Iterable[_Tile]
        if ctx.has_tile:
            exponentials, total = saved
            shares, scale = [(slice(None), slice(None), exponentials)], grad / total
        else:
            scores = _Scores(features, weight, bias, *ctx.options)
            shares, scale = scores.shares(saved[0]), grad
        factors, dtype = mm_dtype(features, weight), scale.dtype
        scaled = (features.to(dtype) * scale[:, None]).to(factors)
        of_features = torch.zeros_like(features, dtype=dtype)
        of_weight = torch.zeros_like(weight, dtype=dtype)
        of_bias = None if bias is None else torch.zeros_like(bias, dtype=dtype)
        for tokens, words, share in shares:
            if of_bias is not None:
                of_bias[words].addmv_(share.t(), scale[tokens])
            if factors in HALVES:
                half = share.mul_(_SHARE_SCALE).to(factors)
                _add_product(of_features[tokens], half, weight[words])
                _add_product(of_weight[words], half.t(), scaled[tokens])
            else:
                of_features[tokens].addmm_(share, weight[words].to(dtype))
                of_weight[words].addmm_(share.t(), scaled[tokens])
        of_features.mul_(scale[:, None])
        rounded = of_features.to(features.dtype), of_weight.to(weight.dtype)
        return (*rounded, None if of_bias is None else of_bias.to(bias.dtype), None, None)


def _add_product(sums: Tensor, scaled_shares: Tensor, halves: Tensor) -> None:
    """Add the product of shares and halves in float32."""
    product = torch.mm(scaled_shares, halves, out_dtype=torch.float32)
    sums.add_(product, alpha=1 / _SHARE_SCALE)
