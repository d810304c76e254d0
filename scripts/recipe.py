#!/usr/bin/env python3
"""Train a table of a paper, or rows of it, and put the paper's numbers beside ours.

    recipe.py --list
    recipe.py gm2018_table1 --data ptb/bin --out gm2018
    recipe.py gm2018_table1 --data ptb/bin --out gm2018 --rows nce-30 softmax-30
    recipe.py gm2018_table1 --data ptb/bin --out small -- --max-epoch 1

DATA is what fairseq-bnce get-data makes of the table's corpus. What follows a lone ``--`` are
flags of fairseq-train for all rows; they override the recipe's, and make other runs of them.

OUT gets TABLE.md, TABLE.json, TABLE.png for a table that has a figure (needs matplotlib), and
runs/ with every run's logs and checkpoints. Tables that share rows share their runs in one OUT.
A second call trains nothing that is finished and goes on with what was interrupted, from its last
whole epoch (of the novels, from its last 10,000 updates); rows that are not asked for are in the
tables if an earlier call finished them. A run that dies is a row that says why; the others are
still run, and the exit status is 1.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
from pathlib import Path
from typing import List, Sequence

from experiments import command, machine, papers, run
from experiments.command import UsageError
from experiments.run import Outcome
from experiments.training import Training


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed, 2 after an error, 130 if interrupted."""
    own, training = command.split(arguments)
    options = _parser().parse_args(own)
    if options.list:
        for name, table in papers.all_tables().items():
            print(f"{name}: {table.title}\n  data: fairseq-bnce get-data {table.corpus}")
            print("  rows:", *(row.variant.label for row in table.rows))
        return 0
    return command.status(lambda: _run(options, training))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True, required=False)
    add = parser.add_argument
    add("table", nargs="?", help="one of those that --list names")
    add("--list", action="store_true", help="list the tables, their corpora and rows")
    add("--data", type=Path, help="binarised folder with train, valid and test")
    add("--rows", nargs="+", metavar="LABEL", help="rows to train (default: all)")
    command.add_questions(parser)
    add("--seed", type=int, default=1)
    return parser


def _run(options: argparse.Namespace, training: List[str]) -> int:
    known = papers.all_tables()
    name, table = options.table, known.get(options.table)
    if table is None:
        raise UsageError(f"table: required one of {', '.join(known)}, got {name!r}")
    if None in (options.data, options.out):
        raise UsageError("--data, --out: required both with a table")
    labels = [row.variant.label for row in table.rows]
    chosen = list(dict.fromkeys(options.rows or labels))
    if not set(chosen) <= set(labels):
        raise UsageError(f"--rows: required some of {', '.join(labels)}, got {' '.join(chosen)}")
    own = {
        "data": options.data.resolve(),
        "fingerprint": machine.data_fingerprint(options.data),
        "questions": command.questions(options),
        "recipe": table.regime,
        "training": training,
        "scoring": [],
        "only_train": False,
        "profile_batches": 0,
    }
    settings = run.prepare(options, **own)
    runs = {row.variant.label: Training(settings, row.variant, options.seed) for row in table.rows}
    rest = [one.finished() for label, one in runs.items() if label not in chosen]
    done = [outcome for outcome in rest if outcome is not None]

    def write(found: List[Outcome]) -> None:
        papers.write(name, table, [*found, *done], settings)

    wanted = [runs[label] for label in chosen]
    found = run.complete_all(wanted, write, settings.out / f"{name}.md")
    if table.is_drawn:
        print(papers.draw(table, [*found, *done], settings.out / f"{name}.png"))
    return 1 if any(outcome.errors for outcome in found) else 0


if __name__ == "__main__":
    command.start(main)
