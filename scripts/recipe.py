#!/usr/bin/env python3
"""Train a table of a paper, or rows of it, and put the paper's numbers beside ours.

    recipe.py --list
    recipe.py gm2018_table1 --data ptb/bin --out gm2018
    recipe.py gm2018_table1 --data ptb/bin --out gm2018 --rows nce-30 softmax-30
    recipe.py gm2018_table1 --data ptb/bin --out small -- --max-epoch 1

DATA is what fairseq-bnce get-data makes of the table's corpus. What follows a lone ``--`` are
flags of fairseq-train for all rows; they override the recipe's, and make other runs of them.

OUT gets TABLE.md, TABLE.json and runs/ with every run's logs and checkpoints. Tables that share
rows share their runs in one OUT.
A second call trains nothing that is finished. An interrupted training starts again. The
tables have the rows of the last call. A run that dies is named below the table; the others are
still run, and the exit status is 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Sequence

import environment  # noqa: F401
from experiments import command, papers, run, training
from experiments.command import UsageError
from experiments.training import Training


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed."""
    own, flags = training.split(arguments)
    options = _parser().parse_args(own)
    known = papers.all_tables()
    if options.list:
        for name, table in known.items():
            print(f"{name}: {table.title}\n  data: fairseq-bnce get-data {table.corpus}")
            print("  rows:", *(row.variant.label for row in table.rows))
        return 0
    name = options.table
    if name not in known or None in (options.data, options.out):
        raise UsageError(f"required --data, --out and one of {', '.join(known)}, got {name!r}")
    table = known[name]
    variants = {row.variant.label: row.variant for row in table.rows}
    chosen = options.rows or list(variants)
    if not set(chosen) <= set(variants):
        raise UsageError(f"--rows: required some of {', '.join(variants)}, got {' '.join(chosen)}")
    parts = {"only_train": False, "profile_batches": 0}
    settings = training.settings(options, recipe=table.regime, training=flags, **parts)
    runs = [Training(settings, variants[label], options.seed) for label in chosen]
    return run.complete_all(runs, lambda done: papers.write(name, table, done, settings))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True, required=False)
    add = parser.add_argument
    add("table", nargs="?", help="one of those that --list names")
    add("--list", action="store_true", help="list the tables, their corpora and rows")
    add("--data", type=Path, help="binarised folder with train, valid and test")
    add("--rows", nargs="+", metavar="LABEL", help="rows to train (default: all)")
    training.add_questions(parser)
    add("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    command.start(main)
