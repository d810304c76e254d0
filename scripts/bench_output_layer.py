#!/usr/bin/env python3
"""Measure the output layer alone, forward and backward: batch NCE against exact cross entropies.

    bench_output_layer.py --out FOLDER
    bench_output_layer.py --out FOLDER --device cpu --heads cross_entropy bnce
    bench_output_layer.py --out FOLDER --shapes 8192x2304x256000 --dtype float16

Exact are cross_entropy (torch's, eager), compiled (the same under torch.compile),
linear_cross_entropy (torch 2.13's), liger and cut_cross_entropy (pip install '.[bench]')
and liger_cute (pip install 'liger-kernel[cutedsl]'; Hopper and Blackwell). Ours are bnce and
shared_nce; NAME_sparse is NAME with row-sparse gradients. three_matmuls is the limit of batch NCE,
its three products of N x U x D alone.

FOLDER gets output_layer.md (tables), output_layer.json, output_layer.png (log-log; needs
matplotlib) and runs/ with every run's log. The runs come one after the other, a process each, and
nothing else should be busy meanwhile. A second call makes no finished run again, but what other
flags, versions or sources of the plugin make a new one. One that fails (a package that is missing,
no memory) is a row that says why; the exit status is 1 if that is one of ours, or three_matmuls.

On the CPU the shapes are small by default, and a trial.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
from typing import Sequence

from experiments import command, output_layer, run
from experiments.measures.layers import HEADS, LIMIT, OWN, Shape
from experiments.output_layer import HeadRun

# Gemma 2 2B; two of the Llama 3 kind. On the CPU: shapes that take seconds.
_SHAPES = {
    "cuda": ("8192x2304x256000", "8192x4096x131072", "8192x4096x128256"),
    "cpu": ("400x200x10000", "400x200x50000"),
}
_DTYPES = {"cuda": "bfloat16", "cpu": "float32"}


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a head of ours failed, 2 after an error, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    return command.status(lambda: _run_all(options))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True)
    add = parser.add_argument
    add("--heads", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="NAME")
    shapes = "default: those of Gemma 2 and Llama 3 on a GPU, small ones on the CPU"
    add("--shapes", nargs="+", type=Shape.parse, metavar="NxDxV", help=shapes)
    about = "default: bfloat16 on a GPU, float32 on the CPU"
    add("--dtype", choices=("bfloat16", "float16", "float32"), help=about)
    add("--calls", type=int, default=50, help="timed calls at most (default: %(default)s)")
    about = "for the timed calls of a head at a shape; three at least (default: %(default)s)"
    add("--max-seconds", type=float, default=10, help=about)
    return parser


def _run_all(options: argparse.Namespace) -> int:
    settings = run.prepare(options)
    settings.dtype = options.dtype or _DTYPES[settings.device]
    shapes = dict.fromkeys(options.shapes or map(Shape.parse, _SHAPES[settings.device]))
    heads = dict.fromkeys(options.heads)
    runs = [HeadRun(settings, head, shape) for head in heads for shape in shapes]
    report = settings.out / "output_layer.md"
    found = run.complete_all(runs, lambda done: output_layer.write(done, settings), report)
    print(output_layer.draw(found, settings))
    return 1 if any(o.errors and (o.system in OWN or o.system == LIMIT) for o in found) else 0


if __name__ == "__main__":
    command.start(main)
