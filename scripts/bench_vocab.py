#!/usr/bin/env python3
"""Measure what the size of the vocabulary costs: training, an update's time and memory.

    bench_vocab.py --out FOLDER
    bench_vocab.py --out FOLDER --vocab 10000 100000 --systems bnce_sparse
    bench_vocab.py --out FOLDER --device cuda --recipe transformer
    bench_vocab.py --out FOLDER --sentences 80   # batches unlike the recipe's

Every system is trained by fairseq-train itself on Zipf-distributed data of every vocabulary, with
the same model and batches; time and memory of an update are measured from within. NAME_sparse is
NAME with row-sparse gradients, NAME_bands the same with the bands of an adaptive softmax (recipes
of transformers only).
experiments/gpu_run.py has the output layer alone.

FOLDER gets benchmark.md (tables and the fitted exponents), benchmark.json, benchmark.png (log-log;
needs matplotlib), data/ and runs/ with every run's logs. The runs come one after the other, a
process each, and nothing else should be busy meanwhile. A second call makes no finished run again,
unless flags, versions or sources of the plugin have changed. A run that dies is named below the
tables (killed by signal 9: out of memory); the others are still made, and the exit status is 1.
"""

from __future__ import annotations

import argparse
from typing import Sequence

import environment  # noqa: F401
from experiments import command, run, vocabulary
from experiments.vocabulary import LEAST_UPDATES, PARTS, RECIPES, SYSTEMS, Benchmark


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed."""
    options = _parser().parse_args(arguments)
    recipe = RECIPES[options.recipe]
    if options.sentences is not None:
        recipe = recipe._replace(batch=(options.sentences, recipe.batch[1]))
    settings = run.prepare(options, recipe=recipe)
    # All sizes of a system in a row: a drift of the machine would blur their fine ratios most.
    systems, vocabs = (dict.fromkeys(some) for some in (options.systems, options.vocab))
    runs = [Benchmark(settings, system, vocab) for system in systems for vocab in vocabs]
    found, status = run.complete_all(runs, lambda done: vocabulary.write(done, settings))
    print(vocabulary.draw(found, settings))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__, has_device=True)
    add = parser.add_argument
    about = f"model and batch: {', '.join(sorted(RECIPES))}"
    add("--recipe", choices=sorted(RECIPES), default="lstm200", metavar="NAME", help=about)
    add("--sentences", type=int, help="of a batch (None: the recipe's)")
    sizes = [10_000, 50_000, 200_000, 1_000_000]
    add("--vocab", nargs="+", type=int, default=sizes, metavar="V", help="types, with the specials")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    about = "update: its time and memory, from within; train: words/s"
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help=about)
    add("--updates", type=int, default=400, help="timed updates of a training")
    add("--max-seconds", type=int, default=60, help=f"of a part; {LEAST_UPDATES} updates at least")
    return parser


if __name__ == "__main__":
    command.start(main)
