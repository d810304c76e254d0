"""Measures of a bare output layer."""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch

from .. import machine
from . import layers, meter
from .layers import Head, Shape

RATE = 0.1  # of SGD
DRAWS = 100  # of shared_nce, its default


def device(arguments: List[str]) -> Dict[str, Optional[str]]:
    """The accelerator's name, None without one."""
    return {"cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


def layer(arguments: List[str]) -> Dict[str, Any]:
    """Milliseconds and peak memory of forward, backward and SGD's update, with a bias.

    Targets are those of the data's first batches, one batch a call; features are random.
    """
    parser = meter.limits("layer")
    parser.add_argument("data", type=Path)
    for name, kind in (("--head", str), ("--targets", int), ("--size", int), ("--device", str)):
        parser.add_argument(name, type=kind, required=True)
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    noise, targets = _targets(options)
    problem = layers.trained_problem(noise, options.size, options.targets, RATE)
    head, batches = layers.LAYERS[options.head](problem, DRAWS), itertools.cycle(targets)

    def call() -> None:
        problem.target = next(batches)
        head()

    return _measured(call, options)


def head(arguments: List[str]) -> Dict[str, Any]:
    """Milliseconds of a forward and backward pass, the memory that it takes, and its loss.

    Memory is what is held at once beyond features, weight and targets, the gradients counted in.
    """
    options = _head_options(arguments)
    dtype, where = getattr(torch, options.dtype), torch.device(options.device)
    problem = layers.make_problem(options.shape, dtype, where, tuple(options.zipf), options.seed)
    call: Head = layers.HEADS[options.head](problem, options.draws)
    loss = call()  # compiles and tunes what has to be
    value = math.nan if loss is None else loss.item()
    found = _measured(call, options)
    return {
        **found,
        "extra_bytes": found.pop("peak_bytes"),
        "distinct_targets": len(torch.unique(problem.target)),
        "loss": value if math.isfinite(value) else None,
        "scored_by": layers.scored_by(options.head, problem),
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


def _targets(options: argparse.Namespace) -> Any:
    """The training data's noise distribution, and their targets in batches (batches, N)."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    from fairseq_bnce.noise import NoiseDistribution

    dataset = MMapIndexedDataset(str(options.data / "train"))
    tokens = torch.cat([dataset[item] for item in range(len(dataset))]).long()
    counts = torch.bincount(tokens, minlength=machine.vocabulary_size(options.data))
    whole = len(tokens) // options.targets * options.targets
    targets = tokens[:whole].view(-1, options.targets).to(options.device)
    return NoiseDistribution(counts).to(options.device), targets


def _head_options(arguments: List[str]) -> argparse.Namespace:
    parser = meter.limits("head")
    add = parser.add_argument
    add("--head", choices=list(layers.HEADS), required=True)
    add("--shape", type=Shape.parse, required=True)
    add("--device", choices=("cpu", "cuda"), required=True)
    add("--dtype", required=True)
    add("--draws", type=int, default=DRAWS)
    add("--zipf", nargs=2, type=float, default=[1.1, 2.7])
    add("--seed", type=int, default=1)
    return parser.parse_args(arguments)
