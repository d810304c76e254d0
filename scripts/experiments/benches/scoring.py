"""How fast plain text is scored, and in how much memory."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any, Dict

from rendering.rows import SCORERS

from .. import command, processes, report, run
from ..made import Workshop, eval_lm
from ..recipes import words

_COMMAND = Path(__file__).parents[2] / "fairseq-bnce"


class Bench(Workshop):
    """Times commands in a folder.

    Args:
        options: of the command line.
    """

    def __init__(self, options: Any):
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


def measure(options: Any) -> Dict[str, Any]:
    bench = Bench(run.prepare(options))
    return {
        "device_name": options.device_name,
        "speeds": [bench.speed(system) for system in SCORERS],
        "memory": {lines: bench.memory(lines) for lines in options.memory_lines},
    }
