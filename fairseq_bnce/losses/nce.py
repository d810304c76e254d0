"""Binary noise-contrastive estimation: the batch as its own noise, shared draws, fresh draws."""

import math
from typing import Optional

from torch import Tensor

from fairseq_bnce.losses.checks import check_has_noise, check_inputs, check_noise
from fairseq_bnce.losses.gathering import (
    extra_draws,
    gather,
    log_draws,
    merged_draws,
    multiplicities,
    reduce,
)
from fairseq_bnce.losses.precision import without_autocast
from fairseq_bnce.losses.shared_scores import BinaryNCE, shared_loss, softplus


@without_autocast
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
        gathered: see the package.

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
    check_inputs(features, target, weight, bias, log_q, log_z, reduction)
    extra = extra_draws(target, noise_ids)
    check_has_noise(target, extra)
    noise_count = target.numel() - 1 + extra.numel()
    ids = {"target": target, "noise_ids": extra}
    used = gather(features, weight, bias, ids, log_q, gathered=gathered)
    offset = used.expected(math.log(max(noise_count, 1)), log_z)
    objective = BinaryNCE(offset, multiplicities(offset, *used.ids), used.ids[0])
    return shared_loss(used.features, used.weight, used.bias, objective, reduction)


@without_autocast
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
) -> Tensor:
    """Noise-contrastive estimation with K draws shared by all tokens.

    loss_i = softplus(-D_K(w_i, i)) + sum_k softplus(D_K(r_k, i)).

    Args:
        features, target, weight, bias, log_q, log_z, reduction, gathered: see the package.
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
    check_noise(noise_ids, (noise_ids.numel(),), noise_counts)
    ids = {"target": target, "noise_ids": noise_ids}
    used = gather(features, weight, bias, ids, log_q, noise_counts, gathered=gathered).promoted()
    offset = used.expected(log_draws(noise_ids, noise_counts), log_z)
    data = used.target_scores() - offset[used.ids[0]]
    drawn, counts = merged_draws(used.ids[1], noise_counts, offset, gathered)
    of_noise = BinaryNCE(offset[drawn], counts)
    noise = shared_loss(used.features, *used.rows(drawn), of_noise, reduction)
    return reduce(softplus(-data), reduction) + noise


@without_autocast
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
        features, target, weight, bias, log_q, log_z, reduction, gathered: see the package.
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
    draws = noise_ids.size(-1) if noise_ids.dim() == 2 else "K"
    check_noise(noise_ids, (target.numel(), draws))
    ids = {"target": target, "noise_ids": noise_ids}
    used = gather(features, weight, bias, ids, log_q, gathered=gathered).promoted()
    offset = used.expected(math.log(noise_ids.size(1)), log_z)
    data = used.target_scores() - offset[used.ids[0]]
    noise = used.rowwise_scores(used.ids[1]) - offset[used.ids[1]]
    return reduce(softplus(-data) + softplus(noise).sum(dim=1), reduction)
