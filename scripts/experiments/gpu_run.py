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
import contextlib
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
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence

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
# Seconds that a stage may take.
STAGES = {
    "probe": 20,
    "errors": 25,
    "layer": 110,
    "training": 150,
    "scoring": 70,
    "profile": 35,
    "bands": 90,
    "tests": 120,
}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY = "--tiny" in sys.argv
SIZES = (500, 2000, 4000) if TINY else (10_000, 267_744, 1_000_000)  # the second is WikiText-103's
BATCH = 128 if TINY else 4096  # tokens of an update, in every training
WARM, LEAST, MOST = 4, 5, 100  # updates: before the timed ones, and timed
# New tokens for every update of the longest training, and for a last batch that is not full.
TOKENS = BATCH * (WARM + MOST + 2)
Row = Dict[str, Any]
NewRow = Callable[..., ContextManager[Row]]  # takes the row's keys


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--skip", nargs="+", default=[], choices=list(layers.HEADS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _fast_inits()
        globals()[f"stage_{options.child}"](partial(_row, options, []), options)
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
            status: Any = child.wait(STAGES[name] * (6 if TINY else 1))
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
    with open(out / f"{name}.log", "w") as log:
        return subprocess.Popen(
            [sys.executable, *sys.argv, "--child", name], stdout=log, stderr=subprocess.STDOUT
        )


@contextlib.contextmanager
def _row(options: argparse.Namespace, rows: List[Row], *key: Any) -> Iterator[Row]:
    """Add a row to a stage's result, and write all rows; a failed row has the reason."""
    row: Row = {"key": list(key)}
    began = time.time()
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        yield row
    except Exception as error:
        traceback.print_exc()
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    rows.append({**row, "took": round(time.time() - began, 2)})
    (options.out / f"{options.child}.json").write_text(json.dumps(rows, indent=1))
    gc.collect()
    torch.cuda.empty_cache()


def _times(call: Callable[[], Any], seconds: float = 0.7, most: int = 50) -> Row:
    """Return the median milliseconds of a call, after a warm-up."""
    meter.repeat(call, 3, seconds, 3)
    found = meter.repeat(lambda: meter.seconds(call), most, seconds, 5)
    return {"ms": 1e3 * statistics.median(found)}


def _data(vocabulary: int) -> str:
    return str(WORK / "data" / f"{vocabulary}-{TOKENS}")


def stage_data(new_row: NewRow, options: Any) -> None:
    for size in SIZES:
        with new_row(size) as row:
            row["folder"] = str(make_data(Path(_data(size)), 1, size, TOKENS))


def stage_probe(new_row: NewRow, options: Any) -> None:
    size, count = (256, 2**16) if TINY else (8192, 2**30)
    with new_row("versions") as row:
        row["torch"], row["card"] = torch.__version__, meter.device() or "cpu"
    with new_row("product of bf16") as row:
        a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in "ab")
        row.update(_times(partial(torch.mm, a, b)))
        row["tflops"] = 2 * size**3 / row["ms"] / 1e9
    with new_row("copy") as row:
        source = torch.randn(count, device=DEVICE)
        row.update(_times(partial(torch.empty_like(source).copy_, source)))
        row["tb_per_s"] = 8 * count / row["ms"] / 1e9


def stage_errors(new_row: NewRow, options: Any) -> None:
    """Compare losses and gradients on the device with float64 on the CPU, for the same numbers."""
    cases: Any = importlib.import_module("loss_cases")
    count = 33 if TINY else 1500

    def run(name: str, problem: Any, dtype: torch.dtype) -> Row:
        problem = cases.with_gradients(problem, dtype)
        loss = cases.call(losses, name, problem).sum()
        found = {"loss": loss.detach(), **cases.gradients(loss, problem)}
        return {k: v.cpu().double() for k, v in found.items()}

    for name, dtype in product(cases.ROWS, (torch.float32, torch.float16, torch.bfloat16)):
        with new_row(name, str(dtype)) as row:
            rounded = cases.with_gradients(cases.make_problem(count), dtype)
            moved = {k: v if v is None else v.to(DEVICE) for k, v in rounded.items()}
            want, got = run(name, rounded, torch.float64), run(name, moved, dtype)
            row.update((k, float((got[k] - want[k]).norm() / want[k].norm())) for k in want)


def stage_layer(new_row: NewRow, options: Any) -> None:
    """Measure the output layer alone, forward and backward."""
    main = "64x32x500" if TINY else "8192x4096x131072"
    shapes = {main: list(layers.HEADS)}
    if not TINY:
        shapes["8192x512x131072"] = [layers.LIMIT, "bnce_sparse", "cross_entropy"]

    def one(head: str, problem: Any) -> Row:
        call = layers.make_head(head, problem)
        return {
            **_times(call),
            "extra_mb": meter.peak_bytes(call, DEVICE == "cuda") / 1e6,
            "distinct_words": len(torch.unique(problem.target)),
        }

    for text, chosen in shapes.items():
        problem = layers.make_problem(text, torch.bfloat16, torch.device(DEVICE))
        for head in (head for head in chosen if head not in options.skip):
            with new_row(head, text, "torch.bfloat16") as row:
                row.update(one(head, problem))
        if text == main:
            _profile(layers.make_head("bnce_sparse", problem), options.out / "profile-layer.txt")
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
    table = averages.table(sort_by=by, row_limit=45, max_name_column_width=70)
    path.write_text(table)
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


