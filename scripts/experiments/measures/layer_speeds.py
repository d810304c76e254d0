"""What the accelerator is, and the speed of a head on it."""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any, Dict, List, Optional

import torch

from . import layers, meter
from .layers import Head, Shape


def device(arguments: List[str]) -> Dict[str, Optional[str]]:
    """The accelerator's name, None without one."""
    return {"cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


def head(arguments: List[str]) -> Dict[str, Any]:
    """Milliseconds of a forward and backward pass, the memory that it takes, and its loss.

    Memory is what is held at once beyond features, weight and targets, the gradients counted in.
    """
    options = _head_options(arguments)
    dtype, where = getattr(torch, options.dtype), torch.device(options.device)
    problem = layers.make_problem(options.shape, dtype, where)
    call: Head = layers.HEADS[options.head](problem)
    loss = call()  # compiles and tunes what has to be
    value = math.nan if loss is None else loss.item()
    found = _measured(call, options)
    return {
        **found,
        "extra_bytes": found.pop("peak_bytes"),
        "distinct_targets": len(torch.unique(problem.target)),
        "loss": value if math.isfinite(value) else None,
    }


def _measured(call: Head, options: argparse.Namespace) -> Dict[str, Any]:
    is_cuda = options.device == "cuda"
    times = meter.after_warm_up(lambda: meter.seconds(call), options.updates, options.seconds)
    peaks = meter.peaks(lambda: meter.peak_bytes(call, is_cuda), options.seconds)
    return {
        "ms": 1000 * statistics.median(times),
        "fastest_ms": 1000 * min(times),
        "slowest_ms": 1000 * max(times),
        "calls": len(times),
        "peak_bytes": statistics.median(peaks),
    }


def _head_options(arguments: List[str]) -> argparse.Namespace:
    parser = meter.limits("head")
    add = parser.add_argument
    add("--head", choices=list(layers.HEADS), required=True)
    add("--shape", type=Shape.parse, required=True)
    add("--device", choices=("cpu", "cuda"), required=True)
    add("--dtype", required=True)
    return parser.parse_args(arguments)
