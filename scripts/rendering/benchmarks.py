"""Tables of bench_vocab.py's benchmark.json."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .cells import number, table

Benchmark = Dict[str, Any]
SYSTEMS = {
    "cross_entropy": "`cross_entropy`",
    "adaptive_loss": "`adaptive_loss`",
    "bnce": "`bnce`",
    "bnce_sparse": "`bnce --row-sparse`",
}


def run(benchmark: Benchmark, system: str, vocab: int) -> Dict[str, Any]:
    """A run's numbers; none where it was not made."""
    found = [r for r in benchmark["runs"] if (r["system"], r["vocab"]) == (system, vocab)]
    return found[0] if found else {}


def by_vocabulary(
    benchmark: Benchmark,
    title: str = "words/s",
    measure: str = "words_per_second",
    form: str = ",.0f",
) -> List[str]:
    """A measurement of every system at every V."""
    vocabs = sorted({one["vocab"] for one in benchmark["runs"]})
    lines = [
        [SYSTEMS[system], *(number(value, form) for value in values)]
        for system, values in _measured(benchmark, vocabs, measure).items()
    ]
    return table([title, f"V = {vocabs[0]:,}", *(f"{vocab:,}" for vocab in vocabs[1:])], lines)


def _measured(
    benchmark: Benchmark, vocabs: List[int], measure: str
) -> Dict[str, List[Optional[float]]]:
    """At every V, of the systems that have any."""
    found = {
        system: [run(benchmark, system, vocab).get(measure) for vocab in vocabs]
        for system in SYSTEMS
    }
    return {system: values for system, values in found.items() if any(values)}


def speeds_and_exponents(benchmark: Benchmark) -> List[str]:
    """Words/s, with the fitted exponents."""
    head, rule, *lines = by_vocabulary(benchmark)
    vocabs = [one["vocab"] for one in benchmark["runs"]]
    exponents = [
        number(benchmark["growth"].get(system, {}).get("update_exponent"), ".2f")
        for system in _measured(benchmark, vocabs, "words_per_second")
    ]
    lines = [f"{line} {exponent} |" for line, exponent in zip(lines, exponents)]
    return [f"{head} exponent of cost in V |", f"{rule}---:|", *lines]


def phases(benchmark: Benchmark) -> List[str]:
    """Where the milliseconds of row-sparse bnce's update go at every V."""
    runs = [one for one in benchmark["runs"] if one["system"] == "bnce_sparse"]
    updates = {one["vocab"]: one["parts"]["update"]["value"] for one in runs}
    titles = ["V", *next(iter(updates.values()))["milliseconds"], "all, ms"]
    lines = [
        [f"{vocab:,}", *(number(time, ".1f") for time in _phases(updates[vocab]))]
        for vocab in sorted(updates)
    ]
    return table(titles, lines)


def _phases(update: Dict[str, Any]) -> List[float]:
    return [*update["milliseconds"].values(), update["update_ms"]]


def batches(*benchmarks: Benchmark) -> List[str]:
    """Row-sparse bnce with other batches, beside softmax and beside dense bnce.

    Args:
        benchmarks: in pairs of a model and a batch, beside softmax and beside dense bnce.
    """
    titles = ["row-sparse bnce", "targets", "words/s, V = 200,000", "× cross_entropy"]
    titles += ["words/s, V = 1,000,000", "× dense bnce"]
    lines: List[List[str]] = []
    for softmax, dense in zip(benchmarks[::2], benchmarks[1::2]):
        recipe = softmax["settings"]["recipe"]
        lines.append([f"`{_flag(recipe, '--arch')}`", _targets(recipe), *_batch(softmax, dense)])
    return table(titles, lines)


def _flag(recipe: Dict[str, Any], name: str) -> str:
    words = recipe["training"]
    return words[words.index(name) + 1]


def _targets(recipe: Dict[str, Any]) -> str:
    sentences, length = recipe["batch"]
    return number(sentences * length, ",")


def _batch(beside_softmax: Benchmark, beside_dense: Benchmark) -> List[str]:
    softmax = run(beside_softmax, "bnce_sparse", 200_000)
    dense = run(beside_dense, "bnce_sparse", 1_000_000)
    return [
        number(softmax["words_per_second"], ",.0f"),
        number(softmax["x_softmax"], ".1f"),
        number(dense["words_per_second"], ",.0f"),
        number(dense["x_dense"], ".1f"),
    ]
