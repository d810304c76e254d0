#!/usr/bin/env python3
"""Measure how fast plain text is scored, and in how much memory.

    bench_scoring.py --out FOLDER
    bench_scoring.py --out FOLDER --arch rnn_lm --memory-lines 10000 1000000

A model over Zipf-distributed words is trained for a moment. fairseq-bnce score reads text, and
fairseq-eval-lm the same text binarised, both as a user would call them, exactly and unnormalised.
What a sentence takes is the difference between a long and a short text, so that starting Python and
loading the model is not in it, nor for fairseq-eval-lm the binarising. Times are those of the
processes: by the clock, and of the processor, which other processes lengthen less.

FOLDER gets scoring.md and scoring.json, and data, model and logs, which a second call does not make
again.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from experiments import command, machine, processes, sentences, tables
from experiments.recipes import words
from experiments.run import HERE, device_flags, find_device, make_data
from experiments.tables import MIB
from rendering import scoring

_RECIPE = tables.load("recipes")["scoring"]
# By name: whether it is fairseq-eval-lm, and whether it is exact.
_SYSTEMS = {
    "fairseq-bnce score": (False, False),
    "fairseq-eval-lm --unnormalized": (True, False),
    "fairseq-bnce score --exact": (False, True),
    "fairseq-eval-lm": (True, True),
}


@dataclass(frozen=True)
class Speed:
    """What a system was measured at: a short and a long text.

    Attributes:
        system: the command.
        sentences, tokens: of both texts.
        seconds, cpu_seconds: of both, the least of all repetitions.
    """

    system: str
    sentences: Tuple[int, ...]
    tokens: Tuple[int, ...]
    seconds: Tuple[float, float]
    cpu_seconds: Tuple[float, float]


class Bench:
    """Makes what is missing, and measures.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace):
        self.options, self.out, self.threads = options, options.out, options.threads
        self.device = find_device(options)
        self.flags = device_flags(self.device["device"])
        tokens = options.tokens[1]
        model = f"model-{options.arch}-{options.size}-{options.vocab}-{tokens}"
        self.checkpoint = self.out / model / "checkpoint_last.pt"
        data = self._data(tokens)
        flags = words([_RECIPE["models"][options.arch].format(d=options.size), _RECIPE["training"]])
        flags += tuple(self.flags)
        sentences.train(data, self.checkpoint, flags, self.out / "training.log", self.threads)

    def speeds(self) -> List[Speed]:
        found = []
        for system, (is_eval_lm, is_exact) in _SYSTEMS.items():
            sizes = self.options.exact_tokens if is_exact else self.options.tokens
            ends = [self._least(self._command(is_eval_lm, is_exact, size)) for size in sizes]
            lines = tuple(_lines(self._text(size)) for size in sizes)
            times = zip(*ends)
            found.append(Speed(system, lines, tuple(sizes), *times))
            command.say(f"{system}: {found[-1].seconds[1]:.1f} s")
        return found

    def memory(self) -> Dict[int, Dict[str, float]]:
        """Peak memory and time by number of lines."""
        found = {}
        for lines in self.options.memory_lines:
            text = self.out / f"text-{lines}.txt"
            _repeat(self._text(self.options.tokens[0]), text, lines)
            ended = self._run(self._score(text))
            found[lines] = {"peak_mib": ended.peak_bytes / MIB, "seconds": ended.seconds}
            command.say(
                f"{lines:,} lines: {found[lines]['peak_mib']:.0f} MiB, {ended.seconds:.0f} s"
            )
        return found

    def _command(self, is_eval_lm: bool, is_exact: bool, tokens: int) -> List[str]:
        if not is_eval_lm:
            return [*self._score(self._text(tokens)), *(["--exact"] if is_exact else [])]
        way = [*self.flags, *([] if is_exact else ["--unnormalized"])]
        return sentences.eval_lm(self._data(tokens), self.checkpoint, "train", *way)

    def _score(self, text: Path) -> List[str]:
        places = ["--path", str(self.checkpoint), "--device", self.device["device"]]
        places += ["--per-word", str(text)]
        return [sys.executable, str(HERE.parent / "fairseq-bnce"), "score", *places]

    def _least(self, command: Sequence[str]) -> Tuple[float, float]:
        """Seconds, and seconds of processor time: a busy machine makes both longer, never less."""
        ended = [self._run(command) for _ in range(self.options.repeats)]
        return min(end.seconds for end in ended), min(end.cpu_seconds for end in ended)

    def _run(self, command: Sequence[str]) -> processes.Ended:
        """With what it prints on standard output thrown away."""
        return processes.run(command, self.out / "runs.log", self.threads, Path(os.devnull))

    def _data(self, tokens: int) -> Path:
        vocab, log = self.options.vocab, self.out / "data.log"
        folder = self.out / f"data-{vocab}-{tokens}"
        return make_data(folder, log, self.threads, vocab=vocab, tokens=tokens)

    def _text(self, tokens: int) -> Path:
        text = self.out / f"text-{self.options.vocab}-{tokens}-tokens.txt"
        data, log = self._data(tokens), self.out / "data.log"
        return sentences.write_text(data, "train", text, log, self.threads)


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 2 for what can't be done, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    return command.status(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> int:
    bench = Bench(options)
    _write(bench.speeds(), bench.memory(), options, bench.device)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--arch", choices=sorted(_RECIPE["models"]), default="lstm_lm")
    add("--size", type=int, default=200, help="of its layers (default: %(default)s)")
    add("--vocab", type=int, default=50_000, help="types (default: %(default)s)")
    sizes: Dict[str, Any] = {"type": int, "nargs": 2, "metavar": ("SHORT", "LONG")}
    about = "of the texts that are scored {} (default: %(default)s)"
    add("--tokens", default=[100_000, 600_000], help=about.format("unnormalised"), **sizes)
    add("--exact-tokens", default=[10_000, 40_000], help=about.format("exactly"), **sizes)
    add("--memory-lines", type=int, nargs="*", default=[10_000, 100_000], metavar="LINES")
    command.add_device(parser)
    add("--repeats", type=int, default=2, help="of each, the fastest counts (default: 2)")
    return parser


def _lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _repeat(source: Path, target: Path, lines: int) -> None:
    """The lines of a text over and over, the first three words of each."""
    with source.open("rb") as stream:
        short = [b" ".join(line.split()[:3]) + b"\n" for line in stream]
    with target.open("wb") as stream:
        for start in range(0, lines, len(short)):
            stream.writelines(short[: lines - start])


def _write(
    speeds: Sequence[Speed],
    memory: Dict[int, Dict[str, float]],
    options: argparse.Namespace,
    device: Dict[str, str],
) -> None:
    where = {**machine.record(), **device, "load": os.getloadavg()}
    flags = {name: str(value) for name, value in vars(options).items() if name != "out"}
    found = {"flags": flags, "machine": where, "memory": memory}
    found["speeds"] = [asdict(speed) for speed in speeds]
    made = [[f"{options.arch}, V = {options.vocab:,}: {where}"]]
    made += [scoring.speeds(found), scoring.memory(found)]
    tables.write(options.out / "scoring", ["\n".join(lines) for lines in made], found)
    print((options.out / "scoring.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    command.start(main)
