"""The way from a public loss to its core: checks, ignored targets, distinct words, the mean."""

import math
from typing import Any, Callable, Sequence, Tuple, Union

from torch import Tensor

from fairseq_bnce.errors import require
from fairseq_bnce.losses import checks
from fairseq_bnce.losses.words import Draws, Words, distinct, distinct_with_draws


def checked_loss(
    core: Callable[..., Tensor],
    tensors: Sequence[Any],
    noise_shape: Tuple,
    ignore_index: int,
    reduction: str,
    **options: Any,
) -> Tensor:
    """Check the arguments of a public loss, and compute its core on the tokens that count.

    Args:
        core: a loss of features, words, target and noise, as sum or for each token.
        tensors: features, target, weight, bias, log_q and noise_ids, as the public loss takes them.
        noise_shape: of noise_ids: ("K",) for draws that tokens share, (N, "K") for fresh ones, and
            ("K0",) where the other targets are noise, too.
        ignore_index: the target of tokens without a loss, which are not noise either.
        reduction: "sum", "mean" or "none".
        **options: more arguments of the core.

    Raises:
        ValueError: naming the argument, what was required and what came.
    """
    features, target, weight, bias, log_q, noise = tensors
    checks.check_options(reduction, options.get("alpha", 0.0))
    checks.check_layer(features, weight, bias)
    checks.check_tensor("log_q", log_q, (len(weight),))
    checks.check_constants(log_q=log_q, **options)
    checks.check_tensor("target", target, (len(features),), "int64")
    noise = target.new_empty(0) if noise is None else noise
    checks.check_tensor("noise_ids", noise, noise_shape, "int64")
    kept = target.ne(ignore_index).nonzero()[:, 0]
    if len(kept) < len(target):
        features, target = features.index_select(0, kept), target[kept]
        noise = noise[kept] if noise.dim() > 1 else noise
    has_own = noise_shape == ("K0",) and len(target) != 1
    fits = has_own or noise.size(-1) > 0
    require("noise_ids", "at least one draw from q where no other target is noise", "none", fits)
    draws: Union[Draws, Tensor]
    if noise_shape == ("K",):
        used, (place,), draws = distinct_with_draws(noise, target)
    else:
        used, (place, draws) = distinct(target, noise)
    checks.check_values(used, {"target": target, "noise_ids": noise}, len(weight), log_q)
    words = Words(weight, bias, log_q)
    words = words if len(used) == len(weight) else words.select(used)
    kind = "none" if reduction == "none" else "sum"
    loss = core(features, words, place, draws, reduction=kind, **options)
    if reduction == "mean":  # without a token nan with gradient 0, as torch's
        return loss / len(kept) if len(kept) else loss + math.nan
    if reduction == "none" and len(kept) < len(tensors[1]):
        return loss.new_zeros(len(tensors[1])).index_copy(0, kept, loss)
    return loss