_HALVES = ["--memory-efficient-bf16"]
_TINY = """--decoder-layers 2 --decoder-embed-dim 64 --decoder-input-dim 64 --decoder-output-dim 64
--decoder-ffn-embed-dim 128"""


def _flags(vocabulary: int, system: str, extra: Sequence[str]) -> List[str]:
    """Return fairseq-train's flags for a system such as "bnce row-sparse tied".

    The model is bench.py vocabulary's transformer, or transformer_lm_wiki103 with "bands".
    """
    recipe, (criterion, *words) = RECIPES["transformer"], system.split()
    if "bands" in words:
        recipe = RECIPES["wiki103"]._replace(batch=(8, 512), has_bias=True)
        cuts = "200,600" if TINY else "20000,60000"
        extra = [*extra, "--adaptive-softmax-cutoff", cuts, "--adaptive-input-cutoff", cuts]
    if TINY:
        recipe = recipe._replace(training=(*recipe.training, *shlex.split(_TINY)), batch=(4, 32))
    flags = [_data(vocabulary), "--user-dir", str(machine.PLUGIN), *recipe.flags()]
    flags += recipe.system_flags(criterion + "_sparse" * ("row-sparse" in words), vocabulary)
    flags += ["--share-decoder-input-output-embed"] * ("tied" in words)
    return [*flags, "--num-workers", "0", *["--cpu"] * (DEVICE == "cpu"), *extra]


def _words_per_second(flags: List[str], seconds: float = 3.0, most: int = 40) -> Row:
    trainer, batches = updates.build_trainer(flags)

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


def stage_training(new_row: NewRow, options: Any) -> None:
    small, middle, large = SIZES
    ours, softmax = "bnce row-sparse", "cross_entropy"
    plan = [(system, middle) for system in (ours, softmax, "adaptive_loss", "bnce")]
    plan += [(ours, size) for size in (small, large)]
    plan += [(f"{system} tied", middle) for system in (ours, softmax)]
    plan += [(system, size) for size in (small, large) for system in (softmax, "adaptive_loss")]
    for system, vocabulary in plan:
        with new_row(system, vocabulary, *_HALVES) as row:
            row.update(_words_per_second(_flags(vocabulary, system, _HALVES)))


def stage_scoring(new_row: NewRow, options: Any) -> None:
    """Score text exactly and unnormalised, with a model of random rows."""
    from fairseq_cli import train as fairseq_train

    fairseq_bnce.register()
    folder, vocabulary = str(WORK / "checkpoints"), SIZES[1]
    with new_row("a checkpoint"):
        extra = ["--max-update", "2", "--save-dir", folder]
        sys.argv = ["fairseq-train", *_flags(vocabulary, "bnce row-sparse", extra)]
        sys.argv.remove("--no-save")
        fairseq_train.cli_main()
    words = [f"w{1 + i % 997}" for i in range(2000 if TINY else 200_000)]
    lines = [" ".join(words[i : i + 19]) for i in range(0, len(words), 19)]

    def score(exact: bool, dtype: torch.dtype) -> Row:
        path = f"{folder}/checkpoint_last.pt"
        scorer = Scorer.from_checkpoint(path, device=DEVICE, dtype=dtype, exact=exact)
        some = lines[: len(lines) // (8 if exact else 1)]
        scorer.score(some[:200], tokenized=True)
        start = timer()
        scores = scorer.score(some, tokenized=True)
        speed = 20 * len(some) / (timer() - start)
        return {"tokens_per_s": speed, "sum": float(scores.sum())}

    for dtype, exact in product((torch.float32, torch.bfloat16), (False, True)):
        with new_row(str(dtype), "exact" if exact else "unnormalised", vocabulary) as row:
            row.update(score(exact, dtype))


def stage_profile(new_row: NewRow, options: Any) -> None:
    """Count the kernels of an update, and how often the host waits."""
    vocabulary = SIZES[1]

    def one(system: str, path: Path) -> Row:
        trainer, batches = updates.build_trainer(_flags(vocabulary, system, _HALVES))
        for samples in islice(batches, 4):
            trainer.train_step(samples)
        return _profile(lambda: trainer.train_step(next(batches)), path)

    for number, system in enumerate(("bnce row-sparse", "cross_entropy")):
        with new_row(system, vocabulary, *_HALVES) as row:
            row.update(one(system, options.out / f"profile-update-{number}.txt"))


def stage_bands(new_row: NewRow, options: Any) -> None:
    """Train transformer_lm_wiki103 in its own size, for a hundred updates at most."""
    vocabulary = SIZES[1]
    for system in ("bnce row-sparse", "adaptive_loss", "bnce"):
        with new_row(system, vocabulary, *_HALVES) as row:
            flags = _flags(vocabulary, f"{system} bands", _HALVES)
            row.update(_words_per_second(flags, 15.0, MOST))


def stage_tests(new_row: NewRow, options: Any) -> None:
    """Run the tests marked for a GPU; a rehearsal only collects them."""
    with new_row("marked for a GPU") as row:
        chosen = ["-m", "gpu", "-o", "filterwarnings=default", *["--collect-only"] * TINY]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
        ended = subprocess.run([*command, "tests"], cwd=ROOT, capture_output=True, text=True)
        print(ended.stdout, ended.stderr)
        if ended.returncode:
            raise RuntimeError(ended.stdout[-200:])
        row["passed"] = ended.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
