"""The exact partition function in bounded memory: its logarithm, and what goes with it."""

import math
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce.losses.autograd import FirstOrderFunction
from fairseq_bnce.losses.checks import (
    check_alpha,
    check_chunk,
    check_log_z,
    check_projection,
    check_reduction,
)
from fairseq_bnce.losses.precision import (
    HALVES,
    at_least_float32,
    product_dtype,
    wide_linear,
    wide_product,
    without_autocast,
)
from fairseq_bnce.losses.shared_scores import reduce
from fairseq_bnce.losses.squashing import squashed, squashing_slope

# Scores held at once, whatever N and V are: 16 MB of float32 about fit into the last-level cache of
# a CPU; a GPU wants larger products and few launches.
_TILE_SCORES = {"cpu": 2**22, "gpu": 2**26}
# Contexts of a tile. On a GPU as few as let a tile have all words, which is then the only one.
_TILE_TOKENS, _FEWEST_TOKENS = 1024, 256
_SHARE_SCALE = 2.0**11  # float16 has no numbers below 6e-8, as a rare word's probability may be


@without_autocast
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
    """alpha (log Z_c - log Z)^2 for every context: the explicit self-normalisation term.

    Args:
        features: (N, D), the contexts to regularise (all, or a random share gamma of them with
            ``alpha`` divided by gamma).
        weight, bias: (V, D), (V,) or None.
        alpha: the weight of the term, at least 0.
        log_z: the constant log Z, nats; a 0-d tensor has a gradient.
        reduction: "sum" or "none".
        squash: whether scores are those of :func:`squashed`.

    Returns:
        The penalty: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Goldberger & Melamud 2018, "Self-normalization properties of language modeling", eq. 8-10.
    """
    check_reduction(reduction)
    check_log_z(log_z)
    check_alpha(alpha)
    deviation = log_partition(features, weight, bias, squash=squash) - log_z
    return reduce(alpha * deviation.square(), reduction)


@without_autocast
def log_partition(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    chunk_tokens: Optional[int] = None,
    squash: bool = False,
) -> Tensor:
    """log Z_c = logsumexp_v m(v, c) for every context, exactly, in bounded memory.

    Scores are made tile by tile and never held together. Those of a lone tile are kept for the
    backward pass, others made again in it.

    Args:
        features: (N, D).
        weight, bias: (V, D), (V,) or None.
        chunk_tokens: tokens scored together, at least 1; by default tiles of a fixed size.
        squash: whether scores are those of :func:`squashed`.

    Returns:
        (N,) log Z_c in nats, differentiable once.

    Raises:
        ValueError: on bad input.
    """
    check_projection(features, weight, bias)
    check_chunk(chunk_tokens)
    return _LogPartition.apply(features, weight, bias, chunk_tokens, squash)


class Predictive(NamedTuple):
    """What is to be known of p(. | c) = exp(m(., c) - log Z_c), for N contexts.

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


@without_autocast
@torch.no_grad()
def predictive_statistics(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    chunk_tokens: Optional[int] = None,
    squash: bool = False,
) -> Predictive:
    """Partition function, entropy and likeliest word of every context, in bounded memory.

    The entropy is H_c = log Z_c - sum_v p(v | c) m(v, c); how it goes with log Z_c is table 5 of
    Goldberger & Melamud (2018). No gradients.

    Args:
        features, weight, bias, chunk_tokens, squash: as of :func:`log_partition`.

    Raises:
        ValueError: on bad input.
    """
    check_projection(features, weight, bias)
    check_chunk(chunk_tokens)
    dtype = at_least_float32(features, weight)
    log_z = features.new_full((features.size(0),), -math.inf, dtype=dtype)
    expected = torch.zeros_like(log_z)  # of m under the words so far, whose log Z is log_z
    best, best_score = torch.zeros_like(log_z, dtype=torch.int64), log_z.clone()
    for tokens, words in _tiles(features, weight, chunk_tokens):
        part = _tile_scores(features[tokens], weight[words], _part(bias, words), dtype)
        part = squashed(part) if squash else part
        own = part.logsumexp(dim=1)
        both = torch.logaddexp(log_z[tokens], own)
        some = both.masked_fill(both.isinf(), 0)  # inf - inf is no number, nor is 0 inf
        highest, word = part.max(dim=1)
        best[tokens] = torch.where(highest > best_score[tokens], word + words.start, best[tokens])
        best_score[tokens] = torch.maximum(best_score[tokens], highest)
        share = part.sub(some[:, None]).exp_()
        expected[tokens] *= (log_z[tokens] - some).exp()
        expected[tokens] += share.mul_(part.clamp_(min=torch.finfo(dtype).min)).sum(dim=1)
        log_z[tokens] = both
    return Predictive(log_z, log_z - expected, best, best_score)


class _LogPartition(FirstOrderFunction):
    """logsumexp over the vocabulary whose scores live one tile at a time, both ways."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        chunk_tokens: Optional[int],
        squash: bool,
    ) -> Tensor:
        ctx.chunk_tokens, ctx.squash = chunk_tokens, squash
        dtype = at_least_float32(features, weight)
        log_z = features.new_full((features.size(0),), -math.inf, dtype=dtype)
        tiles = list(_tiles(features, weight, chunk_tokens))
        for tokens, words in tiles:
            part = _tile_scores(features[tokens], weight[words], _part(bias, words), dtype)
            part = squashed(part) if squash else part
            highest, total = _exponentiate(part)
            log_z[tokens] = torch.logaddexp(log_z[tokens], highest + total.log())
        # A lone tile is kept for the backward pass, where making it again is most of the work;
        # a squashed one is not, since its scores' slopes are lost.
        ctx.has_tile = len(tiles) == 1 and not squash
        saved = (part, total) if ctx.has_tile else (log_z.detach().clone(),)
        ctx.save_for_backward(features, weight, bias, *saved)
        return log_z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        features, weight, bias, *saved = ctx.saved_tensors
        tiles: Iterable[Tuple[slice, slice, Tensor]]
        if ctx.has_tile:
            exponentials, total = saved
            tiles, scale = [(slice(None), slice(None), exponentials)], grad / total
        else:
            (log_z,) = saved
            tiles = _shares(features, weight, bias, log_z, ctx.chunk_tokens, ctx.squash)
            scale = grad
        gradients = _log_partition_gradients(features, weight, bias, tiles, scale)
        return (*gradients, None, None)


