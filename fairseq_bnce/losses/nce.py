"""Noise-contrastive and sampled losses over a large vocabulary, as pure functions.

Nothing here knows of fairseq: tensors in, nats out. Notation, shared by every function:

- ``features`` (N, D): h_i, the model's state before the output projection;
- ``target`` (N,) int64: w_i, the word that follows context i;
- ``weight`` (V, D), ``bias`` (V,) or None: the output projection;
- ``log_q`` (V,): log-probabilities of the noise distribution, natural logarithm;
- m(v, i) = h_i . W_v + b_v: the raw score;
- D_K(v, i) = m(v, i) - log_z - log(K q(v)): the log-odds that v is data and not noise.

``log_z`` is the constant that the model is to normalise itself to, in nats; the partition
function itself is Z_c = sum_v exp(m(v, c)). ``reduction`` is "sum" (a scalar) or "none" (N values).
Scores and their gradients are computed in float32 or better whatever the inputs' dtype, also
under autocast. Bad input raises ValueError naming the argument, what was required and what came;
on a GPU the values of ids and log_q are looked at once a call, which makes the host wait for it.

``gathered`` says that the caller has gathered the words already: ``weight``, ``bias`` and ``log_q``
are those of the words that the ids name, and of no others. Then nothing is gathered again and
no value is looked at, so that the host never waits; shapes and dtypes are checked all the same.

``kernel`` says who makes the scores of binary NCE: "torch"; "auto", the fused kernel (kernels.py)
where the inputs are halves on a GPU and it agrees with torch there; or "triton", the kernel for all
that it takes. None leaves it to the environment variable FAIRSEQ_BNCE_KERNEL, and that to "torch".
Where the kernel is used, a score's gradient is rounded to halves before it is multiplied on.
"""

import functools
import math
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses.autograd import FirstOrderFunction
from fairseq_bnce.losses.shared_scores import BinaryNCE, Ranking, is_fused, shared_loss, softplus
from fairseq_bnce.losses.words import distinct

# Scores held at once by the exact partition function, whatever N and V are: 2^22 float32
# are 16 MB, which a CPU's last-level cache about holds; a GPU wants larger matrix products.
_TILE_SCORES = {"cpu": 2**22, "cuda": 2**26}
_TILE_TOKENS = 1024


def _in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Autocast would compute scores in half precision, which NCE's log-odds do not bear."""

    @functools.wraps(function)
    def without_autocast(features: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type=features.device.type, enabled=False):
            return function(features, *args, **kwargs)

    return without_autocast


@_in_full_precision
def batch_nce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    *,
    noise_ids: Optional[Tensor] = None,
    log_z: float = 0.0,
    reduction: str = "sum",
    gathered: bool = False,
    kernel: Optional[str] = None,
) -> Tensor:
    """Batch noise-contrastive estimation: the other targets of the group are the noise.

    loss_i = softplus(-D_K(w_i, i)) + sum_{j != i} softplus(D_K(w_j, i))
    + sum_k softplus(D_K(r_k, i)), with K = N - 1 + K0.

    Words that occur several times are merged, which is exact: over the distinct words u,
    loss_i = sum_u n_u softplus(D_K(u, i)) - D_K(w_i, i).

    Args:
        features: (N, D) floating point.
        target: (N,) int64.
        weight: (V, D).
        bias: (V,) or None.
        log_q: (V,) log-probabilities of the noise, finite for every word used.
        noise_ids: (K0,) int64, further draws from q shared by the group (adaptive B-NCE).
        log_z: the constant log Z, nats.
        reduction: "sum" or "none".
        gathered, kernel: see the module.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input, and for a single target without ``noise_ids`` (no noise at all).

    Reference:
        Oualil & Klakow 2017, "A batch noise contrastive estimation approach for training large
        vocabulary language models", eq. 5-12.

    Example:
        >>> log_q = torch.tensor([0.5, 0.3, 0.2]).log()
        >>> h, w = torch.zeros(2, 4), torch.zeros(3, 4)
        >>> batch_nce_loss(h, torch.tensor([0, 1]), w, None, log_q).shape
        torch.Size([])
    """
    _check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    extra = _extra_draws(target, noise_ids)
    noise_count = target.numel() - 1 + extra.numel()
    if target.numel() and noise_count < 1:
        _fail("noise_ids", "at least one draw when there is a single target", "none")
    ids = {"target": target, "noise_ids": extra}
    fusible = functools.partial(is_fused, kernel=kernel, reduction=reduction)
    used = _gather(features, weight, bias, ids, log_q, gathered=gathered, fusible=fusible)
    offset = _offset(used.log_q, math.log(max(noise_count, 1)), log_z, used.dtype)
    objective = BinaryNCE(offset, _multiplicities(offset, *used.ids), used.ids[0])
    return shared_loss(used.features, used.weight, used.bias, objective, reduction, kernel)


