"""Binary cross-entropy of all words, whose sum over the vocabulary is sampled.

A word's log-odds are s(v, i) = m(v, i) - log Z - log a(v), with a weight a(v) that an estimator
chooses, and its loss has, over data p and draws, the expectation

    sum_v p(v | i) softplus(-s(v, i)) + a(v) softplus(s(v, i)),

whose derivative -p (1 - sigma(s)) + a sigma(s) is 0 where e^s = p / a, and so m - log Z = log p.
Gao et al. (2021) train the output o = sigma(s) of scores without log a(v) in them, and recover p
from a trained model by the posterior correction p = a o / (1 - o). Here that is done to the
scores in training, so that the raw score is the corrected one, and the model normalises itself.

Their Monte Carlo sampling, a(v) = K q(v), is then shared_nce_loss, and has no other name here. The
estimates and their optima are derived here: of the papers the abstracts alone were at hand.
"""

import math
from typing import Any, Dict, Optional, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import require
from fairseq_bnce.losses.checks import check_inputs, check_noise
from fairseq_bnce.losses.precision import without_autocast
from fairseq_bnce.losses.shared_scores import BinaryNCE, reduce, shared_loss, softplus
from fairseq_bnce.losses.words import Words, gather, merge_draws

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
    noise_counts: Optional[Tensor] = None,
    log_z: float = 0.0,
    reduction: str = "sum",
) -> Tensor:
    """Binary cross-entropy of the target and of all words, sampled by K draws that tokens share.

    With s(v, i) = m(v, i) - log Z - log a(v), see the module, loss_i = softplus(-s(w_i, i)) plus

    - "is", importance sampling, a = 1: sum_k softplus(s(r_k, i)) / (K q(r_k));
    - "cps", compensated partial summation, a = V q, so that all draws weigh the same:
      V/K sum_k softplus(s(r_k, i)). It is NCE at the noise ratio V, whatever K is; under uniform
      noise it is "is";
    - "complementary", as "is", but the target's own term is computed and not sampled:
      softplus(s(w_i, i)) + sum_k [r_k != w_i] softplus(s(r_k, i)) / (K q(r_k));
    - "snis", self-normalised importance sampling, which leaves that term out. The derivative
      -p (1 - sigma(s)) + (1 - p) sigma(s) is 0 where sigma(s) = p: here, and here alone, it is not
      m - log Z but log sigma(m - log Z) that is the log-probability.

    Args:
        features, target, weight, bias, log_q, log_z, reduction: see the package.
        noise_ids: (K,) int64 draws from q, K >= 1.
        estimator: one of these names.
        vocab_size: V for "cps", at least 1; by default the rows of ``weight``, which may be fewer.
        noise_counts: (K,) int64, how many draws each of ``noise_ids`` stands for, at least 1; by
            default one each.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Gao et al. 2021, "On sampling-based training criteria for neural language modeling"; Yang et
        al. 2021, "Self-normalized importance sampling for neural language modeling". To compute
        the target's term and sample the others: Botev et al. 2017, "Complementary sum sampling for
        likelihood approximation in large scale classification", of the softmax's sum.
    """
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_noise(noise_ids, ("K",), noise_counts)
    size = weight.size(0) if vocab_size is None else vocab_size
    require("estimator", " or ".join(_ESTIMATORS), repr(estimator), estimator in _ESTIMATORS)
    require("vocab_size", "at least 1", size, size >= 1)
    words, (target, draws) = gather(
        weight, bias, log_q, {"target": target, "noise_ids": noise_ids}, noise_counts
    )
    draws, counts = merge_draws(draws, noise_counts)
    options: Dict[str, Any] = {"estimator": estimator, "vocab_size": size, "log_z": log_z}
    return sampled_bce(features, words, target, draws, counts, reduction=reduction, **options)


@without_autocast
def sampled_bce(
    features: Tensor,
    words: Words,
    target: Tensor,
    draws: Tensor,
    counts: Tensor,
    *,
    estimator: str,
    vocab_size: int,
    log_z: Union[float, Tensor],
    reduction: str,
) -> Tensor:
    """The core of :func:`sampled_bce_loss`; see :func:`~fairseq_bnce.losses.nce.shared_nce`."""
    features, words = words.promoted(features)
    log_expected = words.expected(counts.sum().double().log())  # log(K q)
    log_a = torch.zeros_like(log_expected)
    if estimator == "cps":
        log_a = words.expected(math.log(vocab_size))
    per_draw = (log_a - log_expected).exp()  # a / (K q): what a draw weighs in the sum
    offset, weights = log_a + log_z, counts * per_draw[draws]
    data = words.target_scores(features, target) - offset[target]
    own = softplus(-data)
    if estimator in ("complementary", "snis"):
        # The draws that are the target are in the sum over all draws, and taken off again.
        hits = torch.zeros_like(offset).index_add_(0, draws, weights)[target]
        own = own + (float(estimator == "complementary") - hits) * softplus(data)
    objective = BinaryNCE(offset[draws], weights)
    return reduce(own, reduction) + shared_loss(features, *words.rows(draws), objective, reduction)
