"""Slow float64 references for the losses, written from the papers' equations alone.

Nothing here is shared with fairseq_bnce. Every loss is in torch float64, has one column for every
drawn word (duplicates are never merged), returns the loss of each token (N,) and is differentiable
by autograd.

Notation: m(v, i) = h_i . W_v + b_v; delta_K(v, i) = m(v, i) - log Z - log(K q(v)); sigma is the
logistic function, and sigma(delta_K) is the probability that v came from the data. Losses are in
nats.
"""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import Tensor


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x); torch's own softplus is linear above 20, which costs seven digits."""
    return torch.logaddexp(x, torch.zeros_like(x))


def word_scores(features: Tensor, words: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """m(v, i) for each context i and each v in words (C,): (N, C)."""
    scores = features.double() @ weight.double()[words].t()
    return scores if bias is None else scores + bias.double()[words]


def row_scores(features: Tensor, words: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """m(v, i) for each context i and its own words[i] (N, C): (N, C)."""
    scores = (weight.double()[words] * features.double()[:, None, :]).sum(-1)
    return scores if bias is None else scores + bias.double()[words]


def to_delta(scores: Tensor, words: Tensor, log_q: Tensor, draws: int, log_z: float) -> Tensor:
    """delta_K = m - log Z - log(K q), with K = draws."""
    return scores - log_z - math.log(draws) - log_q.double()[words]


def batch_nce_loss(features, target, weight, bias, log_q, noise_ids=None, log_z=0.0) -> Tensor:
    """Oualil & Klakow 2017, eq. 5-8, with extra draws: each other target is a noise draw too."""
    words = target if noise_ids is None else torch.cat([target, noise_ids])
    scores = word_scores(features, words, weight, bias)
    delta = to_delta(scores, words, log_q, len(words) - 1, log_z)
    is_data = torch.eye(len(target), len(words), dtype=torch.bool)
    return softplus(torch.where(is_data, -delta, delta)).sum(1)


def shared_nce_loss(features, target, weight, bias, log_q, noise_ids, log_z=0.0) -> Tensor:
    """Zoph et al. 2016: binary NCE with the same K draws for every token of the batch."""
    fresh = noise_ids.expand(len(target), len(noise_ids))
    return nce_loss(features, target, weight, bias, log_q, fresh, log_z)


def nce_loss(features, target, weight, bias, log_q, noise_ids, log_z=0.0) -> Tensor:
    """Mnih & Teh 2012: binary NCE, K draws of its own for every token, noise_ids (N, K)."""
    words = torch.cat([target[:, None], noise_ids], 1)
    scores = row_scores(features, words, weight, bias)
    delta = to_delta(scores, words, log_q, noise_ids.shape[1], log_z)
    return softplus(-delta[:, 0]) + softplus(delta[:, 1:]).sum(1)


def sampled_softmax_loss(features, target, weight, bias, log_q, noise_ids, log_z=0.0) -> Tensor:
    """Jozefowicz et al. 2016: softmax NLL of m - log q over the target and the draws.

    Draws equal to the token's own target are removed; log Z cancels.
    """
    words = torch.cat([target[:, None], noise_ids.expand(len(target), len(noise_ids))], 1)
    corrected = row_scores(features, words, weight, bias) - log_q.double()[words]
    hit = words == target[:, None]
    hit[:, 0] = False
    return corrected.masked_fill(hit, -math.inf).logsumexp(1) - corrected[:, 0]


def sampled_bce_loss(
    features, target, weight, bias, log_q, noise_ids, log_z=0.0, estimator="complementary", **size
) -> Tensor:
    """Gao et al. 2021, Yang et al. 2021: softplus(-s) of the target, softplus(s) of all words.

    The latter sum is estimated: by sum_k f(r_k) / (K q(r_k)), by V/K sum_k f(r_k) with V q in the
    log-odds, or without the draws that are the target, whose term is then computed or left out.
    """
    draws, size = len(noise_ids), size.get("vocab_size", len(weight))
    words = torch.cat([target[:, None], noise_ids.expand(len(target), draws)], 1)
    odds = row_scores(features, words, weight, bias) - log_z
    share = 1 / (draws * log_q.double()[noise_ids].exp()).expand(len(target), draws)
    if estimator == "cps":
        odds = odds - math.log(size) - log_q.double()[words]
        share = torch.full_like(share, size / draws)
    if estimator in ("complementary", "snis"):
        share = share * (noise_ids != target[:, None])
    loss = softplus(-odds[:, 0]) + (share * softplus(odds[:, 1:])).sum(1)
    return loss + softplus(odds[:, 0]) if estimator == "complementary" else loss


def ranking_nce_loss(
    features, target, weight, bias, log_q, noise_ids=None, alpha=0.0, log_z=0.0
) -> Tensor:
    """Ma & Collins 2018, ranking, with every target and draw a sample of its own.

    log Z^ = log (1/n sum_s exp(m(s)) / q(s)); the penalty alpha (log Z^ - log Z)^2 is on it.
    """
    samples = target if noise_ids is None else torch.cat([target, noise_ids])
    scores = word_scores(features, samples, weight, bias) - log_q.double()[samples]
    estimate = scores.logsumexp(1) - math.log(max(len(samples), 1))
    own = row_scores(features, target[:, None], weight, bias)[:, 0]
    return estimate - own + alpha * (estimate - log_z) ** 2


def log_partition(features, weight, bias) -> Tensor:
    """log Z_c = log sum_v exp m(v, c)."""
    return word_scores(features, torch.arange(len(weight)), weight, bias).logsumexp(1)


def partition_penalty(features, weight, bias, alpha, log_z=0.0) -> Tensor:
    """alpha (log Z_c - log Z)^2: Goldberger & Melamud 2018, eq. 8 and 10."""
    return alpha * (log_partition(features, weight, bias) - log_z) ** 2


def target_scores(features, target, weight, bias) -> Tensor:
    """m(w_i, i)."""
    return row_scores(features, target[:, None], weight, bias)[:, 0]