@_in_full_precision
def ranking_nce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    *,
    noise_ids: Optional[Tensor] = None,
    alpha: float = 0.0,
    log_z: float = 0.0,
    reduction: str = "sum",
    gathered: bool = False,
) -> Tensor:
    """Ranking noise-contrastive estimation over the group's words, self-normalised on the same.

    The group's n targets and draws together are importance samples of the partition function:
    log Z^_i = logsumexp_u (m(u, i) + log n_u - log n - log q(u)) over the distinct words u, and
    loss_i = log Z^_i - m(w_i, i) + alpha (log Z^_i - log Z)^2. No work grows with V, the
    self-normalisation's neither.

    Args:
        features, target, weight, bias, log_q, log_z, reduction, gathered: see the module.
        noise_ids: (K0,) int64, further draws from q shared by the group.
        alpha: the weight of the self-normalisation, at least 0.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Ma & Collins 2018, "Noise contrastive estimation and negative sampling for conditional
        models: consistency and statistical efficiency", the ranking objective; the penalty is
        that of Devlin et al. 2014, on the estimate in the place of log Z_c.
    """
    _check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    _check_alpha(alpha)
    extra = _extra_draws(target, noise_ids)
    ids = {"target": target, "noise_ids": extra}
    used = _gather(features, weight, bias, ids, log_q, gathered=gathered)
    samples = max(target.numel() + extra.numel(), 1)
    expected = _offset(used.log_q, math.log(samples), 0.0, used.dtype)
    log_weight = _multiplicities(expected, *used.ids).log() - expected
    objective = Ranking(log_weight, used.ids[0], alpha, log_z)
    return shared_loss(used.features, used.weight, used.bias, objective, reduction)


@_in_full_precision
def shared_nce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    noise_ids: Tensor,
    *,
    noise_counts: Optional[Tensor] = None,
    log_z: float = 0.0,
    reduction: str = "sum",
    gathered: bool = False,
    kernel: Optional[str] = None,
) -> Tensor:
    """Noise-contrastive estimation with K draws shared by all tokens.

    loss_i = softplus(-D_K(w_i, i)) + sum_k softplus(D_K(r_k, i)).

    Args:
        features, target, weight, bias, log_q, log_z, reduction, gathered, kernel: see the module.
        noise_ids: (K,) int64 draws from q, K >= 1.
        noise_counts: (K,) int64, how many draws each of ``noise_ids`` stands for, at least 1; by
            default one each.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Zoph et al. 2016, "Simple, fast noise-contrastive estimation for large RNN vocabularies".
    """
    _check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    _check_noise(noise_ids, (noise_ids.numel(),))
    if noise_counts is not None:
        _check_int64("noise_counts", noise_counts, noise_ids.shape)
    ids = {"target": target, "noise_ids": noise_ids}
    used = _gather(features, weight, bias, ids, log_q, noise_counts, gathered=gathered)
    offset = _offset(used.log_q, _log_count(noise_ids, noise_counts), log_z, used.dtype)
    data = used.target_scores() - offset[used.ids[0]]
    drawn, counts = _merged(used.ids[1], noise_counts, offset, gathered)
    of_noise = BinaryNCE(offset[drawn], counts)
    noise = shared_loss(used.features, *used.rows(drawn), of_noise, reduction, kernel)
    return _reduce(softplus(-data), reduction) + noise


