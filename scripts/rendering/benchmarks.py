"""Tables of bench_vocab.py's benchmark.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, cells, number, table

Benchmark = Dict[str, Any]
SYSTEMS = {
    "cross_entropy": "`cross_entropy`",
    "adaptive_loss": "`adaptive_loss`",
    "bnce": "`bnce`",
    "bnce_sparse": "`bnce --row-sparse`",
}
_BATCH: Columns = (
    ("× cross_entropy, V = 200,000", "x_softmax", ".1f"),
    ("× dense bnce, V = 1,000,000", "x_dense", ".1f"),
)


def _run(benchmark: Benchmark, system: str, vocab: int) -> Dict[str, Any]:
    """Return the numbers of a run; nothing where there was no run."""
    runs = benchmark["runs"]
    return next((r for r in runs if (r["system"], r["vocab"]) == (system, vocab)), {})


def by_vocabulary(
    benchmark: Benchmark,
    title: str = "words/s",
    measure: str = "words_per_second",
    form: str = ",.0f",
    has_exponents: bool = False,
) -> List[str]:
    """Tabulate a measurement of every system at every V."""
    vocabs = sorted({one["vocab"] for one in benchmark["runs"]})
    lines = []
    for system, name in SYSTEMS.items():
        values = [_run(benchmark, system, vocab).get(measure) for vocab in vocabs]
        line = [name, *(number(value, form) for value in values)]
        if has_exponents:
            growth = benchmark["growth"].get(system, {})
            line.append(number(growth.get("update_exponent"), ".2f"))
        lines += [line] if any(values) else []
    titles = [title, f"V = {vocabs[0]:,}", *(f"{vocab:,}" for vocab in vocabs[1:])]
    return table(titles + ["exponent of cost in V"] * has_exponents, lines)


def batches(*benchmarks: Benchmark) -> List[str]:
    """Tabulate row-sparse bnce with other batches.

    Args:
        benchmarks: in pairs for a model and a batch: with the softmax, and with dense bnce.
    """
    lines: List[List[str]] = []
    for softmax, dense in zip(benchmarks[::2], benchmarks[1::2]):
        recipe = softmax["settings"]["recipe"]
        (sentences, length), flags = recipe["batch"], recipe["training"]
        line = [f"`{flags[flags.index('--arch') + 1]}`", number(sentences * length, ",")]
        line += cells(_run(softmax, "bnce_sparse", 200_000), _BATCH[:1])
        lines.append([*line, *cells(_run(dense, "bnce_sparse", 1_000_000), _BATCH[1:])])
    return table(["row-sparse bnce", "targets", *(title for title, _, _ in _BATCH)], lines)
