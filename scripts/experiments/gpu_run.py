#!/usr/bin/env python3
"""Measure this plugin on one GPU: stages, each a child process with its own time limit.

    gpu_run.py --out FOLDER                    all stages, about eight minutes
    gpu_run.py --out FOLDER --stages layer     some of them
    gpu_run.py --out FOLDER --skip liger       without some heads of the layer stage
    gpu_run.py --out FOLDER --tiny             a rehearsal, on a CPU too

Every row of a result is on disk, in FOLDER/STAGE.json, as soon as it is known. FOLDER/results.json
has all results, and FOLDER/STAGE.log the output of a stage. The exit status is 1 if a stage failed,
ran out of time or measured nothing, or if a row failed. Stages: probe (the card's own speeds),
errors (losses and gradients against float64), layer (the output layer alone), training (words/s),
scoring, profile (kernels and waits of an update), bands (word tables of several sizes), tests
(those marked for a GPU, two ranks on it among them).
"""

import argparse
import gc
import importlib
import json
import shlex
import statistics
import subprocess
import sys
import time
import traceback
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import timer  # waits for the GPU, where there is one

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = map(str, (ROOT, ROOT / "scripts", ROOT / "tests"))
import fairseq_bnce  # noqa: E402
from experiments import machine  # noqa: E402
from experiments.benches.vocabulary import RECIPES  # noqa: E402
from experiments.measures import layers, meter, updates  # noqa: E402
from experiments.workshop import make_data  # noqa: E402
from fairseq_bnce import Scorer, losses  # noqa: E402