@_in_full_precision
def nce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    noise_ids: Tensor,
    *,
    log_z: float = 0.0,
    reduction: str = "sum",
    gathered: bool = False,
) -> Tensor:
    """Noise-contrastive estimation with K fresh draws for every token (the slow baseline).

    loss_i = softplus(-D_K(w_i, i)) + sum_k softplus(D_K(r_ik, i)).

    Args:
        features, target, weight, bias, log_q, log_z, reduction, gathered: see the module.
        noise_ids: (N, K) int64 draws from q, K >= 1.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Mnih & Teh 2012, "A fast and simple algorithm for training neural probabilistic
        language models".
    """
    _check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    draws = noise_ids.size(-1) if noise_ids.dim() == 2 else "K"
    _check_noise(noise_ids, (target.numel(), draws))
    ids = {"target": target, "noise_ids": noise_ids}
    used = _gather(features, weight, bias, ids, log_q, gathered=gathered)
    offset = _offset(used.log_q, math.log(noise_ids.size(1)), log_z, used.dtype)
    data = used.target_scores() - offset[used.ids[0]]
    noise = used.own_scores(used.ids[1]) - offset[used.ids[1]]
    return _reduce(softplus(-data) + softplus(noise).sum(dim=1), reduction)


@_in_full_precision
def sampled_softmax_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    noise_ids: Tensor,
    *,
    log_z: float = 0.0,
    reduction: str = "sum",
    gathered: bool = False,
) -> Tensor:
    """Sampled softmax: the target is ranked against K draws shared by all tokens.

    loss_i = logsumexp_v (m(v, i) - log q(v)) - (m(w_i, i) - log q(w_i)), v over {w_i} and the
    r_k that are not w_i.
    Draws that hit the target are left out (under binary NCE that would break self-normalisation;
    here it is right). A constant in all scores cancels, so ``log_z`` changes nothing.

    Args:
        features, target, weight, bias, log_q, log_z, reduction, gathered: see the module.
        noise_ids: (K,) int64 draws from q, K >= 1.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Bengio & Senecal 2003; Jozefowicz et al. 2016, "Exploring the limits of language modeling".
    """
    _check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    _check_noise(noise_ids, (noise_ids.numel(),))
    ids = {"target": target, "noise_ids": noise_ids}
    used = _gather(features, weight, bias, ids, log_q, gathered=gathered)
    expected = _offset(used.log_q, 0.0, 0.0, used.dtype)
    of_noise = used.scores(used.ids[1]) - expected[used.ids[1]]
    of_noise = of_noise.masked_fill(target[:, None] == noise_ids, -math.inf)
    of_target = used.target_scores() - expected[used.ids[0]]
    ranked = torch.cat([of_target[:, None], of_noise], dim=1)
    return _reduce(torch.logsumexp(ranked, dim=1) - of_target, reduction)


@_in_full_precision
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
    _check_reduction(reduction)
    _check_log_z(log_z)
    _check_alpha(alpha)
    deviation = log_partition(features, weight, bias, squash=squash) - log_z
    return _reduce(alpha * deviation.square(), reduction)


@_in_full_precision
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
    _check_projection(features, weight, bias)
    _check_chunk(chunk_tokens)
    return _LogPartition.apply(features, weight, bias, chunk_tokens, squash)


class Predictive(NamedTuple):
    """What is to be known of p(. | c) = exp(m(., c) - log Z_c), for N contexts.

    Attributes:
        log_z: (N,) log Z_c, nats.
        entropy: (N,) of p(. | c), nats.
        best: (N,) int64, the likeliest word.
        best_score: (N,) its score m, nats.
    """

    log_z: Tensor
    entropy: Tensor
    best: Tensor
    best_score: Tensor


@_in_full_precision
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
    _check_projection(features, weight, bias)
    _check_chunk(chunk_tokens)
    dtype = _compute_dtype(features, weight)
    log_z = features.new_full((features.size(0),), -math.inf, dtype=dtype)
    expected = torch.zeros_like(log_z)  # of m under the words so far, whose log Z is log_z
    best, best_score = torch.zeros_like(log_z, dtype=torch.int64), log_z.clone()
    for tokens, words in _tiles(features, weight, chunk_tokens):
        part = _tile_scores(features[tokens], weight[words], _part(bias, words), dtype)
        part = squashed(part) if squash else part
        own = part.logsumexp(dim=1)
        both = torch.logaddexp(log_z[tokens], own)
        highest, word = part.max(dim=1)
        best[tokens] = torch.where(highest > best_score[tokens], word + words.start, best[tokens])
        best_score[tokens] = torch.maximum(best_score[tokens], highest)
        own_expected = part.sub(own[:, None]).exp_().mul_(part).sum(dim=1)
        expected[tokens] *= (log_z[tokens] - both).exp()
        expected[tokens] += (own - both).exp() * own_expected
        log_z[tokens] = both
    return Predictive(log_z, log_z - expected, best, best_score)


