#!/usr/bin/env python3
"""Measure the output layer alone, forward and backward: batch NCE against exact cross entropies.

    bench_output_layer.py --out FOLDER
    bench_output_layer.py --out FOLDER --device cpu --heads cross_entropy bnce bnce_sparse
    bench_output_layer.py --out FOLDER --shapes 8192x2304x256000 --dtype float16

Exact are cross_entropy (torch's, eager), compiled (the same under torch.compile),
linear_cross_entropy (torch 2.13's), liger and cut_cross_entropy (pip install '.[bench]')
and liger_cute (pip install 'liger-kernel[cutedsl]'; Hopper and Blackwell). Ours are bnce and
shared_nce; NAME_sparse is NAME with row-sparse gradients, bnce_sparse_torch without the fused
kernel. three_matmuls is the limit of batch NCE, its three products of N x U x D alone.

Prints Markdown tables and, line by line, what batch NCE is to show: met, not met or not measured.
FOLDER gets output_layer.md, output_layer.json, output_layer.png (log-log; needs matplotlib) and
runs/ with every head's log. Heads are measured one after the other, in a process each, and nothing
else should be busy meanwhile. One that fails (a package that is missing, no memory) is a row that
says why; the exit status is 1 if that is one of ours, or three_matmuls.

On the CPU the shapes are small by default, and a trial: the claims are about GPUs.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import datetime
import json
import os
import signal
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch
from benchmarks import head_report
from benchmarks.heads import HEADS, LIMIT, OWN, Shape
from experiments import machine, processes
from experiments.command import UsageError

_MEASURE = Path(__file__).resolve().with_name("benchmarks") / "head_measure.py"
# Gemma 2 2B; two of the Llama 3 kind. On the CPU: what takes seconds.
_SHAPES = {
    "cuda": ("8192x2304x256000", "8192x4096x131072", "8192x4096x128256"),
    "cpu": ("400x200x10000", "400x200x50000"),
}
_DTYPES = {"cuda": "bfloat16", "cpu": "float32"}
_PACKAGES = ("triton", "liger-kernel", "cut-cross-entropy")


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if a head of ours failed, 2 for what can't be done, 130 if interrupted."""
    options = _parse(arguments)
    try:
        settings = _prepare(options)
        found = _measure_all(options.heads, settings, options.out)
    except UsageError as error:
        print(f"bench_output_layer.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench_output_layer.py: interrupted", file=sys.stderr)
        return 130
    settings = replace(settings, load=(settings.load[0], os.getloadavg()[0]))
    return _report(head_report.rows(found), settings, options.out)


def _report(measured: List[head_report.Row], settings: head_report.Settings, out: Path) -> int:
    head_report.write(measured, settings, out)
    print(head_report.markdown(measured, settings))
    title = f"Output layer, {settings.device_name}, {settings.dtype}"
    print(head_report.draw(measured, title, out / "output_layer.png"))
    return 1 if any(r.failed and (r.head in OWN or r.head == LIMIT) for r in measured) else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for results and logs")
    add("--heads", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="NAME")
    shapes = "default: those of Gemma 2 and Llama 3 on a GPU, small ones on the CPU"
    add("--shapes", nargs="+", type=_shape, metavar="NxDxV", help=shapes)
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add(
        "--dtype",
        choices=("bfloat16", "float16", "float32"),
        help="default: bfloat16 on a GPU, float32 on the CPU",
    )
    add("--calls", type=int, default=50, help="timed calls at most (default: %(default)s)")
    add(
        "--max-seconds",
        type=float,
        default=10,
        help="for the timed calls of a head at a shape; three at least (default: %(default)s)",
    )
    add("--draws", type=int, default=100, help="of shared_nce (default: %(default)s)")
    add("--zipf", nargs=2, type=float, default=[1.1, 2.7], metavar=("S", "Q"))
    add("--seed", type=int, default=1, help="of features, weight and targets (default: 1)")
    add("--threads", type=int, default=1, help="OMP_NUM_THREADS (default: 1)")
    return parser.parse_args(arguments)


def _shape(text: str) -> str:
    try:
        return str(Shape.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _prepare(options: argparse.Namespace) -> head_report.Settings:
    has_gpu = torch.cuda.is_available()
    if options.device == "cuda" and not has_gpu:
        raise UsageError("--device cuda: required a GPU that torch can use, got none")
    device = options.device or ("cuda" if has_gpu else "cpu")
    hardware = machine.hardware()
    processor = str(hardware["processor"])
    options.out.mkdir(parents=True, exist_ok=True)
    return head_report.Settings(
        shapes=tuple(dict.fromkeys(options.shapes or _SHAPES[device])),
        device=device,
        device_name=torch.cuda.get_device_name() if device == "cuda" else processor,
        dtype=options.dtype or _DTYPES[device],
        calls=options.calls,
        seconds=options.max_seconds,
        draws=options.draws,
        zipf=tuple(options.zipf),
        seed=options.seed,
        threads=options.threads,
        machine=f"{processor}, {hardware['cores']} cores",
        versions={**machine.versions(), **{name: _version(name) for name in _PACKAGES}},
        date=datetime.date.today().isoformat(),
        load=(os.getloadavg()[0], 0.0),
    )


def _version(package: str) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _measure_all(
    heads: Sequence[str], settings: head_report.Settings, out: Path
) -> Dict[str, Dict[str, Dict[str, Any]]]:
    """{head: {shape: numbers, or the reason why there are none}}."""
    found = {}
    for place, head in enumerate(dict.fromkeys(heads), start=1):
        found[head] = _measure(head, settings, out / "runs")
        for shape, numbers in found[head].items():
            text = numbers.get("failed") or f"{numbers['ms']:,.3f} ms"
            print(f"[{place}/{len(heads)}] {head} {shape}: {text}", flush=True)
    return found


def _measure(head: str, settings: head_report.Settings, runs: Path) -> Dict[str, Dict[str, Any]]:
    """All shapes in one process; those that it did not come to have its end as their reason."""
    runs.mkdir(parents=True, exist_ok=True)
    result = runs / f"{head}.json"
    if result.exists():
        result.unlink()  # of an earlier benchmark
    reason = "not reached"
    try:
        processes.run(_command(head, settings, result), runs / f"{head}.log", settings.threads)
    except processes.CommandFailed as error:
        reason = str(error)
    found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    return {shape: found.get(shape, {"failed": reason}) for shape in settings.shapes}


def _command(head: str, settings: head_report.Settings, result: Path) -> List[str]:
    command = [sys.executable, str(_MEASURE), "--out", str(result), "--head", head]
    command += ["--shapes", *settings.shapes, "--device", settings.device]
    command += ["--dtype", settings.dtype, "--calls", str(settings.calls)]
    command += ["--seconds", str(settings.seconds), "--draws", str(settings.draws)]
    command += ["--zipf", *map(str, settings.zipf), "--seed", str(settings.seed)]
    return command


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no measurement is left behind
    sys.exit(main(sys.argv[1:]))
