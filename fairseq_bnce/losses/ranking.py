"""Losses that rank the target among noise words: ranking NCE, and the sampled softmax."""

import math
from typing import Optional, Union

import torch
from torch import Tensor

from fairseq_bnce.losses.checks import (
    check_alpha,
    check_has_noise,
    check_inputs,
    check_int64,
    check_noise,
)
from fairseq_bnce.losses.precision import without_autocast
from fairseq_bnce.losses.shared_scores import OtherWords, Ranking, reduce, shared_loss
from fairseq_bnce.losses.words import Words, gather, merge_draws, multiplicities


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
) -> Tensor:
    """Ranking noise-contrastive estimation over the group's words, self-normalised on the same.

    The group's n targets and draws together are importance samples of the partition function:
    log Z^_i = logsumexp_u (m(u, i) + log n_u - log n - log q(u)) over the distinct words u, and
    loss_i = log Z^_i - m(w_i, i) + alpha (log Z^_i - log Z)^2. No work grows with V, the
    self-normalisation's neither.

    Args:
        features, target, weight, bias, log_q, log_z, reduction: see the package.
        noise_ids: (K0,) int64, further draws from q shared by the group.
        alpha: the weight of the self-normalisation, at least 0.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input, and for a single target without ``noise_ids`` (no noise at all).

    Reference:
        Ma & Collins 2018, "Noise contrastive estimation and negative sampling for conditional
        models: consistency and statistical efficiency", the ranking objective; the penalty is
        that of Devlin et al. 2014, on the estimate in the place of log Z_c.
    """
    noise = target.new_empty(0) if noise_ids is None else noise_ids
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_alpha(alpha)
    check_int64("noise_ids", noise, ("K0",))
    check_has_noise(target, noise)
    words, ids = gather(weight, bias, log_q, {"target": target, "noise_ids": noise})
    return ranking_nce(features, words, *ids, alpha=alpha, log_z=log_z, reduction=reduction)


@without_autocast
def ranking_nce(
    features: Tensor,
    words: Words,
    target: Tensor,
    noise: Tensor,
    *,
    alpha: float,
    log_z: Union[float, Tensor],
    reduction: str,
) -> Tensor:
    """The core of :func:`ranking_nce_loss`; ``target`` (N,) and ``noise`` (K0,) index ``words``."""
    expected = words.expected(math.log(max(len(target) + len(noise), 1)))
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
    reduction: str = "sum",
) -> Tensor:
    """Sampled softmax: the target is ranked against K draws shared by all tokens.

    loss_i = logsumexp_v (m(v, i) - log q(v)) - (m(w_i, i) - log q(w_i)), v over {w_i} and the
    r_k that are not w_i.
    Draws that hit the target are left out (under binary NCE that would break self-normalisation).
    A word counts once as the target and as often as it is drawn as noise, so that the optimum is
    the data's distribution only as far as K q(v) is small; of frequent words the likely ones come
    out too likely. :func:`ranking_nce_loss` has no such limit. A constant in all scores cancels, so
    ``log_z`` changes nothing.

    Args:
        features, target, weight, bias, log_q, log_z, reduction: see the package.
        noise_ids: (K,) int64 draws from q, K >= 1.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Bengio & Senecal 2003; Jozefowicz et al. 2016, "Exploring the limits of language modeling".
    """
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_noise(noise_ids, ("K",))
    words, (target, draws) = gather(weight, bias, log_q, {"target": target, "noise_ids": noise_ids})
    draws, counts = merge_draws(draws)
    return sampled_softmax(features, words, target, draws, counts, reduction=reduction)


@without_autocast
def sampled_softmax(
    features: Tensor,
    words: Words,
    target: Tensor,
    draws: Tensor,
    counts: Tensor,
    *,
    log_z: Union[float, Tensor] = 0.0,
    reduction: str,
) -> Tensor:
    """The core of :func:`sampled_softmax_loss`; see :func:`~fairseq_bnce.losses.nce.shared_nce`."""
    features, words = words.promoted(features)
    expected = words.expected()
    objective = OtherWords(counts.to(expected.dtype).log() - expected[draws], draws, target)
    of_others = shared_loss(features, *words.rows(draws), objective, "none")
    of_target = words.target_scores(features, target) - expected[target]
    return reduce(torch.logaddexp(of_target, of_others) - of_target, reduction)
