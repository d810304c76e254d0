#!/usr/bin/env python3
"""Measure how fast plain text is scored, and in how much memory.

    bench_scoring.py --out FOLDER

An lstm_lm over Zipf-distributed words is trained for a moment. fairseq-bnce score reads text, and
fairseq-eval-lm the same text binarised, both as a user would call them, exactly and unnormalised.
What a sentence takes is the difference between a long and a short text, so that starting Python and
loading the model is not in it, nor for fairseq-eval-lm the binarising. Times are those of the
processes: by the clock, and of the processor, which other processes lengthen less.

FOLDER gets scoring.md and scoring.json, and data, model and logs, which a second call does not make
again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path
from typing import Any, Dict, Sequence

import environment  # noqa: F401
from experiments import command, machine, processes, report, run
from experiments.made import Workshop, eval_lm
from experiments.recipes import words
from rendering import scoring

_COMMAND = Path(__file__).with_name("fairseq-bnce")


class Bench(Workshop):
    """Times commands in a folder.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace):
        super().__init__(options.out, options.threads)
        self.options, self.flags = options, run.device_flags(options.device)
        vocab, tokens = options.vocab, options.tokens[1]
        flags = [*words(report.load("recipes")["scoring"]), *self.flags]
        self.checkpoint = self.model(self.data(vocab, tokens), f"{vocab}-{tokens}", flags)

    def speed(self, system: str) -> Dict[str, Any]:
        """Return the times of a system for a short and a long text: the least of all repeats."""
        is_exact = system in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        sizes = self.options.exact_tokens if is_exact else self.options.tokens
        folders = [self.data(self.options.vocab, tokens) for tokens in sizes]
        lines = [(folder / "train.txt").read_bytes().count(b"\n") for folder in folders]
        found = {"system": system, "sentences": lines, "tokens": sizes}
        read = self.evaluate if "eval-lm" in system else self.score
        ended = [[read(one, is_exact) for _ in range(self.options.repeats)] for one in folders]
        for name in ("seconds", "cpu_seconds"):
            found[name] = [min(getattr(one, name) for one in same) for same in ended]
        command.say(f"{system}: {found['seconds'][1]:.1f} s")
        return found

    def memory(self, lines: int) -> Dict[str, float]:
        """Return peak memory and time for so many lines of three words."""
        text = self.out / f"text-{lines}.txt"
        whole = self.data(self.options.vocab, self.options.tokens[0]) / "train.txt"
        short = [b" ".join(line.split()[:3]) + b"\n" for line in whole.read_bytes().splitlines()]
        text.write_bytes(b"".join(itertools.islice(itertools.cycle(short), lines)))
        ended = self.score(text)
        return {"peak_mib": ended.peak_bytes / report.MIB, "seconds": ended.seconds}

    def score(self, text: Path, is_exact: bool = False) -> processes.Ended:
        """Run fairseq-bnce score on a text, or on that of a folder of made data."""
        text = text / "train.txt" if text.is_dir() else text
        places = ["--path", self.checkpoint, "--device", self.options.device, "--per-word", text]
        line = [sys.executable, _COMMAND, "score", *places, *["--exact"] * is_exact]
        return self.run(*line, printed=Path(os.devnull))

    def evaluate(self, data: Path, is_exact: bool) -> processes.Ended:
        """Run fairseq-eval-lm on a folder of made data."""
        way = [*self.flags, *["--unnormalized"] * (not is_exact)]
        return self.run(*eval_lm(data, self.checkpoint, "train", *way), printed=Path(os.devnull))


def main(arguments: Sequence[str]) -> int:
    """Measure all systems, and return 0."""
    options = _parser().parse_args(arguments)
    flags = {name: str(value) for name, value in vars(options).items() if name != "out"}
    bench = Bench(run.prepare(options))
    where = {**machine.record(), "load": os.getloadavg()}
    where.update(device=options.device, device_name=options.device_name)
    speeds = [bench.speed(system) for system in scoring.SYSTEMS]
    memory = {lines: bench.memory(lines) for lines in options.memory_lines}
    found = {"flags": flags, "machine": where, "memory": memory, "speeds": speeds}
    parts = ["\n".join(lines) for lines in (scoring.speeds(found), scoring.memory(found))]
    print(report.write(options.out / "scoring", parts, found))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True)
    add = parser.add_argument
    add("--vocab", type=int, default=50_000, help="types")
    sizes: Dict[str, Any] = {"type": int, "nargs": 2, "metavar": ("SHORT", "LONG")}
    add("--tokens", default=[100_000, 600_000], help="of texts scored unnormalised", **sizes)
    add("--exact-tokens", default=[10_000, 40_000], help="of texts scored exactly", **sizes)
    add("--memory-lines", type=int, nargs="*", default=[10_000, 100_000], metavar="LINES")
    add("--repeats", type=int, default=2, help="of each; the fastest counts")
    return parser


if __name__ == "__main__":
    command.start(main)
