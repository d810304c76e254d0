"""Binary noise-contrastive estimation: the batch as its own noise, shared draws, fresh draws.

Each public loss checks its arguments and finds the distinct words. Its core has the same name
without ``_loss``; the criteria call the core with words of their own.
"""

import math
from typing import Optional

from torch import Tensor

from fairseq_bnce.losses.public import checked_loss
from fairseq_bnce.losses.shared_scores import BinaryNCE, reduce, shared_loss, softplus
from fairseq_bnce.losses.words import Draws, Number, Words, multiplicities


def batch_nce_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    *,
    noise_ids: Optional[Tensor] = None,
    log_z: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "sum",
) -> Tensor:
    """Compute batch noise-contrastive estimation: the group's other targets are the noise.

    With the score m(v, i) = h_i . W_v + b_v, the number of noise words K = N - 1 + K0 and the
    log-odds D(v, i) = m(v, i) - log_z - log(K q(v)):

    loss_i = softplus(-D(w_i, i)) + sum_{j != i} softplus(D(w_j, i)) + sum_k softplus(D(r_k, i)).

    Words that occur several times are merged, which is exact: over the distinct words u,
    loss_i = sum_u n_u softplus(D(u, i)) - D(w_i, i).

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: r, (K0,) int64, further draws from q that the group shares (adaptive B-NCE).
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
        Oualil & Klakow 2017, "A batch noise contrastive estimation approach for training large
        vocabulary language models", eq. 5-12.

    Example:
        >>> log_q, w = torch.tensor([0.5, 0.3, 0.2]).log(), torch.zeros(3, 4)
        >>> batch_nce_loss(torch.zeros(2, 4), torch.tensor([0, 1]), w, None, log_q)
        tensor(3.2328)
    """
    tensors = features, target, weight, bias, log_q, noise_ids
    return checked_loss(batch_nce, tensors, ("K0",), ignore_index, reduction, log_z=log_z)


def batch_nce(
    features: Tensor, words: Words, target: Tensor, noise: Tensor, *, log_z: Number, reduction: str
) -> Tensor:
    """Compute :func:`batch_nce_loss` over ``words``, which ``target`` and ``noise`` (K0,) index."""
    count = max(len(target) - 1 + len(noise), 1)
    offset = words.log_expected(math.log(count), log_z)
    counts = multiplicities(len(words.weight), target, noise).to(offset.dtype)
    objective = BinaryNCE(offset, counts, target)
    return shared_loss(features, words.weight, words.bias, objective, reduction)


def shared_nce_loss(
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
    """Compute noise-contrastive estimation with K draws that all tokens share.

    With the score m(v, i) = h_i . W_v + b_v and the log-odds
    D(v, i) = m(v, i) - log_z - log(K q(v)):

    loss_i = softplus(-D(w_i, i)) + sum_k softplus(D(r_k, i)).

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: r, (K,) int64 draws from q, K >= 1.
        log_z: the constant log Z, nats.
        ignore_index: targets of this value have no loss, and are not noise.
        reduction: "sum", "mean" over the targets that are not ignored, or "none".

    Returns:
        The loss in nats, float32 or better: a scalar, or (N,), 0 where ignored. Differentiable once
        by features, weight and bias.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Reference:
        Zoph et al. 2016, "Simple, fast noise-contrastive estimation for large RNN vocabularies".

    Example:
        >>> log_q, w, r = torch.tensor([0.5, 0.5]).log(), torch.zeros(2, 4), torch.tensor([1, 1])
        >>> shared_nce_loss(torch.zeros(1, 4), torch.tensor([0]), w, None, log_q, r)
        tensor(2.0794)
    """
    tensors = features, target, weight, bias, log_q, noise_ids
    return checked_loss(shared_nce, tensors, ("K",), ignore_index, reduction, log_z=log_z)


def shared_nce(
    features: Tensor, words: Words, target: Tensor, draws: Draws, *, log_z: Number, reduction: str
) -> Tensor:
    """Compute :func:`shared_nce_loss` over ``words``, which ``target`` (N,) and ``draws`` index."""
    features, words = words.promoted(features)
    offset = words.log_expected(draws.counts.sum().double().log(), log_z)
    data = words.target_scores(features, target) - offset[target]
    objective = BinaryNCE(offset[draws.ids], draws.counts.to(offset.dtype))
    noise = shared_loss(features, *words.rows(draws.ids), objective, reduction)
    return reduce(softplus(-data), reduction) + noise


def nce_loss(
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
    """Compute noise-contrastive estimation with K fresh draws for every token (slow baseline).

    With the score m(v, i) = h_i . W_v + b_v and the log-odds
    D(v, i) = m(v, i) - log_z - log(K q(v)):

    loss_i = softplus(-D(w_i, i)) + sum_k softplus(D(r_ik, i)).

    Args:
        features: h, (N, D) floating point.
        target: w, (N,) int64, ids below V, or ignore_index.
        weight: W, (V, D) floating point.
        bias: b, (V,) floating point, or None.
        log_q: (V,) natural log-probabilities of the noise, finite for every word used; a constant.
        noise_ids: r, (N, K) int64 draws from q, K >= 1.
        log_z: the constant log Z, nats.
        ignore_index: targets of this value have no loss, and are not noise.
        reduction: "sum", "mean" over the targets that are not ignored, or "none".

    Returns:
        The loss in nats, float32 or better: a scalar, or (N,), 0 where ignored. Differentiable once
        by features, weight and bias.

    Raises:
        ValueError: for a wrong shape, dtype or value; the message names the argument.

    Reference:
        Mnih & Teh 2012, "A fast and simple algorithm for training neural probabilistic
        language models".

    Example:
        >>> log_q, w = torch.tensor([0.5, 0.5]).log(), torch.zeros(2, 4)
        >>> nce_loss(torch.zeros(1, 4), torch.tensor([0]), w, None, log_q, torch.tensor([[1, 1]]))
        tensor(2.0794)
    """
    tensors, shape = (features, target, weight, bias, log_q, noise_ids), (target.numel(), "K")
    return checked_loss(nce, tensors, shape, ignore_index, reduction, log_z=log_z)


def nce(
    features: Tensor, words: Words, target: Tensor, draws: Tensor, *, log_z: Number, reduction: str
) -> Tensor:
    """Compute :func:`nce_loss` over ``words``, which ``target`` (N,) and ``draws`` (N, K) index."""
    features, words = words.promoted(features)
    offset = words.log_expected(math.log(draws.size(1)), log_z)
    data = words.target_scores(features, target) - offset[target]
    noise = words.rowwise_scores(features, draws) - offset[draws]
    return reduce(softplus(-data) + softplus(noise).sum(dim=1), reduction)
