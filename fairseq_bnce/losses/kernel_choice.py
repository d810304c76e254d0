"""Who makes the scores of a batch's words for binary NCE: torch, or kernels.py's fused kernel."""

import functools
import logging
import os
from typing import Any, List, Optional, Tuple

from torch import Tensor

from fairseq_bnce.errors import require
from fairseq_bnce.losses.autograd import learns
from fairseq_bnce.losses.precision import HALVES

logger = logging.getLogger(__name__)

_KERNELS = ("auto", "torch", "triton")


def is_fused(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    kernel: Optional[str] = None,
    reduction: str = "sum",
) -> bool:
    """Whether BinaryNCE, the targets among the words, of these is left to the kernel.

    It takes halves as they are.

    Args:
        features, weight, bias: (N, D), (U, D), (U,) or None.
        kernel: see :func:`chosen_kernel`.
        reduction: "sum" or "none".

    Raises:
        ValueError: if ``kernel`` is none of its values, or is "triton" where there is no Triton.
    """
    chosen = chosen_kernel(kernel)
    if chosen == "torch" or (chosen == "auto" and not _is_wanted(features)):
        return False
    found = triton_kernels()
    if found is None:
        require("kernel", "the package triton for 'triton'", "none", chosen != "triton")
        return False
    if not found.supports(features, weight):
        _tell_once(f"the Triton kernel is not used for {features.dtype} with {weight.dtype}")
        return False
    if chosen == "triton":
        return True
    problem = (features.device, features.dtype, features.size(1), bias is not None)
    passes = _passes(reduction, learns(features, weight, bias))
    return all(found.is_right(*problem, *one) for one in passes)


def chosen_kernel(kernel: Optional[str] = None) -> str:
    """Who makes the scores of BinaryNCE: ``kernel``, or what FAIRSEQ_BNCE_KERNEL says now.

    "torch", the default; "auto": the fused kernel for halves on a GPU, if it agrees with torch
    there; "triton": the kernel for whatever it takes, float32 and tensors in Triton's interpreter
    too, unchecked.

    Raises:
        ValueError: for any other value.
    """
    name = "FAIRSEQ_BNCE_KERNEL" if kernel is None else "kernel"
    chosen = os.environ.get(name, "torch") if kernel is None else kernel
    require(name, "auto, torch or triton", repr(chosen), chosen in _KERNELS)
    return chosen


@functools.lru_cache(maxsize=None)
def triton_kernels() -> Any:
    """kernels.py, imported when first asked for; None where there is no Triton."""
    try:
        from fairseq_bnce.losses import kernels
    except ImportError:
        return None
    return kernels


@functools.lru_cache(maxsize=None)
def _tell_once(message: str) -> None:
    logger.info(message)


def _is_wanted(features: Tensor) -> bool:
    return features.is_cuda and features.dtype in HALVES


def _passes(reduction: str, gradient: bool) -> List[Tuple[bool, bool]]:
    """What _SharedLoss will ask the kernel for: (whether with factors, whether G is wanted)."""
    if reduction == "sum":
        return [(False, gradient)]
    return [(False, False), (True, True)] if gradient else [(False, False)]
