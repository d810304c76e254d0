#!/usr/bin/env python3
"""Measure what the size of the vocabulary costs: training, an update's phases, its memory.

    bench_vocab.py --out FOLDER
    bench_vocab.py --out FOLDER --vocab 10000 100000 --systems cross_entropy bnce_sparse
    bench_vocab.py --out FOLDER --device cuda --recipe transformer --max-seconds 20
    bench_vocab.py --out FOLDER --sentences 80   # other batches than the recipe's

Every system is trained by fairseq-train itself on Zipf-distributed data of every vocabulary, with
the same model and batches; watched from within for where an update's time goes and for its memory;
and measured as a bare output layer. linear_cross_entropy (torch 2.13's F.linear_cross_entropy) has
no fairseq criterion, so it is a bare layer alone; NAME_sparse is NAME with row-sparse gradients.

FOLDER gets benchmark.md (tables, the fitted exponents, and what this plugin is to show),
benchmark.json, benchmark.png (log-log; needs matplotlib), data/ and runs/ with every run's logs.
The runs come one after the other, a process each, and nothing else should be busy meanwhile. A
second call makes no finished run again, but what other flags, versions or sources of the plugin
make a new one. A run that dies is a row of the tables that says why (killed by signal 9: out of
memory); the others are still made, and the exit status is 1.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import List, Sequence, Tuple

from benchmarks import plot, report, runs
from benchmarks.runs import Outcome, Run, Settings
from benchmarks.systems import RECIPES, SYSTEMS, System
from experiments import machine, processes
from experiments.command import UsageError

_MEASURE = Path(__file__).resolve().with_name("benchmarks") / "measure.py"
_LEAST_VOCAB = 50  # a few words beside fairseq's specials, and bands for the adaptive softmax


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if a run failed, 2 for what can't be done, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        settings = _prepare(options)
        outcomes = _run_all(settings, [SYSTEMS[name] for name in options.systems], options.vocab)
    except (UsageError, processes.CommandFailed) as error:
        print(f"bench_vocab.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench_vocab.py: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 1 if runs.failed(outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for results, data and logs")
    add("--recipe", choices=sorted(RECIPES), default="lstm200")
    add("--sentences", type=_at_least(1), help="a batch (default: the recipe's)")
    add(
        "--vocab",
        nargs="+",
        type=_at_least(_LEAST_VOCAB),
        default=[10_000, 50_000, 200_000, 1_000_000],
        metavar="V",
        help="types, the specials counted in (default: %(default)s)",
    )
    add("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    add("--parts", nargs="+", choices=runs.PARTS, default=list(runs.PARTS))
    add(
        "--updates",
        type=_at_least(runs.LEAST_UPDATES),
        default=400,
        help="timed updates of a training (default: %(default)s)",
    )
    add(
        "--max-seconds",
        type=_at_least(1),
        default=60,
        help="for each part of a run: fewer updates where these would take longer, but no less "
        f"than {runs.LEAST_UPDATES} in training (default: %(default)s)",
    )
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--threads", type=_at_least(1), default=1, help="OMP_NUM_THREADS (default: 1)")
    add("--seed", type=int, default=1, help="of the data (default: 1)")
    add(
        "--zipf",
        nargs=2,
        type=float,
        default=[1.1, 2.7],
        metavar=("S", "Q"),
        help="the data's law, 1 / (rank + Q)^S (default: 1.1 2.7)",
    )
    return parser


def _at_least(least: int):
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {value}")
        return value

    return parse


def _prepare(options: argparse.Namespace) -> Settings:
    """Check all that can be checked before hours of measuring."""
    machine.check_fairseq()
    for name in ("vocab", "systems", "parts"):
        values = getattr(options, name)
        if len(set(values)) < len(values):
            raise UsageError(f"--{name}: required each once, got {values}")
    options.out.mkdir(parents=True, exist_ok=True)
    device, device_name = _device(options)
    return Settings(
        out=options.out.resolve(),
        plugin=machine.plugin_folder(),
        recipe=RECIPES[options.recipe].with_sentences(options.sentences),
        updates=options.updates,
        seconds=options.max_seconds,
        device=device,
        device_name=device_name,
        threads=options.threads,
        parts=tuple(options.parts),
        zipf=tuple(options.zipf),
        seed=options.seed,
    )


def _device(options: argparse.Namespace) -> Tuple[str, str]:
    """(cpu or cuda, its name); torch is asked in a child, so that this process stays small."""
    accelerator = None
    if options.device != "cpu":
        found = options.out / "device.json"
        command = [sys.executable, str(_MEASURE), "device", "--out", str(found)]
        processes.run(command, options.out / "device.log", options.threads)
        accelerator = json.loads(found.read_text(encoding="utf-8"))["cuda"]
    if accelerator is not None:
        return "cuda", accelerator
    if options.device == "cuda":
        raise UsageError("--device cuda: required a GPU that torch can use, got none")
    return "cpu", str(machine.hardware()["processor"])


def _run_all(settings: Settings, systems: Sequence[System], vocabs: Sequence[int]) -> List[Outcome]:
    """Run after run; the report is written after each, so that a benchmark can be watched.

    All sizes of a system follow each other: their ratios are the fine ones, which a machine's
    drift would blur.
    """
    pairs = [(system, vocab) for system in systems for vocab in vocabs]
    outcomes: List[Outcome] = []
    for system, vocab in pairs:
        outcomes.append(_run_one(settings, system, vocab, f"{len(outcomes) + 1}/{len(pairs)}"))
        found = report.write(outcomes, settings)
    print((settings.out / "benchmark.md").read_text(encoding="utf-8"))
    title = f"{settings.recipe.about}, {settings.recipe.targets} targets, {settings.device_name}"
    print(plot.draw(found, title, settings.out / "benchmark.png"))
    return outcomes


def _run_one(settings: Settings, system: System, vocab: int, position: str) -> Outcome:
    done: List[str] = []
    start = time.perf_counter()

    def say(what: str) -> None:
        done.append(what)
        print(f"[{position}] {what}", flush=True)

    version = str(machine.versions()["torch"])
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < system.torch:
        reason = f"not in torch {version}, since {'.'.join(map(str, system.torch))}"
        say(f"{system.name} V={vocab:,}: skipped: {reason}")
        return Outcome(system, vocab, skipped=reason)
    runs.make_data(settings, vocab, say)
    run = Run(settings, system, vocab)
    outcome = run.complete(say)
    took = f"done in {time.perf_counter() - start:.0f} s" if done else "taken from disk"
    print(f"[{position}] {run.name}: {took}", flush=True)
    return outcome


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no training is left behind
    sys.exit(main(sys.argv[1:]))