@_in_full_precision
def target_scores(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    gathered: bool = False,
) -> Tensor:
    """m(w_i, i), one dot product a token: no work or memory grows with V.

    Args:
        features: (N, D).
        target: (N,) int64.
        weight, bias: (V, D), (V,) or None.
        gathered: see the module.

    Returns:
        (N,) raw scores, nats once the constant log Z is taken off.

    Raises:
        ValueError: on bad input.
    """
    _check_projection(features, weight, bias)
    _check_int64("target", target, (features.size(0),))
    ids = {"target": target}
    return _gather(features, weight, bias, ids, gathered=gathered).target_scores()


def squashed(scores: Tensor) -> Tensor:
    """10 tanh(x / 5): scores between -10 and 10, of the same shape.

    Chen et al. 2016, "Strategies for training large vocabulary neural language models", needed
    this for a softmax whose self-normalisation is sampled.
    """
    return 10 * torch.tanh(scores / 5)


def unsquashed(scores: Tensor) -> Tensor:
    """The x of ``squashed(x) = scores``, of the same shape.

    Scores that no x, or only one far out where the slope is all but 0, could have are taken for the
    nearest that is not: 9.9 in absolute value.
    """
    return 5 * torch.atanh((scores / 10).clamp(-0.99, 0.99))


def _squashing_slope(scores: Tensor) -> Tensor:
    return 2 * (1 - torch.tanh(scores / 5).square())


