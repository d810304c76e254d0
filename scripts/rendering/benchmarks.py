"""Tables of bench_vocab.py's benchmark.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, cells, measured, number, table

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
    runs, lines = benchmark["runs"], []
    for system, name in SYSTEMS.items():
        found = {f"{run['vocab']:,}": run.get(measure) for run in runs if run["system"] == system}
        growth = benchmark["growth"].get(system, {})
        lines += [([name], {**found, **growth})] if any(found.values()) else []
    first, *others = (f"{vocab:,}" for vocab in sorted({run["vocab"] for run in runs}))
    columns = [(f"V = {first}", first, form), *((vocab, vocab, form) for vocab in others)]
    columns += [("exponent of cost in V", "update_exponent", ".2f")] * has_exponents
    return measured([title], columns, lines)


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
