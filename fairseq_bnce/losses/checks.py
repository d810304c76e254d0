"""What the losses require of their arguments: each check raises ValueError naming the argument."""

import math
from typing import Dict, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import require

_LOG_1 = 1e-3  # how far above 0 rounding may take the logarithm of a probability of 1


def check_inputs(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Tensor,
    log_z: Union[float, Tensor],
    reduction: str,
) -> None:
    """What all losses take."""
    check_reduction(reduction)
    check_log_z(log_z)
    learns = torch.is_tensor(log_z) and log_z.requires_grad and torch.is_grad_enabled()
    required = "a constant (take a learned log Z off the bias in its place)"
    require("log_z", required, "one with a gradient", not learns)
    check_projection(features, weight, bias)
    check_int64("target", target, (features.size(0),))
    _check_float("log_q", log_q, (weight.size(0),))
    for name, tensor in (("target", target), ("log_q", log_q)):
        is_there = tensor.device == weight.device
        require(name, f"the device of weight, {weight.device}", tensor.device, is_there)


def check_projection(features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> None:
    """(N, D), (V, D), and (V,) or None."""
    _check_float("features", features, ("N", "D"))
    _check_float("weight", weight, ("V", features.size(1)))
    if bias is not None:
        _check_float("bias", bias, (weight.size(0),))


def check_noise(noise_ids: Tensor, shape: Tuple, noise_counts: Optional[Tensor] = None) -> None:
    """At least one draw, in this shape, and as many counts, if any."""
    is_empty = noise_ids.dim() > 0 and noise_ids.size(-1) == 0
    require("noise_ids", "at least one draw", "none", not is_empty)
    check_int64("noise_ids", noise_ids, shape)
    if noise_counts is not None:
        check_int64("noise_counts", noise_counts, noise_ids.shape)


def check_has_noise(target: Tensor, noise_ids: Tensor) -> None:
    """For losses whose noise is the other targets, and draws (K0,), if any."""
    has_noise = target.numel() != 1 or noise_ids.numel() > 0
    require("noise_ids", "at least one draw when there is a single target", "none", has_noise)


def check_int64(name: str, tensor: Tensor, shape: Tuple) -> None:
    """A shape with sizes, or names where any size will do, and the dtype of ids."""
    _check_shape(name, tensor, shape)
    require(name, "dtype torch.int64", tensor.dtype, tensor.dtype == torch.int64)


def check_reduction(reduction: str) -> None:
    """A known one."""
    require("reduction", "'sum' or 'none'", repr(reduction), reduction in ("sum", "none"))


def check_alpha(alpha: float) -> None:
    """The weight of a penalty."""
    fits = math.isfinite(alpha) and alpha >= 0
    require("alpha", "a finite number of at least 0", alpha, fits)


def check_chunk(chunk_tokens: Optional[int]) -> None:
    """Tokens scored together, or None."""
    fits = chunk_tokens is None or chunk_tokens >= 1
    require("chunk_tokens", "at least 1", chunk_tokens, fits)


def check_log_z(log_z: Union[float, Tensor]) -> None:
    """A number; a tensor's value is left on its device."""
    if torch.is_tensor(log_z):
        _check_float("log_z", log_z, ())
    else:
        require("log_z", "a finite number", log_z, math.isfinite(log_z))


def check_values(
    words: Tensor,
    ids: Dict[str, Tensor],
    weight: Tensor,
    log_q: Optional[Tensor],
    noise_counts: Optional[Tensor],
) -> None:
    """Of all ids (``words``: each once, sorted) and what belongs to them, in one look."""
    if not len(words):
        return
    size = weight.size(0)
    fits = (words[0] >= 0) & (words[-1] < size)
    if log_q is not None and size:
        fits = fits & _are_log_probabilities(log_q[words.clamp(0, size - 1)]).all()
    if noise_counts is not None:
        fits = fits & (noise_counts >= 1).all()
    if not bool(fits):
        _explain(words, ids, size, log_q, noise_counts)


def _explain(
    words: Tensor,
    ids: Dict[str, Tensor],
    size: int,
    log_q: Optional[Tensor],
    noise_counts: Optional[Tensor],
) -> None:
    """Raise for the first of the values that does not fit."""
    for name, part in ids.items():
        if part.numel():
            low, high = (bound.item() for bound in torch.aminmax(part))
            fits = low >= 0 and high < size
            require(name, f"ids from 0 to {size - 1}", low if low < 0 else high, fits)
    if noise_counts is not None:
        fewest = int(noise_counts.min())
        require("noise_counts", "at least 1", fewest, fewest >= 1)
    if log_q is not None:
        word = int(words[~_are_log_probabilities(log_q[words])][0])
        required = "log-probabilities, 0 at most and finite, of all target and noise words"
        require("log_q", required, f"{log_q[word].item()} for word {word}", False)


def _are_log_probabilities(log_q: Tensor) -> Tensor:
    """Probabilities and counts, which are above 0, are not; nor is that of what never comes."""
    return log_q.isfinite() & (log_q <= _LOG_1)


def _check_float(name: str, tensor: Tensor, shape: Tuple) -> None:
    _check_shape(name, tensor, shape)
    require(name, "a floating-point dtype", tensor.dtype, tensor.is_floating_point())


def _check_shape(name: str, tensor: Tensor, shape: Tuple) -> None:
    """Integers in ``shape`` must match; strings stand for any size."""
    fits = len(shape) == tensor.dim() and all(
        isinstance(want, str) or want == size for want, size in zip(shape, tensor.shape)
    )
    wanted = ", ".join(str(size) for size in shape)
    require(name, f"shape ({wanted})", f"shape {tuple(tensor.shape)}", fits)
