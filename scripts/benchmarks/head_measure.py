#!/usr/bin/env python3
"""Measure one way to do the output layer, at one shape after the other. Writes a JSON file:

    head_measure.py --out FILE --head NAME --shapes NxDxV ... --device cpu|cuda --dtype NAME
                    [--calls N --seconds S --draws K --zipf S Q --seed N]

A command of its own: what one head does to its process, or to the GPU, is over with it.
"""

import argparse
import gc
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from experiments import machine  # noqa: E402

from benchmarks import heads, memory  # noqa: E402

LEAST_CALLS = 3
_WARM_SHARE = 0.2  # of the time
_REASON = 300  # characters of it


def measure(shape: heads.Shape, options: argparse.Namespace) -> Dict[str, Any]:
    """Milliseconds of a forward and backward pass, the memory that it takes, and its loss.

    Memory is what is held at once beyond features, weight and targets, the gradients counted in.
    """
    device = torch.device(options.device)
    dtype = getattr(torch, options.dtype)
    problem = heads.make_problem(shape, dtype, device, tuple(options.zipf), options.seed)
    head = heads.HEADS[options.head](problem, options.draws)
    loss = head()  # compiles and tunes what has to be
    times = _times(head, options)
    value = math.nan if loss is None else loss.item()
    return {
        "ms": statistics.median(times),
        "fastest_ms": min(times),
        "slowest_ms": max(times),
        "calls": len(times),
        "extra_bytes": memory.peak_bytes(head, device.type == "cuda"),
        "distinct_targets": len(torch.unique(problem.target)),
        "loss": value if math.isfinite(value) else None,
        "scored_by": heads.scored_by(options.head, problem),
        "device_name": torch.cuda.get_device_name() if device.type == "cuda" else None,
    }


def _times(head: heads.Head, options: argparse.Namespace) -> List[float]:
    """Milliseconds of each call after a warm-up."""
    clock = _cuda_milliseconds if options.device == "cuda" else _cpu_milliseconds
    warm = _repeat(lambda: clock(head), options.calls, _WARM_SHARE * options.seconds)
    if sum(warm) > 1000 * options.seconds:  # one so slow needs none
        return warm
    return _repeat(lambda: clock(head), options.calls, options.seconds)


def _repeat(action: Callable[[], float], most: int, seconds: float) -> List[float]:
    end = time.perf_counter() + seconds
    found: List[float] = []
    while len(found) < LEAST_CALLS or (len(found) < most and time.perf_counter() < end):
        found.append(action())
    return found


def _cuda_milliseconds(head: heads.Head) -> float:
    """Between two events on the GPU: waiting for the host in between counts in."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    head()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _cpu_milliseconds(head: heads.Head) -> float:
    start = time.perf_counter()
    head()
    return 1000 * (time.perf_counter() - start)


def _or_reason(shape: heads.Shape, options: argparse.Namespace) -> Dict[str, Any]:
    """What was measured, or why nothing was."""
    try:
        return measure(shape, options)
    except Exception as error:  # a missing package, no memory, a kernel that does not compile
        lines = str(error).strip().splitlines() or [""]
        return {"failed": f"{type(error).__name__}: {lines[0]}"[:_REASON]}


def _parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--head", choices=list(heads.HEADS), required=True)
    add("--shapes", nargs="+", type=heads.Shape.parse, required=True)
    add("--device", choices=("cpu", "cuda"), required=True)
    add("--dtype", required=True)
    add("--calls", type=int, default=50)
    add("--seconds", type=float, default=10.0)
    add("--draws", type=int, default=100)
    add("--zipf", nargs=2, type=float, default=[1.1, 2.7])
    add("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: List[str]) -> None:
    """Write {shape: what was measured} to the file after ``--out``, anew after every shape."""
    options = _parse(arguments)
    plugin = str(machine.plugin_folder().parent)
    if plugin not in sys.path:
        sys.path.insert(0, plugin)
    found: Dict[str, Dict[str, Any]] = {}
    for shape in options.shapes:
        found[str(shape)] = _or_reason(shape, options)
        options.out.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()


def cli_main() -> None:
    main(sys.argv[1:])


if __name__ == "__main__":
    cli_main()
