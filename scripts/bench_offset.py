#!/usr/bin/env python3
"""Measure what `fairseq-bnce diagnose --reduced-partition` does: by rows, how close and how fast.

    bench_offset.py NAME=CHECKPOINT ... --out OUT --fit train.txt \\
        --text test.txt

Partition functions of several numbers of rows are fitted to contexts drawn from all of one text,
and used on another, a sentence a sample: mean and standard deviation of log Z_c less what they say,
perplexities of scores without a softmax and of exact ones, and tokens scored in a second of the
processor's time, as Scorer.score_stream does it. A model without rows is scored less one constant,
the mean of log Z_c over the contexts that the others are measured on. With --shift there is one
more perplexity, of scores less the mean over that text in the place of the mean over --fit's:
log Z_c differs on text that a model was trained on.

OUT gets offset.md and offset.json. The texts have words separated by spaces.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import environment  # noqa: F401
import torch
from experiments import command, machine, report
from rendering import scoring

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.scoring import reduction
from fairseq_bnce.scoring.diagnosis import Diagnosis, fit_offset, measuring, summary
from fairseq_bnce.text.reading import sampled

State = Mapping[str, Any]
Load = Callable[[State], checkpoints.Trained]


def main(arguments: Sequence[str]) -> int:
    """Measure all models, and return 0."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    found = {}
    for name, path in (model.partition("=")[::2] for model in options.models):
        found[name] = _model(partial(_trained, path, options.data), options)
    left_out = ("models", "data", "out")
    flags = {name: str(one) for name, one in vars(options).items() if name not in left_out}
    result = {"machine": machine.record(), "flags": flags, "models": found}
    options.out.mkdir(parents=True, exist_ok=True)
    table = "\n".join(scoring.offsets(result))
    print(report.write(options.out / "offset", [table], result))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="NAME=CHECKPOINT", help="with dict.txt beside it, or --data")
    add("--data", metavar="FOLDER", help="with the dict.txt of the models")
    add("--fit", type=Path, required=True, metavar="FILE", help="text to fit to")
    add("--text", type=Path, required=True, metavar="FILE", help="text to measure on")
    add("--shift", type=Path, metavar="FILE", help="text for one more perplexity, by its mean")
    add("--contexts", type=int, default=100_000, help="of the text to fit to")
    add("--lines", type=int, default=1000, help="of the text to measure on")
    add("--rows", type=int, nargs="+", default=[50, 100, 200, 500], metavar="K")
    return parser


def _lines(path: Path, count: Optional[int] = None) -> List[str]:
    """Return the first lines of a text, or all."""
    with path.open(encoding="utf-8") as lines:
        return [line.strip() for line in itertools.islice(lines, count)]


def _trained(path: str, data: Optional[str], state: State) -> checkpoints.Trained:
    """Load a model, which a scorer changes, with the rows of ``state`` only."""
    trained = checkpoints.load(path, data)
    trained.state.reduced_partition = None
    trained.state.entries.update(state)
    return trained


def _model(load: Load, options: argparse.Namespace) -> Dict[str, Any]:
    fitting, contexts = Scorer(load({}), exact=True), reduction.Contexts(options.contexts)
    measuring(fitting, contexts).score_words(
        sampled(_lines(options.fit), options.contexts), tokenized=True
    )
    mean = contexts.parts()[1][1].mean().item()
    states: Dict[int, Dict[str, Any]] = {0: {"mu_z": mean - fitting.log_z}}
    for rows in options.rows:
        reduced, measured = fit_offset(fitting, contexts, rows)
        states[rows] = {"mu_z": measured["mu_z"], "reduced_partition": reduced._asdict()}
    ways = [{"rows": rows, **_way(load, options, state)} for rows, state in states.items()]
    speed = _speed(Scorer(load({}), exact=True), _lines(options.text, options.lines))
    return {"words": len(fitting.dictionary), "exact_speed": speed, "ways": ways}


def _way(load: Load, options: argparse.Namespace, state: State) -> Dict[str, float]:
    lines = _lines(options.text, options.lines)
    numbers = _summary(load(state), lines)
    found = {name: numbers[name] for name in ("sigma_z", "ppl")}
    found["u_ppl"] = numbers["u_ppl"] * math.exp(state["mu_z"])
    if options.shift is not None:
        mean = _summary(load(state), _lines(options.shift))["mu_z"]
        found["u_ppl_other_mean"] = numbers["u_ppl"] * math.exp(mean)
    found["speed"] = _speed(Scorer(load(state)), lines)
    return found


def _summary(trained: checkpoints.Trained, lines: Sequence[str]) -> Dict[str, float]:
    diagnosis = Diagnosis(worst=0)
    list(diagnosis.fill(Scorer(trained, exact=True), lines))
    return summary(diagnosis.measures)


def _speed(scorer: Scorer, lines: Sequence[str]) -> float:
    """Return tokens per processor second, the best of three."""
    times, tokens = [], 0
    for _ in range(3):
        start = time.process_time()
        tokens = sum(len(score.words) for score in scorer.score_stream(lines, tokenized=True))
        times.append(time.process_time() - start)
    return tokens / min(times)


if __name__ == "__main__":
    command.start(main)
