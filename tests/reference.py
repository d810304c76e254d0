"""Slow float64 references for the losses, written from the papers' equations alone.

Nothing here is shared with fairseq_bnce. Every loss comes in two independent forms:

- ``NAME``: torch float64, one column for every drawn word (duplicates are never merged), returns
  the loss of each token (N,) and is differentiable by autograd.
- ``NAME_pairs``: plain Python floats, one (context, word) pair at a time, returns a ``Result``
  with the gradients of the summed loss derived by hand.

Notation: m(v, i) = h_i . W_v + b_v; delta_K(v, i) = m(v, i) - log Z - log(K q(v)); sigma is the
logistic function, and sigma(delta_K) is the probability that v came from the data. Losses are in
nats.
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

# ---- torch float64, one column per drawn word ------------------------------------------------


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
    features,
    target,
    weight,
    bias,
    log_q,
    noise_ids,
    estimator="complementary",
    vocab_size=None,
    log_z=0.0,
) -> Tensor:
    """Gao et al. 2021, Yang et al. 2021: softplus(-s) of the target, softplus(s) of all words.

    The latter sum is estimated: by sum_k f(r_k) / (K q(r_k)), by V/K sum_k f(r_k) with V q in the
    log-odds, or without the draws that are the target, whose term is then computed or left out.
    """
    draws, size = len(noise_ids), vocab_size or len(weight)
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


# ---- the matrix form of Oualil & Klakow 2017 -------------------------------------------------


class PaperForm(NamedTuple):
    """Loss and gradients of a batch; a row of d_rows, d_row_bias for each target *occurrence*."""

    loss: Tensor
    d_features: Tensor
    d_rows: Tensor
    d_row_bias: Tensor


def paper_form(
    features: Tensor, rows: Tensor, row_bias: Tensor, row_q: Tensor, log_z: float
) -> PaperForm:
    """Oualil & Klakow 2017, eq. 7-12, in dense matrices and with no differentiation.

    M = H W^T + b^T, Delta = M - log Z - log((N - 1) q), P = sigma(Delta); the gradient matrix
    is P off the diagonal and -(1 - P) on it (eq. 9-11).

    Args: features H (N, D); the targets' rows W (N, D), row_bias b (N,) and probabilities
    row_q (N,).
    """
    count = len(features)
    delta = features @ rows.t() + row_bias - log_z - torch.log((count - 1) * row_q)
    prob = 1 / (1 + torch.exp(-delta))
    diagonal = torch.eye(count, dtype=torch.bool)
    loss = -torch.log(torch.where(diagonal, prob, 1 - prob)).sum()
    gradient = torch.where(diagonal, -(1 - prob), prob)
    return PaperForm(loss, gradient @ rows, gradient.t() @ features, gradient.sum(0))


# ---- plain Python, pair by pair, gradients by hand -------------------------------------------


class Result(NamedTuple):
    """Losses of the tokens (N,), and the gradients of their sum."""

    values: Tensor
    d_features: Tensor
    d_weight: Tensor
    d_bias: Tensor


# The loss of one token, and its derivative with respect to the score m(v, i) of each word v used.
Token = Tuple[float, List[Tuple[int, float]]]


class Scorer:
    """The inputs as lists of Python floats; float64 holds every smaller format exactly."""

    def __init__(self, features, weight, bias, log_q=None, log_z=0.0):
        self.features = features.double().tolist()
        self.weight = weight.double().tolist()
        self.bias = [0.0] * len(self.weight) if bias is None else bias.double().tolist()
        self.log_q = None if log_q is None else log_q.double().tolist()
        self.log_z = log_z

    def score(self, i: int, v: int) -> float:
        """m(v, i)."""
        products = [h * w for h, w in zip(self.features[i], self.weight[v])]
        return math.fsum(products + [self.bias[v]])

    def delta(self, i: int, v: int, draws: int) -> float:
        """delta_K(v, i) with K = draws."""
        return self.score(i, v) - self.log_z - math.log(draws) - self.log_q[v]

    def result(self, tokens: List[Token]) -> Result:
        """Chain rule: a score m(v, i) passes its derivative to h_i, W_v and b_v."""
        d_features = [[0.0] * len(row) for row in self.features]
        d_weight = [[0.0] * len(row) for row in self.weight]
        d_bias = [0.0] * len(self.bias)
        for i, (_, derivatives) in enumerate(tokens):
            for v, derivative in derivatives:
                d_bias[v] += derivative
                for d, (h, w) in enumerate(zip(self.features[i], self.weight[v])):
                    d_features[i][d] += derivative * w
                    d_weight[v][d] += derivative * h
        columns = ([value for value, _ in tokens], d_features, d_weight, d_bias)
        return Result(*(torch.tensor(column, dtype=torch.float64) for column in columns))


def binary_loss(delta: float) -> Tuple[float, float]:
    """log(1 + e^delta) and its derivative sigma(delta), without overflow."""
    small = math.exp(-abs(delta))
    value = max(delta, 0.0) + math.log1p(small)
    return value, (1.0 if delta > 0 else small) / (1.0 + small)


def binary_nce_token(scorer: Scorer, i: int, word: int, noise: List[int]) -> Token:
    """-log P(data | w_i) - sum_k log P(noise | r_k); K = len(noise) (Mnih & Teh 2012)."""
    value, slope = binary_loss(-scorer.delta(i, word, len(noise)))
    losses, derivatives = [value], [(word, -slope)]
    for v in noise:
        value, slope = binary_loss(scorer.delta(i, v, len(noise)))
        losses.append(value)
        derivatives.append((v, slope))
    return math.fsum(losses), derivatives


def batch_nce_loss_pairs(
    features, target, weight, bias, log_q, noise_ids=None, log_z=0.0
) -> Result:
    """Oualil & Klakow 2017, eq. 5: the noise of token i is every target but its own."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    words = target.tolist()
    extra = [] if noise_ids is None else noise_ids.tolist()
    noise = [words[:i] + words[i + 1 :] + extra for i in range(len(words))]
    tokens = [binary_nce_token(scorer, i, words[i], noise[i]) for i in range(len(words))]
    return scorer.result(tokens)


