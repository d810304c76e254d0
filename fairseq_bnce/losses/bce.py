"""Binary cross-entropy of all words, whose sum over the vocabulary is sampled.

A word's log-odds are s(v, i) = m(v, i) - log Z - log a(v), with a weight a(v) that an estimator
chooses. Over data p and draws, the expectation of a word's loss is

    sum_v p(v | i) softplus(-s(v, i)) + a(v) softplus(s(v, i)),

whose derivative -p (1 - sigma(s)) + a sigma(s) is 0 where e^s = p / a, and so m - log Z = log p.
Gao et al. (2021) train the output o = sigma(s) of scores without log a(v) in them, and recover p
from a trained model by the posterior correction p = a o / (1 - o). Here the scores are corrected
in training, so that the raw score is the corrected one, and the model normalises itself.

Their Monte Carlo sampling, a(v) = K q(v), is then shared_nce_loss, and has no other name here. The
estimates and their optima are derived here: only the papers' abstracts were available.
"""

import math
from typing import Optional

import torch
from torch import Tensor

from fairseq_bnce.errors import require
from fairseq_bnce.losses.public import checked_loss
from fairseq_bnce.losses.shared_scores import BinaryNCE, reduce, shared_loss, softplus
from fairseq_bnce.losses.words import Draws, Number, Words, place_among

_ESTIMATORS = ("complementary", "is", "cps", "snis")


def sampled_bce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    noise_ids: Tensor,
    *,
    estimator: str = "complementary",
    vocab_size: Optional[int] = None,
    log_z: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "sum",
) -> Tensor:
    """Compute the binary cross-entropy of all words, sampled by K draws that tokens share.

    With the score m(v, i) = h_i . W_v + b_v and the log-odds s(v, i) = m(v, i) - log_z - log a(v),
    loss_i = softplus(-s(w_i, i)) plus a sum that the estimator chooses:

    - "is", importance sampling, a = 1: sum_k softplus(s(r_k, i)) / (K q(r_k));
    - "cps", compensated partial summation, a = V q, so that all draws weigh the same:
      V/K sum_k softplus(s(r_k, i)). It is NCE at the noise ratio V, whatever K is; under uniform
      noise it is "is";
    - "complementary", as "is", but the target's own term is computed and not sampled:
      softplus(s(w_i, i)) + sum_k [r_k != w_i] softplus(s(r_k, i)) / (K q(r_k));
    - "snis", self-normalised importance sampling, leaves the target's own term out. The derivative
      -p (1 - sigma(s)) + (1 - p) sigma(s) is 0 where sigma(s) = p. With "snis" alone, the
      log-probability is therefore not m - log Z but log sigma(m - log Z).

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: r, (K,) int64 draws from q, K >= 1.
        estimator: one of these names.
        vocab_size: V for "cps", at least 1; by default the rows of ``weight``, which may be fewer.
        log_z: the constant log Z, nats.
        ignore_index: targets of this value have no loss, and are not noise.
        reduction: "sum", "mean" over the targets that are not ignored, or "none".

    Returns:
        The loss in nats, float32 or better: a scalar, or (N,), 0 where ignored. Differentiable once
        by features, weight and bias.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Reference:
        Gao et al. 2021, "On sampling-based training criteria for neural language modeling"; Yang et
        al. 2021, "Self-normalized importance sampling for neural language modeling". To compute
        the target's term and sample the others: Botev et al. 2017, "Complementary sum sampling for
        likelihood approximation in large scale classification", of the softmax's sum.

    Example:
        >>> log_q, w, r = torch.tensor([0.5, 0.5]).log(), torch.zeros(2, 4), torch.tensor([1])
        >>> sampled_bce_loss(torch.zeros(1, 4), torch.tensor([0]), w, None, log_q, r)
        tensor(2.7726)
    """
    require("estimator", " or ".join(_ESTIMATORS), repr(estimator), estimator in _ESTIMATORS)
    size = len(weight) if vocab_size is None else vocab_size
    require("vocab_size", "at least 1", vocab_size, size >= 1)
    tensors = features, target, weight, bias, log_q, noise_ids
    options = {"estimator": estimator, "vocab_size": size, "log_z": log_z}
    return checked_loss(sampled_bce, tensors, ("K",), ignore_index, reduction, **options)


def sampled_bce(
    features: Tensor,
    words: Words,
    target: Tensor,
    draws: Draws,
    *,
    estimator: str,
    vocab_size: int,
    log_z: Number,
    reduction: str,
) -> Tensor:
    """Compute :func:`sampled_bce_loss` over ``words``, which ``target`` and ``draws`` index."""
    features, words = words.promoted(features)
    ids, counts = draws
    log_expected = words.log_expected(counts.sum().double().log())  # log(K q)
    log_a = torch.zeros_like(log_expected)
    if estimator == "cps":
        log_a = words.log_expected(math.log(vocab_size))
    per_draw = (log_a - log_expected).exp()  # a / (K q): what a draw weighs in the sum
    offset, weights = log_a + log_z, counts * per_draw[ids]
    data = words.target_scores(features, target) - offset[target]
    own, place = softplus(-data), None
    if estimator in ("complementary", "snis"):
        # Left out, and not subtracted: a draw of a rare target may weigh a million times the rest.
        place = place_among(ids, len(offset))[target]
    if estimator == "complementary":
        own = own + softplus(data)
    objective = BinaryNCE(offset[ids], weights, left_out=place)
    return reduce(own, reduction) + shared_loss(features, *words.rows(ids), objective, reduction)
