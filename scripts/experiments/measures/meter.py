"""Time and memory of an action that is called repeatedly."""

import time
from typing import Any, Callable, List, Optional

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import timer  # waits for the GPU, where there is one


def device() -> Optional[str]:
    """Return the GPU's name, None without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = timer()
    action()
    return timer() - start


def repeat(action: Callable[[], Any], most: int, limit: float, least: int) -> List[Any]:
    """Return the results of ``action`` within ``limit`` seconds and a range of calls."""
    end = time.perf_counter() + limit  # without waiting for the GPU
    found: List[Any] = []
    while len(found) < least or (len(found) < most and time.perf_counter() < end):
        found.append(action())
    return found


def peak_bytes(action: Callable[[], object], cuda: bool) -> int:
    """Return the peak of torch's allocator during ``action``, minus its state before.

    On the CPU every allocation and release is traced, those inside of operations and of the
    backward pass too; what a library allocates for itself (oneDNN's scratch space) is not.
    """
    if not cuda:
        return _cpu_peak(action)
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
