"""Losses that rank the target among noise words: ranking NCE, and the sampled softmax."""

import math
from typing import Optional

import torch
from torch import Tensor

from fairseq_bnce.losses.public import checked_loss
from fairseq_bnce.losses.shared_scores import OtherWords, Ranking, reduce, shared_loss
from fairseq_bnce.losses.words import Draws, Number, Words, multiplicities, place_among


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
    ignore_index: int = -100,
    reduction: str = "sum",
) -> Tensor:
    """Compute ranking noise-contrastive estimation over the group's words.

    The group's n targets and draws together are importance samples of the partition function. With
    the score m(v, i) = h_i . W_v + b_v, over the distinct words u, each n_u times among the n:

    log Z^_i = logsumexp_u (m(u, i) + log n_u - log n - log q(u)),
    loss_i = log Z^_i - m(w_i, i) + alpha (log Z^_i - log_z)^2.

    No work grows with V, not even for the penalty.

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: (K0,) int64, further draws from q that the group shares.
        alpha: the weight of the self-normalisation, at least 0.
        log_z: the constant log Z, nats.
        ignore_index: targets of this value have no loss, and are not noise.
        reduction: "sum", "mean" over the targets that are not ignored, or "none".

    Returns:
        The loss in nats, float32 or better: a scalar, or (N,), 0 where ignored. Differentiable once
        by features, weight and bias.

    Raises:
        ValueError: for a wrong shape, dtype or value, and for a single target without
            ``noise_ids`` (no noise at all: a last batch may be so short); the message names the
            argument.

    Reference:
        Ma & Collins 2018, "Noise contrastive estimation and negative sampling for conditional
        models: consistency and statistical efficiency", the ranking objective. The penalty is
        that of Devlin et al. 2014, on the estimate instead of log Z_c.

    Example:
        >>> log_q, w = torch.tensor([0.5, 0.5]).log(), torch.zeros(2, 4)
        >>> ranking_nce_loss(torch.zeros(2, 4), torch.tensor([0, 1]), w, None, log_q)
        tensor(1.3863)
    """
    tensors = features, target, weight, bias, log_q, noise_ids
    options = {"alpha": alpha, "log_z": log_z}
    return checked_loss(ranking_nce, tensors, ("K0",), ignore_index, reduction, **options)


def ranking_nce(
    features: Tensor,
    words: Words,
    target: Tensor,
    noise: Tensor,
    *,
    alpha: float,
    log_z: Number,
    reduction: str,
) -> Tensor:
    """Compute :func:`ranking_nce_loss` over ``words``, which ``target`` and ``noise`` index."""
    expected = words.log_expected(math.log(max(len(target) + len(noise), 1)))
    counts = multiplicities(len(words.weight), target, noise).to(expected.dtype)
    objective = Ranking(counts.log() - expected, target, alpha, log_z)
    return shared_loss(features, words.weight, words.bias, objective, reduction)


def sampled_softmax_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    noise_ids: Tensor,
    *,
    log_z: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "sum",
) -> Tensor:
    """Compute the sampled softmax: the target is ranked against K draws that tokens share.

    With the score m(v, i) = h_i . W_v + b_v, over v in {w_i} and the r_k that are not w_i:

    loss_i = logsumexp_v (m(v, i) - log q(v)) - (m(w_i, i) - log q(w_i)).

    Draws that hit the target are left out (under binary NCE that would break self-normalisation).
    A word counts once as the target and as often as it is drawn as noise. So the optimum is the
    data's distribution only as far as K q(v) is small; likely words among the frequent ones come
    out too likely. :func:`ranking_nce_loss` has no such limit.

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: r, (K,) int64 draws from q, K >= 1.
        log_z: changes nothing, because a constant in all scores cancels.
        ignore_index: targets of this value have no loss, and are not noise.
        reduction: "sum", "mean" over the targets that are not ignored, or "none".

    Returns:
        The loss in nats, float32 or better: a scalar, or (N,), 0 where ignored. Differentiable once
        by features, weight and bias.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Reference:
        Bengio & Senecal 2003; Jozefowicz et al. 2016, "Exploring the limits of language modeling".

    Example:
        >>> log_q, w, r = torch.tensor([0.5, 0.5]).log(), torch.zeros(2, 4), torch.tensor([1])
        >>> sampled_softmax_loss(torch.zeros(1, 4), torch.tensor([0]), w, None, log_q, r)
        tensor(0.6931)
    """
    tensors = features, target, weight, bias, log_q, noise_ids
    return checked_loss(sampled_softmax, tensors, ("K",), ignore_index, reduction, log_z=log_z)


def sampled_softmax(
    features: Tensor, words: Words, target: Tensor, draws: Draws, *, log_z: Number, reduction: str
) -> Tensor:
    """Compute :func:`sampled_softmax_loss` over ``words``, which ``target`` and ``draws`` index."""
    features, words = words.promoted(features)
    ids, counts = draws
    expected = words.log_expected()
    place = place_among(ids, len(expected))[target]
    objective = OtherWords(counts.to(expected.dtype).log() - expected[ids], place)
    of_others = shared_loss(features, *words.rows(ids), objective, "none")
    of_target = words.target_scores(features, target) - expected[target]
    return reduce(torch.logaddexp(of_target, of_others) - of_target, reduction)
