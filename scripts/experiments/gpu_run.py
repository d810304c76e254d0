#!/usr/bin/env python3
"""Measure this plugin on one GPU: stages, each a child process with its own time limit.

    gpu_run.py --out FOLDER                    all stages, about seven minutes
    gpu_run.py --out FOLDER --stages layer     some of them
    gpu_run.py --out FOLDER --skip liger       no row with this entry in its key
    gpu_run.py --out FOLDER --tiny             a rehearsal, on a CPU too

Every row of a result is on disk as soon as it is known. After every stage FOLDER gets results.json,
with all results so far, and logs.tgz. Stages: probe (the card's own speeds), tests (those that need
a GPU), errors (losses and gradients against float64), layer (the output layer alone), training
(words/s), scoring, profile (kernels and waits of an update), bands (word tables of several sizes).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import time
import traceback
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

ROOT = Path(__file__).resolve().parents[2]
WORK = Path("/tmp/gpu_run")
# Seconds that a stage may take.
STAGES = {
    "probe": 20,
    "tests": 120,
    "errors": 25,
    "layer": 110,
    "training": 150,
    "scoring": 50,
    "profile": 35,
    "bands": 90,
}
VOCABULARY = 267_744  # WikiText-103's
Row = Dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--skip", nargs="+", default=[])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child", choices=["data", *STAGES], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
        return int(globals()[f"stage_{options.child}"](options) or 0)
    WORK.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    data = _child("data", options)
    start, outcome = time.time(), {}
    for name in options.stages:
        if name in ("training", "bands"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                data.wait(60)
        began, child = time.time(), _child(name, options)
        try:
            status: Any = child.wait(STAGES[name] * (6 if options.tiny else 1))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            status = "timeout"
        outcome[name] = {"status": status, "seconds": round(time.time() - began, 1)}
        (WORK / "stages.json").write_text(json.dumps(outcome, indent=1))
        _return(options.out)
        print(name, outcome[name], round(time.time() - start), flush=True)
    return 0


def _child(name: str, options: argparse.Namespace) -> subprocess.Popen:
    command = [sys.executable, __file__, "--out", str(options.out), "--child", name]
    command += ["--tiny"] if options.tiny else []
    command += ["--skip", *options.skip] if options.skip else []
    with open(WORK / f"{name}.log", "w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _return(out: Path) -> None:
    results = {file.stem: json.loads(file.read_text()) for file in sorted(WORK.glob("*.json"))}
    (out / "results.json").write_text(json.dumps(results, indent=1))
    with tarfile.open(out / "logs.tgz", "w:gz") as tar:
        for file in sorted(WORK.iterdir()):
            if file.suffix in (".log", ".txt", ".xml", ".json"):
                tar.add(file, f"logs/{file.name}")


class Rows:
    """The rows of a stage's result; one that fails is a row with the reason."""

    def __init__(self, stage: str, options: argparse.Namespace):
        self._path = WORK / f"{stage}.json"
        self._skipped = options.skip
        self.rows: List[Row] = []

    def add(self, key: Sequence[Any], make: Callable[[], Row]) -> Row:
        if any(str(entry) in self._skipped for entry in key):
            return {}
        began = time.time()
        try:
            row = make()
        except Exception as error:
            traceback.print_exc()
            row = {"failed": f"{type(error).__name__}: {error}"[:300]}
        self.rows.append({"key": list(key), **row, "took": round(time.time() - began, 2)})
        self._path.write_text(json.dumps(self.rows, indent=1))
        print(key, row, flush=True)
        with contextlib.suppress(Exception):
            import torch

            gc.collect()
            torch.cuda.empty_cache()
        return row


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _times(call: Callable[[], Any], seconds: float = 0.7, most: int = 50) -> Row:
    """Milliseconds of a call: median and fastest of waited calls; mean of calls in a row."""
    for _ in range(3):
        call()
    _wait()
    waited: List[float] = []
    end = time.perf_counter() + seconds
    while len(waited) < 5 or (len(waited) < most and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        _wait()
        waited.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in waited:
        call()
    _wait()
    running = (time.perf_counter() - start) / len(waited)
    return {
        "ms": 1e3 * statistics.median(waited),
        "fastest_ms": 1e3 * min(waited),
        "running_ms": 1e3 * running,
        "calls": len(waited),
    }


def _sizes(tiny: bool) -> Sequence[int]:
    return (500, 2000) if tiny else (10_000, VOCABULARY, 1_000_000)


def _data(vocabulary: int) -> str:
    return str(WORK / "data" / str(vocabulary))


def stage_data(options: argparse.Namespace) -> int:
    script = ROOT / "scripts/experiments/measures/data.py"
    tokens = 20_000 if options.tiny else 450_000
    made = [
        subprocess.Popen(
            [sys.executable, str(script), "--out", _data(size)]
            + ["--vocab", str(size), "--tokens", str(tokens)]
        )
        for size in _sizes(options.tiny)
        if not Path(_data(size)).is_dir()
    ]
    return max([process.wait() for process in made], default=0)


def stage_probe(options: argparse.Namespace) -> None:
    import torch

    rows, size = Rows("probe", options), 256 if options.tiny else 8192
    name = torch.cuda.get_device_name() if _device() == "cuda" else "cpu"
    rows.add(["versions"], lambda: {"torch": torch.__version__, "card": name})

    def product(**dtype: Any) -> Row:
        a, b = (torch.randn(size, size, device=_device(), dtype=torch.bfloat16) for _ in "ab")
        found = _times(lambda: torch.mm(a, b, **dtype))
        return {**found, "tflops": 2 * size**3 / found["ms"] / 1e9}

    def copy() -> Row:
        a = torch.randn(2**16 if options.tiny else 2**30, device=_device())
        b = torch.empty_like(a)
        found = _times(lambda: b.copy_(a))
        return {**found, "tb_per_s": 8 * a.numel() / found["ms"] / 1e9}

    rows.add(["product of bf16"], product)
    rows.add(["product of bf16 in float32"], partial(product, out_dtype=torch.float32))
    rows.add(["copy"], copy)


def stage_tests(options: argparse.Namespace) -> int:
    """The tests that are written for a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "60"]
    command += ["-o", "filterwarnings=default"]
    command += ["--junitxml", str(WORK / "tests.xml"), "-m", "not slow and not decoders"]
    command += ["tests/test_synchronising.py", "tests/test_device.py"]
    chosen = "test_draws or test_validation" if options.tiny else "not commands"
    command += ["-k", chosen, *([] if options.tiny else ["-n", "14"])]
    return subprocess.call(command, cwd=ROOT)


def stage_errors(options: argparse.Namespace) -> None:
    """Losses and gradients on the device against float64 on the CPU, from the same numbers."""
    import torch

    sys.path.insert(0, str(ROOT / "tests"))
    cases: Any = importlib.import_module("loss_cases")
    from fairseq_bnce import losses

    rows = Rows("errors", options)
    count = 33 if options.tiny else 1500
    for name in cases.ROWS:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):

            def compare(name: str = name, dtype: torch.dtype = dtype) -> Row:
                rounded = cases.with_gradients(cases.make_problem(count), dtype)
                plain = {k: v if v is None else v.detach() for k, v in rounded.items()}
                exact = cases.with_gradients(plain, torch.float64)
                want = cases.call(losses, name, exact).sum()
                wanted = cases.gradients(want, exact)
                moved = {
                    key: None
                    if value is None
                    else value.detach().to(_device()).requires_grad_(value.requires_grad)
                    for key, value in rounded.items()
                }
                got = cases.call(losses, name, moved).sum()
                found = {key: g.cpu().double() for key, g in cases.gradients(got, moved).items()}
                off = {k: float((found[k] - wanted[k]).norm() / wanted[k].norm()) for k in wanted}
                return {"loss": abs(float(got.cpu().double() / want) - 1), **off}

            rows.add([name, str(dtype)], compare)


def stage_layer(options: argparse.Namespace) -> None:
    """The output layer alone, forward and backward."""
    import torch

    from experiments.measures import layers, meter

    heads = [layers.LIMIT, "bnce_sparse", "bnce", "shared_nce_sparse"]
    heads += ["cross_entropy", "compiled", "liger", "cut_cross_entropy"]
    main = "64x32x500" if options.tiny else "8192x4096x131072"
    few = [layers.LIMIT, "bnce_sparse", "cross_entropy"]
    shapes = {main: heads}
    if not options.tiny:
        shapes.update({"8192x512x131072": few, "8192x1024x267744": few, "8192x650x52595": few})
        shapes["8192x4096x1000000"] = few[:2]
    rows, device = Rows("layer", options), torch.device(_device())
    for text, chosen in shapes.items():
        shape = layers.Shape.parse(text)
        for dtype in [torch.bfloat16] + [torch.float16, torch.float32] * (text == main):
            problem = layers.make_problem(shape, dtype, device)
            for head in chosen if dtype == torch.bfloat16 else few[:2]:

                def one(head: str = head, problem: Any = problem) -> Row:
                    problem.weight = problem.weight.detach().requires_grad_()  # without a mark
                    call = layers.HEADS[head](problem)
                    start = time.perf_counter()
                    loss = call()
                    _wait()
                    first = time.perf_counter() - start
                    return {
                        **_times(call),
                        "first_s": first,
                        "loss": None if loss is None else loss.item(),
                        "extra_mb": meter.peak_bytes(call, device.type == "cuda") / 1e6,
                        "distinct_words": len(torch.unique(problem.target)),
                    }

                rows.add([head, text, str(dtype)], one)
            if text == main and dtype == torch.bfloat16:
                problem.weight = problem.weight.detach().requires_grad_()
                _profile(layers.HEADS["bnce_sparse"](problem), "layer")
                rows.add(["log_partition", text, str(dtype)], partial(_partition, problem))
            del problem


def _partition(problem: Any) -> Row:
    import torch

    from fairseq_bnce import losses

    features, weight = problem.features.detach(), problem.weight.detach()
    with torch.no_grad():
        return _times(lambda: losses.log_partition(features, weight, None))


def _profile(call: Callable[[], Any], name: str) -> Row:
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities) as profiled:
        for _ in range(3):
            call()
        _wait()
    averages = profiled.key_averages()
    by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    table = averages.table(sort_by=by, row_limit=45, max_name_column_width=70)
    (WORK / f"profile-{name}.txt").write_text(table)
    names: Sequence[str] = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaLaunchKernel")
    names = (*names, "cudaMemcpyAsync", "cuLaunchKernelEx", "cudaLaunchKernelExC", "aten::item")
    return {"counts_of_3": {a.key: a.count for a in averages if a.key in names}}


def _fast_inits() -> None:
    """Fill large tables with repeated random blocks: the CPU's generator takes 5 s a table."""
    import torch

    for name in ("normal_", "uniform_"):
        plain = getattr(torch.Tensor, name)

        def fast(self: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            if self.numel() < 2**22 or self.device.type != "cpu" or not self.is_contiguous():
                return plain(self, *args, **kwargs)
            kwargs.pop("generator", None)
            block, flat = (
                plain(torch.empty(2**20, dtype=self.dtype), *args, **kwargs),
                self.view(-1),
            )
            for at in range(0, flat.numel(), 2**20):
                part = flat[at : at + 2**20]
                part.copy_(block[: len(part)])
            return self

        setattr(torch.Tensor, name, fast)


def _flags(tiny: bool, vocabulary: int, system: str, extra: Sequence[Any] = ()) -> List[str]:
    """Of fairseq-train: a transformer of size 512, a system such as "bnce row-sparse tied"."""
    from experiments.recipes import criterion_flags

    size, inner, layers = (64, 128, 2) if tiny else (512, 2048, 6)
    criterion, *words = system.split()
    flags: List[Any] = [_data(vocabulary), "--user-dir", ROOT / "fairseq_bnce"]
    flags += ["--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", layers]
    flags += ["--decoder-embed-dim", size, "--decoder-input-dim", size]
    flags += ["--decoder-output-dim", size, "--decoder-ffn-embed-dim", inner]
    flags += ["--decoder-attention-heads", 8, "--dropout", 0.1, "--lr", 1e-4, "--clip-norm", 0.25]
    flags += ["--lr-scheduler", "fixed", "--max-epoch", 1, "--disable-validation", "--no-save"]
    flags += ["--required-batch-size-multiple", 1, "--distributed-world-size", 1]
    flags += ["--batch-size", 4 if tiny else 16, "--tokens-per-sample", 32 if tiny else 256]
    flags += ["--num-workers", 0, "--seed", 1, "--no-progress-bar"]
    flags += ["--cpu"] if _device() == "cpu" else []
    flags += ["--criterion", criterion, *criterion_flags(criterion, vocabulary)]
    flags += ["--log-z", f"{math.log(vocabulary):.1f}"] if criterion == "bnce" else []
    if "row-sparse" in words:
        flags += ["--row-sparse", "--optimizer", "lazy_adam"]
    else:
        flags += ["--optimizer", "adam"]
    flags += ["--share-decoder-input-output-embed"] if "tied" in words else []
    return [str(flag) for flag in [*flags, *extra]]


def _trainer(flags: List[str]) -> Any:
    from experiments.measures import updates

    return updates._trainer(flags)


def _words_per_second(flags: List[str], seconds: float = 3.0, most: int = 40) -> Row:
    import torch

    is_cuda = _device() == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer, batches = _trainer(flags)

    for _ in range(4):
        trainer.train_step(next(batches), raise_oom=True)
    _wait()
    count, words, start = 0, 0, time.perf_counter()
    for samples in islice(batches, most):
        trainer.train_step(samples, raise_oom=True)
        words += int(samples[0]["ntokens"])
        count += 1
        if count >= 5 and time.perf_counter() > start + seconds:
            break
    _wait()
    took = time.perf_counter() - start
    return {
        "words_per_s": words / took,
        "update_ms": 1e3 * took / count,
        "updates": count,
        "tokens": words / count,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if is_cuda else None,
    }


_HALVES = ["--memory-efficient-bf16"]


def stage_training(options: argparse.Namespace) -> None:
    _fast_inits()
    rows = Rows("training", options)
    small, *_, large = _sizes(options.tiny)
    middle = 2000 if options.tiny else VOCABULARY
    plan: List[Any] = []
    for system in ("bnce row-sparse", "cross_entropy", "adaptive_loss", "bnce"):
        plan.append((system, middle, _HALVES))
    plan += [("bnce row-sparse", size, _HALVES) for size in (small, large)]
    plan += [("bnce row-sparse tied", middle, _HALVES), ("cross_entropy tied", middle, _HALVES)]
    plan += [("cross_entropy", small, _HALVES), ("adaptive_loss", small, _HALVES)]
    plan += [("adaptive_loss", large, _HALVES), ("cross_entropy", large, _HALVES)]
    plan += [(system, middle, []) for system in ("bnce row-sparse", "cross_entropy")]
    plan += [("bnce row-sparse", middle, ["--amp"])]
    for system, vocabulary, extra in plan:

        def one(system: str = system, vocabulary: int = vocabulary, extra: Any = extra) -> Row:
            return _words_per_second(_flags(options.tiny, vocabulary, system, extra))

        rows.add([system, vocabulary, *extra], one)


def stage_scoring(options: argparse.Namespace) -> None:
    """A model with random rows scores text in this process, exactly and unnormalised."""
    import torch
    from fairseq_cli import train as fairseq_train

    import fairseq_bnce
    from fairseq_bnce import Scorer

    _fast_inits()
    fairseq_bnce.register()
    rows, folder = Rows("scoring", options), str(WORK / "checkpoints")
    vocabulary = 2000 if options.tiny else VOCABULARY

    def train() -> Row:
        extra = ["--max-update", "2", "--save-dir", folder]
        sys.argv = ["fairseq-train", *_flags(options.tiny, vocabulary, "bnce row-sparse", extra)]
        sys.argv.remove("--no-save")
        fairseq_train.cli_main()
        return {}

    rows.add(["a checkpoint"], train)
    count = 2000 if options.tiny else 200_000
    words = [f"w{1 + i % 997}" for i in range(count)]
    lines = [" ".join(words[i : i + 19]) for i in range(0, len(words), 19)]
    for dtype in (torch.float32, torch.bfloat16):
        for exact in (False, True):

            def one(dtype: torch.dtype = dtype, exact: bool = exact) -> Row:
                path = f"{folder}/checkpoint_last.pt"
                scorer = Scorer.from_checkpoint(path, device=_device(), dtype=dtype, exact=exact)
                some = lines[: len(lines) // (8 if exact else 1)]
                scorer.score(some[:200])
                _wait()
                start = time.perf_counter()
                scores = scorer.score(some)
                _wait()
                took = time.perf_counter() - start
                return {"tokens_per_s": 20 * len(some) / took, "sum": float(scores.sum())}

            rows.add([str(dtype), "exact" if exact else "unnormalised", vocabulary], one)


def stage_profile(options: argparse.Namespace) -> None:
    """Kernels of an update, and how often the host waits."""
    _fast_inits()
    rows, vocabulary = Rows("profile", options), 2000 if options.tiny else VOCABULARY
    for number, system in enumerate(("bnce row-sparse", "cross_entropy")):

        def one(system: str = system, number: int = number) -> Row:
            trainer, batches = _trainer(_flags(options.tiny, vocabulary, system, _HALVES))
            for _ in range(4):
                trainer.train_step(next(batches))
            return _profile(lambda: trainer.train_step(next(batches)), f"update-{number}")

        rows.add([system, vocabulary, *_HALVES], one)


def stage_bands(options: argparse.Namespace) -> None:
    """transformer_lm_wiki103 in its own size, one hundred updates at most."""
    _fast_inits()
    rows = Rows("bands", options)
    vocabulary = 2000 if options.tiny else VOCABULARY
    for system in ("bnce row-sparse", "adaptive_loss", "bnce"):
        flags = list(_wiki103_flags(options.tiny, vocabulary, system))
        rows.add([system, vocabulary, *_HALVES], partial(_words_per_second, flags, 15.0, 100))


def _wiki103_flags(tiny: bool, vocabulary: int, system: str) -> Iterator[str]:
    criterion, *rest = system.split()
    flags: List[Any] = [_data(vocabulary), "--user-dir", ROOT / "fairseq_bnce"]
    flags += ["--task", "language_modeling", "--arch", "transformer_lm_wiki103"]
    if tiny:
        flags += ["--decoder-layers", 2, "--decoder-embed-dim", 64, "--decoder-input-dim", 64]
        flags += ["--decoder-output-dim", 64, "--decoder-ffn-embed-dim", 64]
        flags += ["--adaptive-softmax-cutoff", "200,600", "--adaptive-input-cutoff", "200,600"]
    flags += ["--criterion", criterion, "--lr", 1e-4, "--clip-norm", 0.1, "--max-epoch", 1]
    flags += ["--lr-scheduler", "fixed", "--disable-validation", "--no-save"]
    flags += ["--required-batch-size-multiple", 1, "--distributed-world-size", 1]
    flags += ["--batch-size", 4 if tiny else 8, "--tokens-per-sample", 32 if tiny else 512]
    flags += ["--num-workers", 0, "--seed", 1, "--no-progress-bar", *_HALVES]
    flags += ["--cpu"] if _device() == "cpu" else []
    flags += ["--ddp-backend", "legacy_ddp"] if criterion == "adaptive_loss" else []
    if "row-sparse" in rest:
        flags += ["--row-sparse", "--optimizer", "lazy_adam"]
    else:
        flags += ["--optimizer", "adam"]
    return map(str, flags)


if __name__ == "__main__":
    sys.exit(main())