class _Gathered(NamedTuple):
    """The words that a loss reads, each once, and the features, in the precision of the scores.

    Rows are raised to that precision before they are repeated, so that the gradients of a word's
    several uses are summed in it too, and rounded to the weight's own dtype once.
    """

    features: Tensor  # (N, D)
    weight: Tensor  # (U, D)
    bias: Optional[Tensor]  # (U,)
    log_q: Optional[Tensor]  # (U,), as it came
    ids: List[Tensor]  # what was asked for, as indices into the words; the targets come first
    dtype: torch.dtype  # of scores; features and rows may be halves, for the kernel

    def rows(self, ids: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight (len(ids), D) and bias of some of the words."""
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        return F.embedding(ids, self.weight), bias

    def scores(self, ids: Tensor) -> Tensor:
        """(N, len(ids)): the same words in every context."""
        return F.linear(self.features, *self.rows(ids))

    def own_scores(self, ids: Tensor) -> Tensor:
        """(N, K), for ids (N, K): other words in every context."""
        scores = torch.bmm(F.embedding(ids, self.weight), self.features.unsqueeze(2))
        return scores.squeeze(2) if self.bias is None else scores.squeeze(2) + self.bias[ids]

    def target_scores(self) -> Tensor:
        """(N,)"""
        scores = (F.embedding(self.ids[0], self.weight) * self.features).sum(dim=1)
        return scores if self.bias is None else scores + self.bias.index_select(0, self.ids[0])


def _gather(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    ids: Dict[str, Tensor],
    log_q: Optional[Tensor] = None,
    noise_counts: Optional[Tensor] = None,
    *,
    gathered: bool = False,
    fusible: Callable[..., bool] = lambda features, weight, bias: False,
) -> _Gathered:
    """The words ``ids``; ``fusible``: whether a kernel will take halves, which then stay halves."""
    numbers = list(ids.values())
    if not gathered:
        words, numbers = distinct(*numbers)
        _check_values(words, ids, weight, log_q, noise_counts)
        log_q = None if log_q is None else log_q[words]
        # As many words as rows: all of them, in their order.
        if words.numel() != weight.size(0):
            weight = F.embedding(words, weight)
            bias = None if bias is None else bias.index_select(0, words)
    dtype = _compute_dtype(features, weight)
    of_products = features.dtype if fusible(features, weight, bias) else dtype
    return _Gathered(
        features.to(of_products),
        weight.to(of_products),
        None if bias is None else bias.to(dtype),
        log_q,
        numbers,
        dtype,
    )


def _merged(
    noise: Tensor, noise_counts: Optional[Tensor], like: Tensor, gathered: bool
) -> Tuple[Tensor, Tensor]:
    """The distinct draws and how many of each; as they are where the caller has gathered them."""
    if noise_counts is None:
        noise_counts = torch.ones_like(noise)
    if gathered:
        return noise, noise_counts.to(like.dtype)
    drawn, (index,) = distinct(noise)
    return drawn, like.new_zeros(len(drawn)).index_add_(0, index, noise_counts.to(like.dtype))


class _LogPartition(FirstOrderFunction):
    """logsumexp over the vocabulary whose scores live one tile at a time, both ways."""

    @staticmethod
    def forward(ctx, features, weight, bias, chunk_tokens, squash):
        ctx.chunk_tokens, ctx.squash = chunk_tokens, squash
        dtype = _compute_dtype(features, weight)
        log_z = features.new_full((features.size(0),), -math.inf, dtype=dtype)
        tiles = list(_tiles(features, weight, chunk_tokens))
        for tokens, words in tiles:
            part = _tile_scores(features[tokens], weight[words], _part(bias, words), dtype)
            part = squashed(part) if squash else part
            highest, total = _exponentiate(part)
            log_z[tokens] = torch.logaddexp(log_z[tokens], highest + total.log())
        # A lone tile is kept for the backward pass, where making it again is most of the work;
        # a squashed one is not, since its scores' slopes are lost.
        kept = (part, total) if len(tiles) == 1 and not squash else (log_z.detach().clone(),)
        ctx.save_for_backward(features, weight, bias, *kept)
        return log_z

    @staticmethod
    def backward(ctx, grad):
        features, weight, bias, *kept = ctx.saved_tensors
        if len(kept) == 2:
            exponentials, total = kept
            everything = slice(None), slice(None), exponentials
            tiles, scale = [everything], grad / total
        else:
            options = ctx.chunk_tokens, ctx.squash
            tiles, scale = _shares(features, weight, bias, *kept, *options), grad
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
        slope = _squashing_slope(scores) if squash else None
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
    scaled = features.to(dtype) * scale[:, None]
    for tokens, words, share in tiles:
        of_features[tokens].addmm_(share, weight[words].to(dtype))
        of_weight[words].addmm_(share.t(), scaled[tokens])
        if of_bias is not None:
            of_bias[words].addmv_(share.t(), scale[tokens])
    of_features.mul_(scale[:, None])
    of_bias = None if of_bias is None else of_bias.to(bias.dtype)
    return of_features.to(features.dtype), of_weight.to(weight.dtype), of_bias


def _tiles(
    features: Tensor, weight: Tensor, chunk_tokens: Optional[int]
) -> Iterator[Tuple[slice, slice]]:
    """Blocks of (tokens, words) that cover the score matrix, each of bounded size."""
    per_tile = chunk_tokens or _TILE_TOKENS
    scores = _TILE_SCORES.get(features.device.type, _TILE_SCORES["cuda"])
    words = max(1, scores // min(per_tile, max(features.size(0), 1)))
    for first_token in range(0, features.size(0), per_tile):
        for first_word in range(0, weight.size(0), words):
            yield (
                slice(first_token, first_token + per_tile),
                slice(first_word, first_word + words),
            )


def _tile_scores(h: Tensor, w: Tensor, b: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    return F.linear(h.to(dtype), w.to(dtype), None if b is None else b.to(dtype))


def _part(bias: Optional[Tensor], words: slice) -> Optional[Tensor]:
    return None if bias is None else bias[words]


def _offset(log_q: Tensor, log_count: Any, log_z: float, dtype: torch.dtype) -> Tensor:
    """log Z + log(K q) of the words with these ``log_q``."""
    # Summed in float64: log q comes in float32, and the scores may be finer than that.
    return (log_q.double() + (log_z + log_count)).to(dtype)


def _log_count(noise: Tensor, noise_counts: Optional[Tensor]) -> Any:
    """log K: a number, or a tensor where a GPU's host would have to wait for it."""
    return math.log(len(noise)) if noise_counts is None else noise_counts.sum().double().log()


def _extra_draws(target: Tensor, noise_ids: Optional[Tensor]) -> Tensor:
    extra = target.new_empty(0) if noise_ids is None else noise_ids
    _check_int64("noise_ids", extra, (extra.numel(),))
    return extra


def _multiplicities(like: Tensor, *ids: Tensor) -> Tensor:
    """How often each of the words occurs in ``ids``, one number for each entry of ``like``."""
    flat = torch.cat(ids)
    # Not bincount, for which a GPU makes the host wait; ones add up exactly in any order.
    return torch.zeros_like(like).index_add_(0, flat, torch.ones_like(flat, dtype=like.dtype))


def _reduce(values: Tensor, reduction: str) -> Tensor:
    return values.sum() if reduction == "sum" else values


def _compute_dtype(*tensors: Tensor) -> torch.dtype:
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)


