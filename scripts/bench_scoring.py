#!/usr/bin/env python3
"""Measure how fast plain text is scored, and in how much memory.

    bench_scoring.py --out FOLDER
    bench_scoring.py --out FOLDER --vocab 50000 --arch rnn_lm --memory-lines 10000 1000000

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
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from experiments import machine, processes
from experiments.command import UsageError

_HERE = Path(__file__).resolve().parent
_PLUGIN = str(_HERE.parent / "fairseq_bnce")
_COMMAND = str(_HERE / "fairseq-bnce")
# Longer than any sentence of the data, whose lengths are geometrically distributed about 20.
_LONGEST = "400"
_MODELS = {
    "lstm_lm": "--arch lstm_lm --decoder-layers 2 --decoder-embed-dim {d} "
    "--decoder-hidden-size {d} --decoder-out-embed-dim {d}",
    "rnn_lm": "--arch rnn_lm --decoder-layers 2 --decoder-embed-dim {d}",
    "ffnn_lm": "--arch ffnn_lm_ltcb --decoder-embed-dim {d} --decoder-output-dim {d}",
}
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
    sentences: Tuple[int, int]
    tokens: Tuple[int, int]
    seconds: Tuple[float, float]
    cpu_seconds: Tuple[float, float]

    def rate(self, of: str = "sentences", by: str = "seconds") -> float:
        """Sentences or tokens a second, by what the longer text took more."""
        (less, more), (short, long) = getattr(self, of), getattr(self, by)
        return (more - less) / max(long - short, 1e-9)


class Bench:
    """Makes what is missing, and measures.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace):
        self.options, self.out = options, options.out
        self.checkpoint = self.out / f"model-{options.arch}" / "checkpoint_last.pt"

    def speeds(self) -> List[Speed]:
        found = []
        for system, (is_eval_lm, is_exact) in _SYSTEMS.items():
            sizes = self.options.exact_tokens if is_exact else self.options.tokens
            self._train(self._data(sizes[1]))
            ends = [self._least(self._command(is_eval_lm, is_exact, size)) for size in sizes]
            found.append(
                Speed(
                    system,
                    tuple(_lines(self._text(size)) for size in sizes),
                    tuple(sizes),
                    tuple(end.seconds for end in ends),
                    tuple(end.cpu_seconds for end in ends),
                )
            )
            say(f"{system}: {found[-1].rate():,.0f} sentences/s")
        return found

    def memory(self) -> Dict[int, Dict[str, float]]:
        """Peak memory and time by number of lines."""
        found = {}
        self._train(self._data(self.options.tokens[1]))
        for lines in self.options.memory_lines:
            text = self.out / f"text-{lines}.txt"
            _repeat(self._text(self.options.tokens[0]), text, lines)
            ended = self._run(self._score(text))
            found[lines] = {"peak_mib": ended.peak_bytes / 2**20, "seconds": ended.seconds}
            say(f"{lines:,} lines: {found[lines]['peak_mib']:.0f} MiB, {ended.seconds:.0f} s")
        return found

    def _command(self, is_eval_lm: bool, is_exact: bool, tokens: int) -> List[str]:
        if not is_eval_lm:
            return [*self._score(self._text(tokens)), *(["--exact"] if is_exact else [])]
        command = [sys.executable, "-m", "fairseq_cli.eval_lm", str(self._data(tokens))]
        command += ["--user-dir", _PLUGIN, "--path", str(self.checkpoint), "--gen-subset", "train"]
        command += ["--sample-break-mode", "eos", "--tokens-per-sample", _LONGEST, "--cpu"]
        command += ["--no-progress-bar", "--num-workers", "0", "--output-word-probs"]
        return command if is_exact else [*command, "--unnormalized"]

    def _score(self, text: Path) -> List[str]:
        command = [sys.executable, _COMMAND, "score", "--path", str(self.checkpoint), "--per-word"]
        return [*command, str(text)]

    def _least(self, command: Sequence[str]) -> processes.Ended:
        ended = [self._run(command) for _ in range(self.options.repeats)]
        return min(ended, key=lambda end: end.seconds)

    def _run(self, command: Sequence[str]) -> processes.Ended:
        """With what it prints on standard output thrown away."""
        quiet = ["sh", "-c", 'exec "$0" "$@" > /dev/null', *command]
        return processes.run(quiet, self.out / "runs.log", self.options.threads)

    def _data(self, tokens: int) -> Path:
        folder = self.out / f"data-{self.options.vocab}-{tokens}"
        if not folder.is_dir():
            command = [sys.executable, str(_HERE / "experiments" / "data.py"), "--out", str(folder)]
            command += ["--vocab", str(self.options.vocab), "--tokens", str(tokens)]
            processes.run(command, self.out / "data.log", self.options.threads)
        return folder

    def _text(self, tokens: int) -> Path:
        text = self.out / f"text-{self.options.vocab}-{tokens}-tokens.txt"
        if not text.is_file():
            command = [sys.executable, str(_HERE / "experiments" / "as_text.py")]
            command += [str(self._data(tokens)), "train", str(text)]
            processes.run(command, self.out / "data.log", self.options.threads)
        return text

    def _train(self, data: Path) -> None:
        """Two updates: how fast a model scores does not depend on what it has learned."""
        if self.checkpoint.is_file():
            return
        say(f"training {self.options.arch} for a moment")
        command = [sys.executable, "-m", "fairseq_cli.train", str(data), "--user-dir", _PLUGIN]
        command += ["--task", "language_modeling", "--save-dir", str(self.checkpoint.parent)]
        command += _MODELS[self.options.arch].format(d=self.options.size).split()
        command += ["--sample-break-mode", "eos", "--tokens-per-sample", _LONGEST, "--cpu"]
        command += ["--criterion", "bnce", "--optimizer", "sgd", "--lr", "1", "--batch-size", "20"]
        command += ["--max-update", "2", "--no-epoch-checkpoints", "--no-progress-bar"]
        command += ["--valid-partition-rate", "0.1", "--num-workers", "0"]
        processes.run(command, self.out / "training.log", self.options.threads)


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 2 for what can't be done, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        machine.check_fairseq()
        options.out.mkdir(parents=True, exist_ok=True)
        bench = Bench(options)
        _write(bench.speeds(), bench.memory(), options)
    except (UsageError, processes.CommandFailed) as error:
        print(f"bench_scoring.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"bench_scoring.py: {message}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for results, data and logs")
    add("--arch", choices=sorted(_MODELS), default="lstm_lm")
    add("--size", type=int, default=200, help="of its layers (default: %(default)s)")
    add("--vocab", type=int, default=50_000, help="types (default: %(default)s)")
    for name, default in (("tokens", [100_000, 600_000]), ("exact-tokens", [10_000, 40_000])):
        add(
            f"--{name}",
            type=int,
            nargs=2,
            default=default,
            metavar=("SHORT", "LONG"),
            help=f"of the texts that are scored {'exactly' if 'exact' in name else 'unnormalised'}"
            " (default: %(default)s)",
        )
    add("--memory-lines", type=int, nargs="*", default=[10_000, 100_000], metavar="LINES")
    add("--repeats", type=int, default=2, help="of each, the fastest counts (default: 2)")
    add("--threads", type=int, default=1, help="OMP_NUM_THREADS (default: 1)")
    return parser


def _lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _repeat(source: Path, target: Path, lines: int) -> None:
    """The lines of a text over and over, the first three words of each."""
    short = [b" ".join(line.split()[:3]) + b"\n" for line in source.open("rb")]
    with target.open("wb") as stream:
        for start in range(0, lines, len(short)):
            stream.writelines(short[: lines - start])


def _write(
    speeds: Sequence[Speed], memory: Dict[int, Dict[str, float]], options: argparse.Namespace
) -> None:
    where = {**machine.versions(), **machine.hardware(), "load": os.getloadavg()}
    flags = {name: str(value) for name, value in vars(options).items() if name != "out"}
    rates = {"speeds": [asdict(speed) for speed in speeds], "memory": memory}
    content = json.dumps({"flags": flags, "machine": where, **rates}, indent=1)
    (options.out / "scoring.json").write_text(content + "\n", encoding="utf-8")
    text = _markdown(speeds, memory, f"{options.arch}, V = {options.vocab:,}: {where}")
    (options.out / "scoring.md").write_text(text, encoding="utf-8")
    print(text)


def _markdown(speeds: Sequence[Speed], memory: Dict[int, Dict[str, float]], conditions: str) -> str:
    lines = [conditions, "", "| | sentences/s | tokens/s | sentences a processor second |"]
    lines += ["|---|---:|---:|---:|"]
    for speed in speeds:
        rates = speed.rate(), speed.rate("tokens"), speed.rate(by="cpu_seconds")
        lines.append(f"| `{speed.system}` | " + " | ".join(f"{r:,.0f}" for r in rates) + " |")
    lines += ["", "| lines | peak memory MiB | seconds |", "|---:|---:|---:|"]
    lines += [f"| {n:,} | {m['peak_mib']:.0f} | {m['seconds']:.0f} |" for n, m in memory.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
