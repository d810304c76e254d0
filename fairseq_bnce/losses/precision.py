"""The precision of scores: float32 or better, whatever the inputs' dtype and autocast say."""

import functools
from typing import Any, Callable, Optional, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
# torch 2.8 and later return the float32 sums in which a CUDA device multiplies halves.
_HAS_WIDE_PRODUCT = "dtype" in torch.ops.aten.mm.overloads() and torch.version.hip is None
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The widest of the tensors' dtypes and float32."""
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)


def product_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype in which matrix products take ``tensors``.

    Halves stay halves where :func:`wide_product` multiplies them on tensor cores. All other tensors
    are raised to float32 or better.
    """
    first = tensors[0]
    are_alike = all(t.dtype == first.dtype and t.is_cuda for t in tensors)
    if _HAS_WIDE_PRODUCT and are_alike and first.dtype in HALVES:
        return first.dtype
    return at_least_float32(*tensors)


def wide_product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of (N, K) and (K, M), of one dtype, in float32 or better."""
    if a.dtype not in HALVES:
        return a @ b
    if _HAS_WIDE_PRODUCT and a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def wide_linear(features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """h . W_u + b_u of (N, D), (U, D) and (U,) or None: (N, U) in float32 or better."""
    if features.dtype not in HALVES:
        return F.linear(features, weight, bias)
    scores = wide_product(features, weight.t())
    return scores if bias is None else scores.add_(bias)


def without_autocast(function: AnyFunction) -> AnyFunction:
    """Switch autocast off during ``function``: NCE's log-odds need more than half precision.

    Args:
        function: its first argument is a tensor on the device that the function uses.
    """

    @functools.wraps(function)
    def in_full_precision(features: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type=features.device.type, enabled=False):
            return function(features, *args, **kwargs)

    return cast(AnyFunction, in_full_precision)  # Python 3.8 has no type for the same arguments
