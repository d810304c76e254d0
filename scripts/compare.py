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
a lone ``--`` are flags of fairseq-train for all criteria; they override the recipe's. A label tells
several variants of a criterion apart. Put a space before a single flag of --flags-for:
' --row-sparse'.

FOLDER gets comparison.md (tables), comparison.json (all of it, training curves too),
validation.png (validation perplexity against training time; needs matplotlib) and runs/, with
every run's logs and checkpoints. The runs come one after the other, on the GPU or with
``--threads`` threads on the CPU, and nothing else should be busy meanwhile. A second call trains
nothing that is finished, and trains what its recipe, data, threads, GPU or versions make a new run.
An interrupted training starts again. A run that dies is named below the tables; the others are
still run, and the exit status is 1.

Words/s are training targets over time past the first 100 updates, or over all if a run is shorter.
Training time leaves out start-up, validation and saving, and so does processor time: user and
system time of the training process.

adaptive_loss, fairseq's adaptive softmax, gets cutoffs by the size of the vocabulary (2,000 and
10,000 words of 52,595 types) and the --ddp-backend that it insists on. It and cross_entropy are
scored as fairseq scores them: exactly, and in no other way.
"""

from pathlib import Path
from typing import Sequence

import environment  # noqa: F401
from experiments import command, comparison, recipes, run, training

CRITERIA = ["cross_entropy", "shared_nce", "bnce", "nce_regularized"]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed."""
    own, flags = training.split(arguments)
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("data", type=Path, help="binarised folder with train, valid and test")
    add("--recipe", choices=sorted(recipes.RECIPES), default="lstm200")
    add("--criteria", nargs="+", default=CRITERIA, metavar="[LABEL=]NAME", help="to train")
    about = "flags of fairseq-train for one variant, in one argument"
    pair = ("LABEL", "FLAGS")
    add("--flags-for", nargs=2, action="append", default=[], metavar=pair, help=about)
    add("--learning-rates", nargs="+", default=[], metavar="LR", help="of each variant: LABEL@LR")
    add("--seeds", nargs="+", type=int, default=[1])
    add("--only-train", action="store_true", help="train, and report what the logs say")
    training.add_questions(parser)
    add("--profile-batches", type=int, default=50, help="updates to time; 0 for no profile")
    options = parser.parse_args(own)
    variants = recipes.variants(options.criteria, options.flags_for, options.learning_rates)
    recipe = recipes.RECIPES[options.recipe]
    settings = training.settings(options, recipe=recipe, training=flags)
    runs = [training.Training(settings, *one) for one in recipes.order(variants, options.seeds)]
    status = run.complete_all(runs, lambda done: comparison.write(done, settings))
    print(comparison.draw(settings.out / "comparison.json"))
    return status


if __name__ == "__main__":
    command.start(main)