def _fail(name: str, required: str, got: object) -> None:
    raise ValueError(f"{name}: required {required}, got {got}")


def _check_inputs(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    log_z: float,
    reduction: str,
) -> None:
    _check_reduction(reduction)
    _check_log_z(log_z)
    _check_projection(features, weight, bias)
    _check_int64("target", target, (features.size(0),))
    _check_float("log_q", log_q, (weight.size(0),))


def _check_chunk(chunk_tokens: Optional[int]) -> None:
    if chunk_tokens is not None and chunk_tokens < 1:
        _fail("chunk_tokens", "at least 1", chunk_tokens)


def _check_projection(features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> None:
    _check_float("features", features, ("N", "D"))
    _check_float("weight", weight, ("V", features.size(1)))
    if bias is not None:
        _check_float("bias", bias, (weight.size(0),))


def _check_float(name: str, tensor: Tensor, shape: Tuple) -> None:
    _check_shape(name, tensor, shape)
    if not tensor.is_floating_point():
        _fail(name, "a floating-point dtype", tensor.dtype)


def _check_shape(name: str, tensor: Tensor, shape: Tuple) -> None:
    """Integers in ``shape`` must match; strings stand for any size."""
    fits = len(shape) == tensor.dim() and all(
        isinstance(want, str) or want == size for want, size in zip(shape, tensor.shape)
    )
    if not fits:
        wanted = ", ".join(str(size) for size in shape)
        _fail(name, f"shape ({wanted})", f"shape {tuple(tensor.shape)}")


def _check_noise(noise_ids: Tensor, shape: Tuple) -> None:
    if noise_ids.dim() and noise_ids.size(-1) == 0:
        _fail("noise_ids", "at least one draw", "none")
    _check_int64("noise_ids", noise_ids, shape)


def _check_int64(name: str, tensor: Tensor, shape: Tuple) -> None:
    _check_shape(name, tensor, shape)
    if tensor.dtype != torch.int64:
        _fail(name, "dtype torch.int64", tensor.dtype)


def _check_values(
    words: Tensor,
    ids: Dict[str, Tensor],
    weight: Tensor,
    log_q: Optional[Tensor],
    noise_counts: Optional[Tensor],
) -> None:
    """Of all ids (``words``: each once, sorted) and what belongs to them, in one look."""
    if not len(words):
        return
    size = weight.size(0)
    fits = (words[0] >= 0) & (words[-1] < size)
    if log_q is not None and size:
        fits = fits & log_q[words.clamp(0, size - 1)].isfinite().all()
    if noise_counts is not None:
        fits = fits & (noise_counts >= 1).all()
    if not bool(fits):
        _explain(words, ids, size, log_q, noise_counts)


def _explain(words, ids, size, log_q, noise_counts) -> None:
    """Raise for the first of the values that does not fit."""
    for name, part in ids.items():
        if part.numel():
            low, high = (bound.item() for bound in torch.aminmax(part))
            if low < 0 or high >= size:
                _fail(name, f"ids from 0 to {size - 1}", low if low < 0 else high)
    if noise_counts is not None and int(noise_counts.min()) < 1:
        _fail("noise_counts", "at least 1", int(noise_counts.min()))
    word = int(words[~log_q[words].isfinite()][0])
    required = "a finite log-probability for every target and noise word"
    _fail("log_q", required, f"{log_q[word].item()} for word {word}")


def _check_reduction(reduction: str) -> None:
    if reduction not in ("sum", "none"):
        _fail("reduction", "'sum' or 'none'", repr(reduction))


def _check_alpha(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha >= 0):
        _fail("alpha", "a finite number of at least 0", alpha)


def _check_log_z(log_z: Union[float, Tensor]) -> None:
    if torch.is_tensor(log_z):  # whose value is left on its device
        return _check_float("log_z", log_z, ())
    if not math.isfinite(log_z):
        _fail("log_z", "a finite number", log_z)