def _exponentiate(scores: Tensor) -> Tuple[Tensor, Tensor]:
    """exp(score - highest) in the scores' place; the highest and the sum of each row."""
    highest = scores.max(dim=1).values
    highest.masked_fill_(highest.isinf(), 0)  # inf - inf is no number
    return highest, scores.sub_(highest[:, None]).exp_().sum(dim=1)


def _shares(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_z: Tensor,
    chunk_tokens: Optional[int],
    squash: bool,
) -> Iterator[Tuple[slice, slice, Tensor]]:
    """d log Z_c / d score, tile by tile: the softmax probabilities, times a squashing's slope."""
    for tokens, words in _tiles(features, weight, chunk_tokens):
        scores = _tile_scores(features[tokens], weight[words], _part(bias, words), log_z.dtype)
        slope = squashing_slope(scores) if squash else None
        scores = squashed(scores) if squash else scores
        share = scores.sub_(log_z[tokens, None]).exp_()
        yield tokens, words, share if slope is None else share.mul_(slope)


def _log_partition_gradients(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    tiles: Iterable[Tuple[slice, slice, Tensor]],
    scale: Tensor,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Of the tiles' share @ weight and so on, whose tokens (N,) ``scale`` multiplies.

    The scale goes to the narrow factors: a pass over a tile would cost as much as a product.
    """
    dtype = scale.dtype
    of_features = torch.zeros_like(features, dtype=dtype)
    of_weight = torch.zeros_like(weight, dtype=dtype)
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=dtype)
    factors = product_dtype(features, weight)
    scaled = (features.to(dtype) * scale[:, None]).to(factors)
    for tokens, words, share in tiles:
        if of_bias is not None:
            of_bias[words].addmv_(share.t(), scale[tokens])
        if factors in HALVES:
            half = share.mul_(_SHARE_SCALE).to(factors)
            of_features[tokens] += wide_product(half, weight[words]).div_(_SHARE_SCALE)
            of_weight[words] += wide_product(half.t(), scaled[tokens]).div_(_SHARE_SCALE)
        else:
            of_features[tokens].addmm_(share, weight[words].to(dtype))
            of_weight[words].addmm_(share.t(), scaled[tokens])
    of_features.mul_(scale[:, None])
    rounded = of_features.to(features.dtype), of_weight.to(weight.dtype)
    return (*rounded, None if bias is None or of_bias is None else of_bias.to(bias.dtype))


def _tiles(
    features: Tensor, weight: Tensor, chunk_tokens: Optional[int]
) -> Iterator[Tuple[slice, slice]]:
    """Blocks of (tokens, words) that cover the score matrix, each of bounded size."""
    device = "cpu" if features.device.type == "cpu" else "gpu"
    scores = _TILE_SCORES[device]
    per_tile = chunk_tokens or _TILE_TOKENS
    if chunk_tokens is None and device == "gpu":
        fitting = scores // max(weight.size(0), 1)
        per_tile = min(max(fitting, _FEWEST_TOKENS), _TILE_TOKENS)
    words = max(1, scores // min(per_tile, max(features.size(0), 1)))
    for first_token in range(0, features.size(0), per_tile):
        for first_word in range(0, weight.size(0), words):
            yield (
                slice(first_token, first_token + per_tile),
                slice(first_word, first_word + words),
            )


def _tile_scores(h: Tensor, w: Tensor, b: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    factors = product_dtype(h, w)
    return wide_linear(h.to(factors), w.to(factors), None if b is None else b.to(dtype))


def _part(bias: Optional[Tensor], words: slice) -> Optional[Tensor]:
    return None if bias is None else bias[words]
