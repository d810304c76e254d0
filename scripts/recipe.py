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
from typing import Dict, List, Sequence

from experiments import command, machine, papers, recipes, run
from experiments.command import UsageError
from experiments.papers import Table
from experiments.run import Outcome
from experiments.training import Settings, Training


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if a run failed, 2 for what can't be done, 130 if interrupted."""
    own, training = command.split(arguments)
    options = _parser().parse_args(own)
    known = papers.all_tables()
    if options.list:
        print("\n".join(_listed(name, table) for name, table in known.items()))
        return 0
    return command.status(lambda: _run(known, options, training))


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, required=False)
    add = parser.add_argument
    add("table", nargs="?", help="one of those that --list names")
    add("--list", action="store_true", help="tables, their corpora and rows, and nothing else")
    add("--data", type=Path, help="binarised folder with train, valid and test")
    add("--rows", nargs="+", metavar="LABEL", help="rows to train (default: all)")
    command.add_questions(parser)
    command.add_device(parser)
    add("--seed", type=int, default=1)
    return parser


def _listed(name: str, table: Table) -> str:
    rows = " ".join(row.variant.label for row in table.rows)
    return f"{name}: {table.title}\n  data: fairseq-bnce get-data {table.corpus}\n  rows: {rows}"


def _run(known: Dict[str, Table], options: argparse.Namespace, training: List[str]) -> int:
    name, table = options.table, known.get(options.table)
    if table is None:
        raise UsageError(f"table: required one of {', '.join(known)}, got {name!r}")
    settings = _settings(table, options, training)
    runs = {row.variant.label: Training(settings, row.variant, options.seed) for row in table.rows}
    wanted = _wanted(runs, options.rows)
    rest = [one.finished() for one in runs.values() if one not in wanted]
    done = [outcome for outcome in rest if outcome is not None]

    def write(found: List[Outcome]) -> None:
        papers.write(name, table, [*found, *done], settings)

    found = run.complete_all(wanted, write, settings.out / f"{name}.md")
    if table.is_drawn:
        print(papers.draw(table, [*found, *done], settings.out / f"{name}.png"))
    return 1 if any(outcome.errors for outcome in found) else 0


def _settings(table: Table, options: argparse.Namespace, training: List[str]) -> Settings:
    """Check all that can be checked before hours of training."""
    for flag, value in (("--data", options.data), ("--out", options.out)):
        if value is None:
            raise UsageError(f"{flag}: required with a table, got none")
    questions = command.questions(options)
    machine.check_data(options.data)
    recipes.refuse_own_flags(training, "after --")
    data, fingerprint = options.data.resolve(), machine.data_fingerprint(options.data)
    found = {"data": data, "fingerprint": fingerprint, "questions": questions}
    own = {"recipe": table.regime, "training": training, "profile_batches": 0}
    return run.settings(Settings, options, **found, **own, **run.find_device(options))


def _wanted(runs: Dict[str, Training], labels: Sequence[str]) -> List[Training]:
    for label in labels or ():
        if label not in runs:
            raise UsageError(f"--rows: required some of {', '.join(runs)}, got {label!r}")
    return [runs[label] for label in dict.fromkeys(labels or runs)]


if __name__ == "__main__":
    command.start(main)
