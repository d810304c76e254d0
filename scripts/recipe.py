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

import itertools
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

import environment  # noqa: F401
import yaml  # a dependency of omegaconf, which fairseq needs
from experiments import command, comparison, recipes, report, run, training
from experiments.recipes import Recipe, Variant, words
from rendering.cells import Columns, measured, values

_FOLDER = Path(__file__).with_name("recipes")


class Row(NamedTuple):
    """A system: all its flags that other rows lack, and the paper's numbers by name."""

    variant: Variant
    paper: Mapping[str, float]


class Table(NamedTuple):
    """A table of a paper.

    Attributes:
        title: paper and table.
        corpus: arguments of fairseq-bnce get-data for the data.
        regime: flags that all rows share.
        rows: to train.
        columns: measurements; the paper's value stands beside ours.
        about: what the paper says and what is a guess, with sources.
    """

    title: str
    corpus: str
    regime: Recipe
    rows: Sequence[Row]
    columns: Columns
    about: str


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed."""
    own, flags = training.split(arguments)
    known = all_tables()
    if own == ["--list"]:
        for name, table in known.items():
            print(f"{name}: {table.title}\n  data: fairseq-bnce get-data {table.corpus}")
            print("  rows:", *(row.variant.label for row in table.rows))
        return 0
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("table", choices=known, metavar="TABLE", help="one of those that --list names")
    add("--data", type=Path, required=True, help="binarised folder with train, valid and test")
    add("--rows", nargs="+", metavar="LABEL", help="rows to train (default: all)")
    training.add_questions(parser)
    add("--seed", type=int, default=1)
    options = parser.parse_args(own)
    name, table = options.table, known[options.table]
    variants = {row.variant.label: row.variant for row in table.rows}
    chosen = options.rows or list(variants)
    if not set(chosen) <= set(variants):
        parser.error(f"--rows: required some of {', '.join(variants)}, got {' '.join(chosen)}")
    parts = {"only_train": False, "profile_batches": 0}
    settings = training.settings(options, recipe=table.regime, training=flags, **parts)
    runs = [training.Training(settings, variants[label], options.seed) for label in chosen]
    return run.complete_all(runs, lambda done: write(name, table, done, settings))


def all_tables() -> Dict[str, Table]:
    """Return every table of recipes/ by its name."""
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in _FOLDER.glob("*.yaml")}
    columns, found = files.pop("columns"), {}
    for paper in files.values():
        shared = paper["corpus"], recipes.recipe(**paper["regime"])
        for name, own in paper["tables"].items():
            shown = [(columns[one][0], one, columns[one][1]) for one in own["columns"]]
            about = (paper["about"] + own.get("more", "")).strip()
            found[name] = Table(own["title"], *shared, _rows(paper, own), shown, about)
    return dict(sorted(found.items()))


def _rows(paper: Dict[str, Any], own: Dict[str, Any]) -> List[Row]:
    """Return the rows model by model; labels are METHOD-MODEL or METHOD."""
    methods = own.get("methods") or paper["methods"]
    if not isinstance(methods, dict):
        methods = {name: paper["methods"][name] for name in methods}
    known: Dict[str, Dict[str, float]] = {}
    for block in paper.get("paper", []):
        for label, figures in block["rows"].items():
            known.setdefault(label, {}).update(zip(block["columns"], figures))
    found = []
    for model, method in itertools.product(paper.get("models", {"": ""}).items(), methods):
        label = f"{method}-{model[0]}" if model[0] else method
        criterion, *flags = words(methods[method])
        variant = Variant(label, criterion, (*words(model[1]), *flags))
        found.append(Row(variant, known.get(label, {})))
    return found


def write(name: str, table: Table, outcomes: Sequence[run.Outcome], settings: Any) -> str:
    """Write ``NAME.md`` and ``NAME.json``, with all rows, and return the former."""
    by_label = {outcome.system.label: outcome for outcome in outcomes}
    content = {
        "title": table.title,
        "flags": [*table.regime.training, *settings.training],
        **comparison.where(settings),
        "rows": [_row(row, by_label) for row in table.rows],
    }
    shown = "\n".join(_beside(table.columns, content["rows"]))
    parts = [f"# {table.title}", shown, table.about, *run.failures(outcomes)]
    return report.write(settings.out / name, parts, content)


def _beside(columns: Columns, rows: Sequence[Any]) -> List[str]:
    """Return a table of our numbers beside the paper's, without columns that have no number."""
    shown = []
    for title, name, form in columns:
        if values(rows, f"ours/{name}"):
            paper = ("paper", f"paper/{name}", "")
            shown += [(title, f"ours/{name}", form), *[paper] * bool(values(rows, paper[1]))]
    return measured([""], shown, (([f"`{row['label']}`"], row) for row in rows))


def _row(row: Row, outcomes: Mapping[str, run.Outcome]) -> Dict[str, Any]:
    """Return the row's measurements and the paper's, and the run."""
    shown = {**row.variant._asdict(), "paper": dict(row.paper), "ours": None}
    outcome = outcomes.get(row.variant.label)
    if outcome is None:
        return shown
    if outcome.error:
        return {**shown, "failed": outcome.error}
    train = {key: outcome.parts["train"][key] for key in ("hardware", "date", "plugin", "curve")}
    ours = comparison.measurements(outcome.parts)
    return {**shown, "ours": ours, "seed": outcome.case, **train}


if __name__ == "__main__":
    command.start(main)
