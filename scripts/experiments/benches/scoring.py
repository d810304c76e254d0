"""How fast plain text is scored, and in how much memory."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

from rendering.cells import NAMES

from .. import command, processes, report, run
from ..recipes import words
from ..workshop import BLOCKS, Workshop

_COMMAND = Path(__file__).parents[2] / "fairseq-bnce"


def measure(options: Any) -> Dict[str, Any]:
    shop = Workshop(run.prepare(options))
    device, vocab = run.device_flags(options.device), options.vocab
    flags = [*words(report.load("recipes")["scoring"]), *device]
    data, name = shop.corpus(vocab, options.tokens[1]), f"{vocab}-{options.tokens[1]}"
    checkpoint = shop.model(data, name, *flags)
    places = ["--path", checkpoint, "--device", options.device, "--per-word"]

    def score(text: Path, *exact: str) -> processes.Ended:
        line = [sys.executable, _COMMAND, "score", *places, *exact, text]
        return shop.command(*line, printed=Path(os.devnull))

    def evaluate(folder: Path, *way: str) -> processes.Ended:
        own = ["--path", checkpoint, "--gen-subset", "train", "--output-word-probs", *BLOCKS]
        return shop.fairseq("eval_lm", folder, *own, *device, *way, printed=Path(os.devnull))

    def speed(system: str) -> Dict[str, Any]:
        """Return the times of a system for a short and a long text: the least of all repeats."""
        is_exact = system in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        sizes = options.exact_tokens if is_exact else options.tokens
        folders = [shop.corpus(vocab, tokens) for tokens in sizes]
        lines = [(folder / "train.txt").read_bytes().count(b"\n") for folder in folders]
        found = {"system": system, "sentences": lines, "tokens": sizes}
        *_, way = system.rpartition(" ")
        ways = [way] * way.startswith("--")
        ended: List[List[processes.Ended]] = [
            [
                evaluate(one, *ways) if "eval-lm" in system else score(one / "train.txt", *ways)
                for _ in range(options.repeats)
            ]
            for one in folders
        ]
        for name in ("seconds", "cpu_seconds"):
            found[name] = [min(getattr(one, name) for one in same) for same in ended]
        command.say(f"{system}: {found['seconds'][1]:.1f} s")
        return found

    def memory(lines: int) -> Dict[str, float]:
        """Return peak memory and time for so many lines of three words."""
        text, whole = shop.out / f"text-{lines}.txt", shop.corpus(vocab, options.tokens[0])
        read = (whole / "train.txt").read_bytes().splitlines()
        short = [b" ".join(line.split()[:3]) + b"\n" for line in read]
        text.write_bytes(b"".join(itertools.islice(itertools.cycle(short), lines)))
        ended = score(text)
        return {"peak_mib": ended.peak_bytes / report.MIB, "seconds": ended.seconds}

    return {
        "device_name": options.device_name,
        "speeds": [speed(system) for system in NAMES["scorers"]],
        "memory": {lines: memory(lines) for lines in options.memory_lines},
    }
