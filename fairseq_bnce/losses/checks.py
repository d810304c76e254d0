"""What the public losses require of their arguments: each check raises ValueError naming it."""

from typing import Dict, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import require

_LOG_1 = 1e-3  # how far above 0 rounding may take the logarithm of a probability of 1


def check_layer(
    features: Tensor, weight: Tensor, bias: Optional[Tensor], chunk_tokens: Optional[int] = None
) -> None:
    """Require (N, D), (V, D), (V,) or None, and at least one token a chunk."""
    check_tensor("features", features, ("N", "D"))
    check_tensor("weight", weight, ("V", features.size(1)))
    if bias is not None:
        check_tensor("bias", bias, (weight.size(0),))
    fits = chunk_tokens is None or chunk_tokens >= 1
    require("chunk_tokens", "at least 1", chunk_tokens, fits)


def check_tensor(name: str, tensor: Tensor, shape: Tuple, dtype: str = "floating-point") -> None:
    """Require a shape, in which names stand for any size, and a dtype."""
    fits = len(shape) == tensor.dim() and all(
        isinstance(want, str) or want == size for want, size in zip(shape, tensor.shape)
    )
    wanted = f"shape ({', '.join(map(str, shape))})"
    require(name, wanted, f"shape {tuple(tensor.shape)}", fits)
    fits = tensor.dtype == torch.int64 if dtype == "int64" else tensor.is_floating_point()
    require(name, f"dtype {dtype}", tensor.dtype, fits)


def check_options(reduction: str, alpha: Union[float, Tensor] = 0.0) -> None:
    """Require a known reduction, and a weight of a penalty."""
    fits = reduction in ("sum", "mean", "none")
    require("reduction", "'sum', 'mean' or 'none'", repr(reduction), fits)
    require("alpha", "at least 0", alpha, bool(alpha >= 0))


def check_constants(**arguments: object) -> None:
    """Require arguments without a gradient, which a loss would lose, all of it or in part."""
    for name, value in arguments.items():
        is_learned = torch.is_tensor(value) and value.requires_grad and torch.is_grad_enabled()
        remedy = " (subtract a learned log Z from the bias instead)" if name == "log_z" else ""
        got = "one with a gradient, which would be lost"
        require(name, f"a constant{remedy}", got, not is_learned)


def check_values(
    words: Tensor, ids: Dict[str, Tensor], size: int, log_q: Optional[Tensor] = None
) -> None:
    """Require ids below ``size``, and log-probabilities; a GPU's host waits once.

    Args:
        words: the distinct ids, sorted.
        ids: the arguments that hold ids, by name.
    """
    if not len(words):
        return
    fits = (words[0] >= 0) & (words[-1] < size)
    if log_q is not None:
        fits = fits & _are_log_probabilities(log_q[words.clamp(0, size - 1)]).all()
    if bool(fits):
        return
    for name, part in ids.items():
        bad = part[(part < 0) | (part >= size)]
        require(name, f"ids from 0 to {size - 1}", bad[:1].tolist(), not len(bad))
    if log_q is not None:
        word = int(words[~_are_log_probabilities(log_q[words])][0])
        required = "log-probabilities, 0 at most and finite, of all target and noise words"
        require("log_q", required, f"{log_q[word].item()} for word {word}", False)


def _are_log_probabilities(log_q: Tensor) -> Tensor:
    """Return False for probabilities and counts, which are above 0, and for words never drawn."""
    return log_q.isfinite() & (log_q <= _LOG_1)