WORK = Path("/tmp/gpu_run")  # data and a checkpoint
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY = "--tiny" in sys.argv
SIZES = (500, 2000, 4000) if TINY else (10_000, 267_744, 1_000_000)  # the second is WikiText-103's
SMALL, MIDDLE, LARGE = SIZES
BATCH = 128 if TINY else 4096  # tokens of an update, in every training
WARM, LEAST, MOST = 4, 5, 100  # updates: before the timed ones, and timed
# New tokens for every update of the longest training, and for a last batch that is not full.
TOKENS = BATCH * (WARM + MOST + 2)
HALVES = ["--memory-efficient-bf16"]
_TINY = """--decoder-layers 2 --decoder-embed-dim 64 --decoder-input-dim 64 --decoder-output-dim 64
--decoder-ffn-embed-dim 128"""
OURS, SOFTMAX, ADAPTIVE = "bnce row-sparse", "cross_entropy", "adaptive_loss"
Row = Dict[str, Any]
# The rows of a stage: the key, and what measures the rest when the keys before are written.
Rows = Iterator[Tuple[Sequence[Any], Callable[[], Row]]]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    names = list(STAGES)[1:]
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", default=names, choices=names)
    parser.add_argument("--skip", nargs="+", default=[], choices=list(layers.HEADS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _measure(STAGES[options.child][1](options), options.out / f"{options.child}.json")
        return 0
    if not (options.tiny or DEVICE == "cuda"):
        parser.error("required a GPU, or --tiny; got neither")
    options.out.mkdir(parents=True, exist_ok=True)
    data, outcome, found = _child("data", options.out), {}, {}
    for name in options.stages:
        path = options.out / f"{name}.json"
        path.unlink(missing_ok=True)  # of an earlier call
        if name not in ("probe", "errors", "layer"):
            data.wait()
        began, child = time.time(), _child(name, options.out)
        try:
            status: Any = child.wait(STAGES[name][0] * (6 if TINY else 1))
        except subprocess.TimeoutExpired:
            child.kill()
            status = "timeout"
        rows = found[name] = json.loads(path.read_text()) if path.is_file() else []
        failed = sum("failed" in row for row in rows)
        outcome[name] = {"status": status, "rows": len(rows), "failed": failed}
        outcome[name]["seconds"] = round(time.time() - began, 1)
        print(name, outcome[name], flush=True)
        text = json.dumps({**found, "stages": outcome}, indent=1)
        (options.out / "results.json").write_text(text)
    is_whole = all(o["rows"] and not o["status"] and not o["failed"] for o in outcome.values())
    return int(not is_whole)


def _child(name: str, out: Path) -> subprocess.Popen:
    command = [sys.executable, *sys.argv, "--child", name]
    with open(out / f"{name}.log", "w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _measure(stage: Rows, path: Path) -> None:
    """Measure the rows of a stage, and write all after each; a failed row has the reason."""
    _fast_inits()
    rows: List[Row] = []
    for key, measure in stage:
        row: Row = {"key": list(key)}
        began = time.time()
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            row.update(measure())
        except Exception as error:
            traceback.print_exc()
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        rows.append({**row, "took": round(time.time() - began, 2)})
        path.write_text(json.dumps(rows, indent=1))
        gc.collect()
        torch.cuda.empty_cache()


def _times(call: Callable[[], Any], seconds: float = 0.7, most: int = 50) -> Row:
    """Return the median milliseconds of a call, after a warm-up."""
    meter.repeat(call, 3, seconds, 3)
    found = meter.repeat(lambda: meter.seconds(call), most, seconds, 5)
    return {"ms": 1e3 * statistics.median(found)}


def _data(vocabulary: int) -> Path:
    return WORK / "data" / f"{vocabulary}-{TOKENS}"


def data(options: Any) -> Rows:
    for size in SIZES:
        yield [size], lambda: {"folder": str(make_data(_data(size), 1, size, TOKENS))}  # noqa: B023


def probe(options: Any) -> Rows:
    size, count = (256, 2**16) if TINY else (8192, 2**30)

    def product_of_halves() -> Row:
        a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in "ab")
        found = _times(partial(torch.mm, a, b))
        return {**found, "tflops": 2 * size**3 / found["ms"] / 1e9}

    def copy() -> Row:
        source = torch.randn(count, device=DEVICE)
        found = _times(partial(torch.empty_like(source).copy_, source))
        return {**found, "tb_per_s": 8 * count / found["ms"] / 1e9}

    yield ["versions"], lambda: {"torch": torch.__version__, "card": meter.device() or "cpu"}
    yield ["product of bf16"], product_of_halves
    yield ["copy"], copy


def errors(options: Any) -> Rows:
    """Compare losses and gradients on the device with float64 on the CPU, for the same numbers."""
    cases: Any = importlib.import_module("loss_cases")

    def run(name: str, problem: Any, dtype: torch.dtype) -> Row:
        problem = cases.with_gradients(problem, dtype)
        loss = cases.call(losses, name, problem).sum()
        found = {"loss": loss.detach(), **cases.gradients(loss, problem)}
        return {k: v.cpu().double() for k, v in found.items()}

    def one(name: str, dtype: torch.dtype) -> Row:
        rounded = cases.with_gradients(cases.make_problem(33 if TINY else 1500), dtype)
        moved = {k: v if v is None else v.to(DEVICE) for k, v in rounded.items()}
        want, got = run(name, rounded, torch.float64), run(name, moved, dtype)
        return {k: float((got[k] - want[k]).norm() / want[k].norm()) for k in want}

    for name, dtype in product(cases.ROWS, (torch.float32, torch.float16, torch.bfloat16)):
        yield [name, str(dtype)], partial(one, name, dtype)


def layer(options: Any) -> Rows:
    """Measure the output layer alone, forward and backward."""
    shapes = {"64x32x500" if TINY else "8192x4096x131072": list(layers.HEADS)}
    if not TINY:
        shapes["8192x512x131072"] = [layers.LIMIT, "bnce_sparse", "cross_entropy"]

    def one(head: str, problem: Any) -> Row:
        call = layers.make_head(head, problem)
        found = {**_times(call), "extra_mb": meter.peak_bytes(call, DEVICE == "cuda") / 1e6}
        return {**found, "distinct_words": len(torch.unique(problem.target))}

    def kernels(problem: Any, path: Path) -> Row:
        return _profile(layers.make_head("bnce_sparse", problem), path)

    for text, chosen in shapes.items():
        problem = layers.make_problem(text, torch.bfloat16, torch.device(DEVICE))
        for head in (head for head in chosen if head not in options.skip):
            yield [head, text, "torch.bfloat16"], partial(one, head, problem)
        yield ["profile", text], partial(kernels, problem, options.out / f"profile-{text}.txt")
        del problem


def _profile(call: Callable[[], Any], path: Path) -> Row:
    call()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEVICE == "cuda")
    with profile(activities=activities) as profiled:
        for _ in range(3):
            call()
        timer()
    averages = profiled.key_averages()
    by = "self_device_time_total" if DEVICE == "cuda" else "self_cpu_time_total"
    path.write_text(averages.table(sort_by=by, row_limit=45, max_name_column_width=70))
    calls = ("cuda", "cuLaunch", "aten::item")  # of CUDA's own functions, and waits for a number
    return {"counts_of_3": {a.key: a.count for a in averages if a.key.startswith(calls)}}


def _fast_inits() -> None:
    """Fill large tables with repeated random blocks: the CPU's generator takes 5 s a table."""
    for name in ("normal_", "uniform_"):
        plain = getattr(torch.Tensor, name)

        def fast(self: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            if self.numel() < 2**22 or self.device.type != "cpu" or not self.is_contiguous():
                return plain(self, *args, **kwargs)
            kwargs.pop("generator", None)
            block = plain(torch.empty(2**20, dtype=self.dtype), *args, **kwargs)
            for part in self.view(-1).split(2**20):
                part.copy_(block[: len(part)])
            return self

        setattr(torch.Tensor, name, fast)


def _flags(system: str, vocabulary: int, *extra: str) -> List[str]:
    """Return fairseq-train's flags for a system such as "bnce row-sparse tied".

    The model is bench.py vocabulary's transformer, or transformer_lm_wiki103 with "bands".
    """
    recipe, (criterion, *words) = RECIPES["transformer"], system.split()
    if "bands" in words:
        recipe = RECIPES["wiki103"]._replace(batch=(8, 512), has_bias=True)
        cuts = "200,600" if TINY else "20000,60000"
        extra += ("--adaptive-softmax-cutoff", cuts, "--adaptive-input-cutoff", cuts)
    if TINY:
        recipe = recipe._replace(training=(*recipe.training, *shlex.split(_TINY)), batch=(4, 32))
    flags = [str(_data(vocabulary)), "--user-dir", str(machine.PLUGIN), *recipe.flags()]
    flags += recipe.system_flags(criterion + "_sparse" * ("row-sparse" in words), vocabulary)
    flags += ["--share-decoder-input-output-embed"] * ("tied" in words)
    return [*flags, "--num-workers", "0", *["--cpu"] * (DEVICE == "cpu"), *extra]


def _words_per_second(system: str, vocabulary: int, seconds: float = 3.0, most: int = 40) -> Row:
    trainer, batches = updates.build_trainer(_flags(system, vocabulary, *HALVES))

    def step() -> int:
        samples = next(batches)
        trainer.train_step(samples, raise_oom=True)
        return int(samples[0]["ntokens"])

    for _ in range(WARM):
        step()
    start = timer()
    words = meter.repeat(step, most, seconds, LEAST)
    took = timer() - start
    if set(words) != {BATCH}:  # the batch of an epoch's end is smaller
        raise RuntimeError(f"required {BATCH} tokens in every update, got {sorted(set(words))}")
    peak = torch.cuda.max_memory_allocated() / 1e9 if DEVICE == "cuda" else None
    found = {"words_per_s": sum(words) / took, "update_ms": 1e3 * took / len(words)}
    return {**found, "updates": len(words), "tokens": sum(words) / len(words), "peak_gb": peak}


def training(options: Any) -> Rows:
    plan = [(system, MIDDLE) for system in (OURS, SOFTMAX, ADAPTIVE, "bnce")]
    plan += [(OURS, SMALL), (OURS, LARGE), (f"{OURS} tied", MIDDLE), (f"{SOFTMAX} tied", MIDDLE)]
    plan += [(system, size) for size in (SMALL, LARGE) for system in (SOFTMAX, ADAPTIVE)]
    for which in plan:
        yield [*which, *HALVES], partial(_words_per_second, *which)


def bands(options: Any) -> Rows:
    """Train transformer_lm_wiki103 in its own size, for a hundred updates at most."""
    for system in (OURS, ADAPTIVE, "bnce"):
        measure = partial(_words_per_second, f"{system} bands", MIDDLE, 15.0, MOST)
        yield [system, MIDDLE, *HALVES], measure


def scoring(options: Any) -> Rows:
    """Score text exactly and unnormalised, with a model of random rows."""
    folder = str(WORK / "checkpoints")
    words = [f"w{1 + i % 997}" for i in range(2000 if TINY else 200_000)]
    lines = [" ".join(words[i : i + 19]) for i in range(0, len(words), 19)]

    def train() -> Row:
        from fairseq_cli import train as fairseq_train

        fairseq_bnce.register()
        flags = _flags(OURS, MIDDLE, "--max-update", "2", "--save-dir", folder)
        sys.argv = ["fairseq-train", *(flag for flag in flags if flag != "--no-save")]
        fairseq_train.cli_main()
        return {}

    def score(dtype: torch.dtype, exact: bool) -> Row:
        path = f"{folder}/checkpoint_last.pt"
        scorer = Scorer.from_checkpoint(path, device=DEVICE, dtype=dtype, exact=exact)
        some = lines[: len(lines) // (8 if exact else 1)]
        scorer.score(some[:200], tokenized=True)
        start = timer()
        scores = scorer.score(some, tokenized=True)
        speed = 20 * len(some) / (timer() - start)
        return {"tokens_per_s": speed, "sum": float(scores.sum())}

    yield ["a checkpoint"], train
    for dtype, exact in product((torch.float32, torch.bfloat16), (False, True)):
        key = [str(dtype), "exact" if exact else "unnormalised", MIDDLE]
        yield key, partial(score, dtype, exact)


def kernels(options: Any) -> Rows:
    """Count the kernels of an update, and how often the host waits."""

    def one(system: str, path: Path) -> Row:
        trainer, batches = updates.build_trainer(_flags(system, MIDDLE, *HALVES))
        for samples in islice(batches, 4):
            trainer.train_step(samples)
        return _profile(lambda: trainer.train_step(next(batches)), path)

    for number, system in enumerate((OURS, SOFTMAX)):
        path = options.out / f"profile-update-{number}.txt"
        yield [system, MIDDLE, *HALVES], partial(one, system, path)


def tests(options: Any) -> Rows:
    """Run the tests marked for a GPU; a rehearsal only collects them."""

    def run() -> Row:
        chosen = ["-m", "gpu", "-o", "filterwarnings=default", *["--collect-only"] * TINY]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
        ended = subprocess.run([*command, "tests"], cwd=ROOT, capture_output=True, text=True)
        print(ended.stdout, ended.stderr)
        if ended.returncode:
            raise RuntimeError(ended.stdout[-200:])
        return {"passed": ended.stdout.splitlines()[-1]}

    yield ["marked for a GPU"], run


# Seconds that a stage may take, and its rows.
STAGES: Dict[str, Tuple[int, Callable[[Any], Rows]]] = {
    "data": (600, data),
    "probe": (20, probe),
    "errors": (25, errors),
    "layer": (110, layer),
    "training": (150, training),
    "scoring": (70, scoring),
    "profile": (35, kernels),
    "bands": (90, bands),
    "tests": (120, tests),
}

if __name__ == "__main__":
    sys.exit(main())