def shared_nce_loss_pairs(features, target, weight, bias, log_q, noise_ids, log_z=0.0) -> Result:
    """Zoph et al. 2016."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    noise = noise_ids.tolist()
    return scorer.result(
        [binary_nce_token(scorer, i, word, noise) for i, word in enumerate(target.tolist())]
    )


def nce_loss_pairs(features, target, weight, bias, log_q, noise_ids, log_z=0.0) -> Result:
    """Mnih & Teh 2012."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    rows = zip(target.tolist(), noise_ids.tolist())
    return scorer.result(
        [binary_nce_token(scorer, i, word, noise) for i, (word, noise) in enumerate(rows)]
    )


def sampled_bce_loss_pairs(
    features,
    target,
    weight,
    bias,
    log_q,
    noise_ids,
    estimator="complementary",
    vocab_size=None,
    log_z=0.0,
) -> Result:
    """d softplus(s) / d m = sigma(s), whatever constant stands between s and m."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    draws, size = noise_ids.tolist(), vocab_size or len(weight)
    tokens = []
    for i, word in enumerate(target.tolist()):
        shares = [(v, 1 / (len(draws) * math.exp(scorer.log_q[v]))) for v in draws]
        if estimator == "cps":
            shares = [(v, size / len(draws)) for v in draws]
        if estimator in ("complementary", "snis"):
            shares = [(v, share) for v, share in shares if v != word]
        if estimator == "complementary":
            shares.append((word, 1.0))
        ratio = size if estimator == "cps" else None
        value, slope = binary_loss(-bce_log_odds(scorer, i, word, ratio))
        losses, derivatives = [value], [(word, -slope)]
        for v, share in shares:
            value, slope = binary_loss(bce_log_odds(scorer, i, v, ratio))
            losses.append(share * value)
            derivatives.append((v, share * slope))
        tokens.append((math.fsum(losses), derivatives))
    return scorer.result(tokens)


def bce_log_odds(scorer: Scorer, i: int, v: int, ratio: Optional[int]) -> float:
    """m - log Z, less log(ratio q) where there is a ratio."""
    return scorer.score(i, v) - scorer.log_z if ratio is None else scorer.delta(i, v, ratio)


def softmax_token(scores: List[float], words: List[int]) -> Tuple[float, List[Tuple[int, float]]]:
    """log sum exp of the scores, and its derivatives, the softmax."""
    top = max(scores)
    log_sum = top + math.log(math.fsum(math.exp(score - top) for score in scores))
    return log_sum, [(v, math.exp(score - log_sum)) for v, score in zip(words, scores)]


def sampled_softmax_loss_pairs(
    features, target, weight, bias, log_q, noise_ids, log_z=0.0
) -> Result:
    """Jozefowicz et al. 2016, accidental hits removed."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    tokens = []
    for i, word in enumerate(target.tolist()):
        words = [word] + [v for v in noise_ids.tolist() if v != word]
        corrected = [scorer.score(i, v) - scorer.log_q[v] for v in words]
        log_sum, derivatives = softmax_token(corrected, words)
        tokens.append((log_sum - corrected[0], derivatives + [(word, -1.0)]))
    return scorer.result(tokens)


def ranking_nce_loss_pairs(
    features, target, weight, bias, log_q, noise_ids=None, alpha=0.0, log_z=0.0
) -> Result:
    """d loss / d m(s) = (1 + 2 alpha (log Z^ - log Z)) share(s), less 1 for the target."""
    scorer = Scorer(features, weight, bias, log_q, log_z)
    samples = target.tolist() + ([] if noise_ids is None else noise_ids.tolist())
    tokens = []
    for i, word in enumerate(target.tolist()):
        weighted = [scorer.score(i, v) - scorer.log_q[v] - math.log(len(samples)) for v in samples]
        estimate, shares = softmax_token(weighted, samples)
        away = estimate - log_z
        value = estimate - scorer.score(i, word) + alpha * away**2
        slope = 1 + 2 * alpha * away
        tokens.append((value, [(v, slope * p) for v, p in shares] + [(word, -1.0)]))
    return scorer.result(tokens)


def log_partition_pairs(features, weight, bias) -> Result:
    """log Z_c; its derivative with respect to m(v, c) is the softmax."""
    scorer = Scorer(features, weight, bias)
    words = list(range(len(weight)))
    return scorer.result(
        [softmax_token([scorer.score(i, v) for v in words], words) for i in range(len(features))]
    )


def partition_penalty_pairs(features, weight, bias, alpha, log_z=0.0) -> Result:
    """alpha (log Z_c - log Z)^2; derivative 2 alpha (log Z_c - log Z) p(v)."""
    scorer = Scorer(features, weight, bias)
    words = list(range(len(weight)))
    tokens = []
    for i in range(len(features)):
        log_sum, softmax = softmax_token([scorer.score(i, v) for v in words], words)
        away = log_sum - log_z
        tokens.append((alpha * away**2, [(v, 2 * alpha * away * p) for v, p in softmax]))
    return scorer.result(tokens)


def target_scores_pairs(features, target, weight, bias) -> Result:
    """m(w_i, i), whose derivative with respect to itself is one."""
    scorer = Scorer(features, weight, bias)
    return scorer.result(
        [(scorer.score(i, word), [(word, 1.0)]) for i, word in enumerate(target.tolist())]
    )
