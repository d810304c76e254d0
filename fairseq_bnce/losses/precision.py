"""In which precision scores are made: float32 or better, whatever the inputs' and autocast's."""

import functools
from typing import Any, Callable, TypeVar, cast

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The widest of the tensors' dtypes and float32."""
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)


def without_autocast(function: AnyFunction) -> AnyFunction:
    """Autocast would compute scores in half precision, which NCE's log-odds do not bear.

    Args:
        function: whose first argument says which device it is about.
    """

    @functools.wraps(function)
    def in_full_precision(features: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type=features.device.type, enabled=False):
            return function(features, *args, **kwargs)

    return cast(AnyFunction, in_full_precision)  # Python 3.8 can't say that it takes the same
