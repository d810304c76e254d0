"""The most memory that an action holds at once, beyond what was held when it began."""

from __future__ import annotations

from typing import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(action: Callable[[], object], cuda: bool) -> int:
    """Peak of torch's allocator during ``action``, less what it held before.

    On the CPU every allocation and release is traced, those inside of operations and of the
    backward pass too; what a library allocates for itself (oneDNN's scratch space) is not.
    """
    return _cuda_peak(action) if cuda else _cpu_peak(action)


def _cuda_peak(action: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    action()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _cpu_peak(action: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        action()
    # In the order in which they happened; a release of what was there before has no event.
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
