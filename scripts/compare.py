#!/usr/bin/env python3
"""Train several criteria with one recipe on one corpus, and compare what comes out.

    compare.py DATA --out FOLDER
    compare.py DATA --out FOLDER --seeds 1 2 3 -- --max-epoch 5
    compare.py DATA --out FOLDER --criteria bnce nce300=shared_nce \\
        --flags-for nce300 "--noise-samples 300"
    compare.py DATA --out FOLDER --recipe adagrad200 --only-train \\
        --criteria adaptive=adaptive_loss bnce --learning-rates 0.025 0.05 0.1 \\
        --flags-for bnce \\
        "--row-sparse --optimizer sparse_adagrad --warmup-updates 100"

DATA is a folder that fairseq-preprocess --only-source made of train, valid and test. What follows
a lone ``--`` are flags of fairseq-train for all criteria; they override the recipe's.

FOLDER gets comparison.md (tables), comparison.json (all of it, training curves too),
validation.png (validation perplexity against training time; needs matplotlib) and runs/, with
every run's logs and checkpoints. The runs come one after the other, on the GPU or with
``--threads`` threads on the CPU, and nothing else should be busy meanwhile. A second call trains
nothing that is finished, goes on with what was interrupted, and trains what its recipe, data,
threads, GPU or versions make a new run. An interrupted training starts from its last checkpoint:
fairseq saves one after each epoch, and within one if it is given (after the lone ``--``)
``--save-interval-updates N --keep-interval-updates 1``. A run that dies is a row of the tables that
says why; the others are still run, and the exit status is 1.

Words/s come from fairseq's own train_inner log lines: targets over time, summed over the intervals
that lie past the first 100 updates after a start and hold no validation; where a run is too short
to have one, over all of them, which the report says. Processor time is user and system time of the
training process; like training time it leaves out start-up, validation and saving.

adaptive_loss, fairseq's adaptive softmax, gets cutoffs by the size of the vocabulary (2,000 and
10,000 words of 52,595 types) and the --ddp-backend that it insists on. It and cross_entropy are
scored as fairseq scores them: exactly, and in no other way.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import math
import shlex
from pathlib import Path
from typing import Any, List, Sequence

from experiments import command, comparison, machine, plot, recipes, run
from experiments.run import Outcome
from experiments.training import Training


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed, 2 after an error, 130 if interrupted."""
    own, training = command.split(arguments)
    options = _parser().parse_args(own)
    return command.status(lambda: _run_all(options, training))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True)
    add = parser.add_argument
    add("data", type=Path, help="binarised folder with train, valid and test")
    add("--recipe", choices=sorted(recipes.RECIPES), default="lstm200")
    add(
        "--criteria",
        nargs="+",
        default=list(recipes.DEFAULT_CRITERIA),
        metavar="[LABEL=]NAME",
        help="criteria to train; a label tells several variants of a criterion apart "
        "(default: %(default)s)",
    )
    add(
        "--flags-for",
        nargs=2,
        action="append",
        default=[],
        metavar=("LABEL", "FLAGS"),
        help="flags of fairseq-train for one variant, in one argument; put a space before a single "
        "flag: ' --row-sparse'",
    )
    about = "train each variant with each of these, as LABEL@LR"
    add("--learning-rates", nargs="+", default=[], metavar="LR", help=about)
    add("--seeds", nargs="+", type=int, default=[1])
    add(
        "--only-train",
        action="store_true",
        help="measure nothing: report what the training logs say, with validation perplexity; the "
        "same command without this flag goes on from there",
    )
    about = "further flags of fairseq-eval-lm, in one argument"
    add("--eval-flags", type=shlex.split, default=[], metavar="FLAGS", help=about)
    command.add_questions(parser)
    about = "batches for timing the parts of an update; 0 for no profile"
    add("--profile-batches", type=int, default=50, help=about)
    return parser


def _run_all(options: argparse.Namespace, training: List[str]) -> int:
    flags_for = [(label, shlex.split(flags)) for label, flags in options.flags_for]
    variants = recipes.grid(recipes.variants(options.criteria, flags_for), options.learning_rates)
    own = {
        "data": options.data.resolve(),
        "fingerprint": machine.data_fingerprint(options.data),
        "questions": command.questions(options),
        "recipe": recipes.RECIPES[options.recipe],
        "training": training,
        "scoring": options.eval_flags,
    }
    settings = run.prepare(options, **own)
    seeds = list(dict.fromkeys(options.seeds))
    runs = [Training(settings, *one) for one in recipes.order(variants, seeds)]
    report = settings.out / "comparison.md"
    found = run.complete_all(runs, lambda done: comparison.write(done, settings), report)
    print(_draw(found, settings))
    return 1 if any(outcome.errors for outcome in found) else 0


def _draw(found: Sequence[Outcome], settings: Any) -> str:
    """Draw validation perplexity against training time, a line for each run."""
    curves = []
    for o in found:
        curve = o.parts["train"]["curve"] if o.parts else []
        points = [(point.get("seconds"), point.get("ppl")) for point in curve]
        known = [(t, p) for t, p in points if None not in (t, p) and math.isfinite(p)]
        curves.append((o.system.label, known))
    axes = {"xlabel": "training time, validation left out (s)", "yscale": "log"}
    axes["ylabel"] = "validation perplexity (exact)"
    title = f"{settings.recipe.name} on {settings.data.name}"
    return plot.lines([plot.Panel(curves, axes)], title, settings.out / "validation.png")


if __name__ == "__main__":
    command.start(main)
