#!/usr/bin/env python3
"""Train several criteria with one recipe on one corpus, and compare what comes out.

    compare.py DATA --out FOLDER
    compare.py DATA --out FOLDER --seeds 1 2 3 -- --max-epoch 5
    compare.py DATA --out FOLDER --criteria cross_entropy bnce nce300=shared_nce \\
        --flags-for nce300 "--noise-samples 300"
    compare.py DATA --out FOLDER --criteria adaptive_loss bnce --only-train \\
        --recipe adagrad200 --learning-rates 0.025 0.05 0.1

DATA is a folder that fairseq-preprocess --only-source made of train, valid and test. What follows
a lone ``--`` are flags of fairseq-train for all criteria; they override the recipe's.

FOLDER gets comparison.md (tables), comparison.json (all of it, training curves too),
validation.png (validation perplexity against training time; needs matplotlib) and runs/, with
every run's logs and checkpoints. The runs come one after the other, on the CPU, with
``--threads`` threads each, and nothing else should be busy meanwhile. A second call trains
nothing that is finished, goes on with what was interrupted, and trains what its recipe, data,
threads or versions make a new run. A run that dies is a row of the tables that says why; the others
are still run, and the exit status is 1.

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
import shlex
import signal
import sys
from pathlib import Path
from typing import List, Sequence, Tuple

from comparison import command, machine, plot, recipes, report, runs
from comparison.command import positive, split
from comparison.recipes import UsageError, Variant
from comparison.runs import Outcome, Run, Settings


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if a run failed, 2 for what can't be done, 130 if interrupted."""
    own, training = split(arguments)
    options = _parser().parse_args(own)
    try:
        settings, variants = _prepare(options, training)
        outcomes = _run_all(settings, recipes.order(variants, options.seeds))
    except UsageError as error:
        print(f"compare.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("compare.py: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 1 if any(outcome.error is not None for outcome in outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", type=Path, help="binarised folder with train, valid and test")
    add("--out", type=Path, required=True, help="folder for results, logs and checkpoints")
    _add_trainings(parser)
    _add_measures(parser)
    return parser


def _add_trainings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--recipe", choices=sorted(recipes.RECIPES), default="lstm200")
    add(
        "--criteria",
        nargs="+",
        default=list(recipes.DEFAULT_CRITERIA),
        metavar="[LABEL=]NAME",
        help="what to train; a label where one criterion is trained in several ways "
        "(default: %(default)s)",
    )
    add(
        "--flags-for",
        nargs=2,
        action="append",
        default=[],
        metavar=("LABEL", "FLAGS"),
        help="flags of fairseq-train for one of them alone, in one argument; a lone one with a "
        "space before it: ' --row-sparse'",
    )
    add(
        "--learning-rates",
        nargs="+",
        default=[],
        metavar="LR",
        help="train each of them with each of these, as LABEL@LR",
    )
    add("--seeds", nargs="+", type=int, default=[1])
    add("--threads", type=positive, default=1, help="OMP_NUM_THREADS (default: 1)")


def _add_measures(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--only-train",
        action="store_true",
        help="measure nothing but what the training logs tell, validation perplexity among it; "
        "the same command without it goes on from there",
    )
    add(
        "--eval-flags",
        type=shlex.split,
        default=[],
        metavar="FLAGS",
        help="further flags of fairseq-eval-lm, in one argument",
    )
    add("--questions", type=Path, metavar="CSV", help="sentence completion, for its accuracy, too")
    add("--answers", type=Path, metavar="CSV", help="the right ones")
    add(
        "--profile-batches",
        type=int,
        default=50,
        help="batches that an update's parts are timed on; 0 for no profile",
    )


def _prepare(options: argparse.Namespace, training: List[str]) -> Tuple[Settings, List[Variant]]:
    """Check all that can be checked before hours of training."""
    machine.check_fairseq()
    machine.check_data(options.data)
    recipes.refuse_own_flags(training, "after --")
    recipes.refuse_own_flags(options.eval_flags, "--eval-flags")
    if len(set(options.seeds)) < len(options.seeds):
        raise UsageError(f"--seeds: required each seed once, got {options.seeds}")
    questions = command.questions(options.questions, options.answers)
    flags_for = [(label, shlex.split(flags)) for label, flags in options.flags_for]
    variants = recipes.variants(options.criteria, flags_for)
    variants = recipes.grid(variants, options.learning_rates)
    settings = Settings(
        data=options.data.resolve(),
        fingerprint=machine.data_fingerprint(options.data),
        out=options.out.resolve(),
        plugin=machine.plugin_folder(),
        recipe=recipes.RECIPES[options.recipe],
        training=tuple(training),
        scoring=tuple(options.eval_flags),
        threads=options.threads,
        profile_batches=options.profile_batches,
        questions=questions,
        is_scored=not options.only_train,
    )
    settings.out.mkdir(parents=True, exist_ok=True)
    return settings, variants


def _run_all(settings: Settings, order: Sequence[Tuple[Variant, int]]) -> List[Outcome]:
    """Run after run; the report is written after each, so that a long comparison can be watched."""
    outcomes: List[Outcome] = []
    for outcomes in runs.outcomes([Run(settings, *one) for one in order]):
        report.write(outcomes, settings, settings.out)
    print((settings.out / "comparison.md").read_text(encoding="utf-8"))
    print(_draw(outcomes, settings))
    return outcomes


def _draw(outcomes: Sequence[Outcome], settings: Settings) -> str:
    labels = dict.fromkeys(outcome.variant.label for outcome in outcomes)
    curves = [
        (label, [o.stages["train"]["curve"] for o in outcomes if o.stages and _is(o, label)])
        for label in labels
    ]
    title = f"{settings.recipe.name} on {settings.data.name}"
    return plot.draw(curves, title, settings.out / "validation.png")


def _is(outcome: Outcome, label: str) -> bool:
    return outcome.variant.label == label


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no training is left behind
    sys.exit(main(sys.argv[1:]))
