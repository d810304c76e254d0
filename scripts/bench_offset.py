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

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from experiments import command, machine, tables
from experiments.command import UsageError
from rendering import scoring

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.errors import InputError
from fairseq_bnce.scoring import reduction
from fairseq_bnce.scoring.diagnosis import DiagnosingScorer, Diagnosis, fit_offset, summary
from fairseq_bnce.text.reading import sampled


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 2 after an error, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    return command.status(lambda: _measure(options))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="NAME=CHECKPOINT", help="with dict.txt beside it, or --data")
    add("--data", metavar="FOLDER", help="with the dict.txt of the models")
    add("--fit", type=Path, required=True, metavar="FILE", help="text to fit to")
    add("--text", type=Path, required=True, metavar="FILE", help="text to measure on")
    add(
        "--shift",
        type=Path,
        metavar="FILE",
        help="text whose mean, over all of it, gives one more perplexity",
    )
    add("--contexts", type=command.positive, default=100_000, help="of FILE (default: %(default)s)")
    add("--lines", type=command.positive, default=1000, help="of the text (default: %(default)s)")
    rows: Dict[str, Any] = {"type": command.positive, "nargs": "+", "default": [50, 100, 200, 500]}
    add("--rows", **rows, metavar="K", help="(default: 50 100 200 500)")
    return parser


def _measure(options: argparse.Namespace) -> int:
    models = dict(model.partition("=")[::2] for model in options.models)
    try:
        with options.fit.open(encoding="utf-8") as text:
            drawn = sampled(map(str.strip, text), options.contexts)
        shift = [] if options.shift is None else _lines(options.shift)
        texts = _Texts(drawn, shift, _lines(options.text, options.lines))
        found = {name: _model(path, texts, options) for name, path in models.items()}
    except (InputError, ValueError) as error:  # of a checkpoint
        raise UsageError(str(error)) from None
    flags = {name: str(getattr(value, "name", value)) for name, value in vars(options).items()}
    flags = {name: value for name, value in flags.items() if name not in ("models", "data", "out")}
    result = {"machine": machine.record(), "flags": flags, "models": found}
    options.out.mkdir(parents=True, exist_ok=True)
    table = "\n".join(scoring.offsets(result))
    tables.write(options.out / "offset", [table], result)
    print(table)
    return 0


class _Texts(NamedTuple):
    """Lines to fit to, lines for another mean (may be empty), and lines to measure on."""

    fit: Sequence[str]
    shift: Sequence[str]
    measure: Sequence[str]


def _lines(path: Path, count: Optional[int] = None) -> List[str]:
    """Return the first lines of a text, or all."""
    with path.open(encoding="utf-8") as lines:
        return [line.strip() for line in itertools.islice(lines, count)]


def _model(path: str, texts: _Texts, options: argparse.Namespace) -> Dict[str, Any]:
    fitting = DiagnosingScorer(_trained(path, options, {}), exact=True)
    fitting.contexts = contexts = reduction.Contexts(options.contexts)
    for _ in fitting.score_stream(texts.fit):
        pass
    mean = contexts.parts()[1][1].mean().item()
    states: Dict[int, Dict[str, Any]] = {0: {"mu_z": mean - fitting.log_z}}
    for rows in options.rows:
        reduced, measured = fit_offset(fitting, contexts, rows)
        states[rows] = {"mu_z": measured["mu_z"], **reduced.state()}
    ways = [{"rows": rows, **_way(path, options, state, texts)} for rows, state in states.items()]
    exact = Scorer(_trained(path, options, {}), exact=True)
    speed = _speed(exact, texts.measure)
    return {"words": len(fitting.dictionary), "exact_speed": speed, "ways": ways}


def _way(
    path: str, options: argparse.Namespace, state: Dict[str, Any], texts: _Texts
) -> Dict[str, float]:
    numbers = _summary(path, options, state, texts.measure)
    found = {name: numbers[name] for name in ("sigma_z", "lowest", "highest", "ppl")}
    found["mu_z"] = numbers["mu_z"] - state["mu_z"]
    found["u_ppl"] = numbers["u_ppl"] * math.exp(state["mu_z"])
    if texts.shift:
        mean = _summary(path, options, state, texts.shift)["mu_z"]
        found["u_ppl_other_mean"] = numbers["u_ppl"] * math.exp(mean)
    found["speed"] = _speed(Scorer(_trained(path, options, state)), texts.measure)
    return found


def _summary(
    path: str, options: argparse.Namespace, state: Dict[str, Any], lines: Sequence[str]
) -> Dict[str, float]:
    diagnosis = Diagnosis(worst=0)
    scorer = DiagnosingScorer(_trained(path, options, state), exact=True)
    for _ in diagnosis.fill(scorer, lines):
        pass
    return summary(diagnosis.measures)


def _trained(
    path: str, options: argparse.Namespace, state: Mapping[str, Any]
) -> checkpoints.Trained:
    """Load a model, which a scorer changes, with the rows of ``state`` only."""
    trained = checkpoints.load(path, options.data)
    return trained._replace(state={**reduction.without(trained.state), **state})


def _speed(scorer: Scorer, lines: Sequence[str]) -> float:
    """Return tokens per processor second, the best of three."""
    times, tokens = [], 0
    for _ in range(3):
        start = time.process_time()
        tokens = sum(len(score.words) for score in scorer.score_stream(lines))
        times.append(time.process_time() - start)
    return tokens / min(times)


if __name__ == "__main__":
    command.start(main)
