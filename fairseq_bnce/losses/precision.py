"""In which precision scores are made: float32 or better, whatever the inputs' and autocast's."""

import functools
from typing import Any, Callable

import torch
from torch import Tensor


def at_least_float32(*tensors: Tensor) -> torch.dtype:
    """The widest of the tensors' dtypes and float32."""
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Autocast would compute scores in half precision, which NCE's log-odds do not bear.

    Args:
        function: whose first argument says which device it is about.
    """

    @functools.wraps(function)
    def in_full_precision(features: Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type=features.device.type, enabled=False):
            return function(features, *args, **kwargs)

    return in_full_precision
