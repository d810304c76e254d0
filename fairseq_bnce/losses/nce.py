"""Binary noise-contrastive estimation: the batch as its own noise, shared draws, fresh draws.

Each loss has a public function, which checks its arguments and finds the distinct words, and a core
of the same name without ``_loss``, which the criteria call with words of their own.
"""

import math
from typing import Optional, Union

from torch import Tensor

from fairseq_bnce.losses.checks import check_has_noise, check_inputs, check_int64, check_noise
from fairseq_bnce.losses.precision import without_autocast
from fairseq_bnce.losses.shared_scores import BinaryNCE, reduce, shared_loss, softplus
from fairseq_bnce.losses.words import Words, gather, merge_draws, multiplicities


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
    noise = target.new_empty(0) if noise_ids is None else noise_ids
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_int64("noise_ids", noise, ("K0",))
    check_has_noise(target, noise)
    words, ids = gather(weight, bias, log_q, {"target": target, "noise_ids": noise})
    return batch_nce(features, words, *ids, log_z=log_z, reduction=reduction)


@without_autocast
def batch_nce(
    features: Tensor,
    words: Words,
    target: Tensor,
    noise: Tensor,
    *,
    log_z: Union[float, Tensor],
    reduction: str,
) -> Tensor:
    """The core of :func:`batch_nce_loss`; ``target`` (N,) and ``noise`` (K0,) index ``words``."""
    count = max(len(target) - 1 + len(noise), 1)
    offset = words.expected(math.log(count), log_z)
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
    noise_counts: Optional[Tensor] = None,
    log_z: float = 0.0,
    reduction: str = "sum",
) -> Tensor:
    """Noise-contrastive estimation with K draws shared by all tokens.

    loss_i = softplus(-D_K(w_i, i)) + sum_k softplus(D_K(r_k, i)).

    Args:
        features, target, weight, bias, log_q, log_z, reduction: see the package.
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
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_noise(noise_ids, ("K",), noise_counts)
    words, (target, draws) = gather(
        weight, bias, log_q, {"target": target, "noise_ids": noise_ids}, noise_counts
    )
    draws, counts = merge_draws(draws, noise_counts)
    return shared_nce(features, words, target, draws, counts, log_z=log_z, reduction=reduction)


@without_autocast
def shared_nce(
    features: Tensor,
    words: Words,
    target: Tensor,
    draws: Tensor,
    counts: Tensor,
    *,
    log_z: Union[float, Tensor],
    reduction: str,
) -> Tensor:
    """The core of :func:`shared_nce_loss`.

    Args:
        target, draws: (N,) and (K',) distinct, as indices into ``words``.
        counts: (K',) how often each of ``draws`` was drawn.
    """
    features, words = words.promoted(features)
    offset = words.expected(counts.sum().double().log(), log_z)
    data = words.target_scores(features, target) - offset[target]
    objective = BinaryNCE(offset[draws], counts.to(offset.dtype))
    noise = shared_loss(features, *words.rows(draws), objective, reduction)
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
    reduction: str = "sum",
) -> Tensor:
    """Noise-contrastive estimation with K fresh draws for every token (the slow baseline).

    loss_i = softplus(-D_K(w_i, i)) + sum_k softplus(D_K(r_ik, i)).

    Args:
        features, target, weight, bias, log_q, log_z, reduction: see the package.
        noise_ids: (N, K) int64 draws from q, K >= 1.

    Returns:
        The loss in nats: a scalar, or (N,).

    Raises:
        ValueError: on bad input.

    Reference:
        Mnih & Teh 2012, "A fast and simple algorithm for training neural probabilistic
        language models".
    """
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    check_noise(noise_ids, (target.numel(), "K"))
    words, ids = gather(weight, bias, log_q, {"target": target, "noise_ids": noise_ids})
    return nce(features, words, *ids, log_z=log_z, reduction=reduction)


@without_autocast
def nce(
    features: Tensor,
    words: Words,
    target: Tensor,
    draws: Tensor,
    *,
    log_z: Union[float, Tensor],
    reduction: str,
) -> Tensor:
    """The core of :func:`nce_loss`; ``target`` (N,) and ``draws`` (N, K) index ``words``."""
    features, words = words.promoted(features)
    offset = words.expected(math.log(draws.size(1)), log_z)
    data = words.target_scores(features, target) - offset[target]
    noise = words.rowwise_scores(features, draws) - offset[draws]
    return reduce(softplus(-data) + softplus(noise).sum(dim=1), reduction)
