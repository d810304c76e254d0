"""How the losses compute: scores in float32 or better, and gradients written by hand."""

import functools
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
# torch 2.8 and later return the float32 sums in which a CUDA device multiplies halves.
_HAS_WIDE_PRODUCT = "dtype" in torch.ops.aten.mm.overloads() and torch.version.hip is None


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The widest of the tensors' dtypes and float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def product_dtype(a: Tensor, b: Tensor) -> torch.dtype:
    """The dtype in which matrix products take ``a`` and ``b``.

    Halves stay halves where :func:`wide_linear` multiplies them on tensor cores. All other tensors
    are raised to float32 or better.
    """
    are_halves = a.dtype == b.dtype and a.dtype in HALVES
    if are_halves and _HAS_WIDE_PRODUCT and a.is_cuda and b.is_cuda:
        return a.dtype
    return at_least_float32(a, b)


def wide_linear(features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """h . W_u + b_u of (N, D), (U, D) and (U,) or None: (N, U) in float32 or better.

    The features and the weight have the :func:`product_dtype`.
    """
    if features.dtype not in HALVES:
        return F.linear(features, weight, bias)
    scores = torch.mm(features, weight.t(), out_dtype=torch.float32)
    return scores if bias is None else scores.add_(bias)


class FirstOrderFunction(torch.autograd.Function):
    """An autograd function that is differentiable once and ignores autocast.

    Autograd does not follow a backward pass that is written by hand. With ``create_graph=True``,
    which asks for second derivatives, the backward pass raises RuntimeError.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # The subclasses' methods take other arguments than those that torch declares.
        cls.forward = staticmethod(_guarded(cls.forward))  # type: ignore[method-assign]
        cls.backward = staticmethod(_guarded(cls.backward))  # type: ignore[method-assign]


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(ctx: Any, tensor: Tensor, *rest: Any) -> Any:
        if torch.is_grad_enabled():  # in a backward pass with create_graph=True alone
            raise RuntimeError(f"{type(ctx).__name__}: required a first derivative, got a second")
        with torch.autocast(device_type=tensor.device.type, enabled=False):
            return method(ctx, tensor, *rest)

    return guarded
