"""Tables of bench_vocab.py's benchmark.json and of experiments/gpu_run.py's results.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import SPEED, Column, Columns, cells, measured, number, ratio, table

Benchmark = Dict[str, Any]
SYSTEMS = {
    "cross_entropy": "`cross_entropy`",
    "adaptive_loss": "`adaptive_loss`",
    "bnce": "`bnce`",
    "bnce_sparse": "`bnce --row-sparse`",
    "bnce_bands": "the same, in bands",
}
MEMORY = ("MiB", "update_mib", ",.1f")
_BATCH: Columns = (
    ("× cross_entropy, V = 200,000", "x_softmax", ".1f"),
    ("× dense bnce, V = 1,000,000", "x_dense", ".1f"),
)


def _run(benchmark: Benchmark, system: str, vocab: int) -> Dict[str, Any]:
    """Return the numbers of a run; nothing where there was no run."""
    runs = benchmark["runs"]
    return next((r for r in runs if (r["system"], r["vocab"]) == (system, vocab)), {})


def by_vocabulary(
    benchmark: Benchmark, column: Column = SPEED, has_exponents: bool = False
) -> List[str]:
    """Tabulate a measurement of every system at every V."""
    title, measure, form = column
    runs, lines = benchmark["runs"], []
    for system, name in SYSTEMS.items():
        found = {f"{run['vocab']:,}": run.get(measure) for run in runs if run["system"] == system}
        growth = benchmark["growth"].get(system, {})
        lines += [([name], {**found, **growth})] if any(found.values()) else []
    first, *others = (f"{vocab:,}" for vocab in sorted({run["vocab"] for run in runs}))
    columns = [(f"V = {first}", first, form), *((vocab, vocab, form) for vocab in others)]
    columns += [("exponent of cost in V", "update_exponent", ".2f")] * has_exponents
    return measured([title], columns, lines)


def network(benchmark: Benchmark, vocab: int) -> List[str]:
    """Tabulate bytes and time of an update at each rate of the line, from network.json."""
    lines = []
    for system, name in SYSTEMS.items():
        rates = _run(benchmark, system, vocab).get("rates")
        if rates:
            seconds = {f"{rate['gigabits']:g}": rate["seconds"] for rate in rates}
            lines.append(([name], {"sent": rates[0]["bytes"] / 1e6, **seconds}))
    columns = [("MB sent", "sent", ",.1f")]
    columns += [(f"s, {rate} Gbit/s", rate, ",.2f") for rate in lines[0][1] if rate != "sent"]
    return measured([f"an update, V = {vocab:,}"], columns, lines)


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


# ---------------------------------------------------------------- gpu_run.py

_HALVES = "--memory-efficient-bf16"
_HEADS = {
    "bnce_sparse": "`bnce`, row-sparse",
    "bnce": "`bnce`, dense gradient",
    "shared_nce_sparse": "`shared_nce`, row-sparse",
    "cross_entropy": "cross entropy, torch",
    "compiled": "cross entropy, torch.compile",
    "liger": "cross entropy, Liger-Kernel",
    "cut_cross_entropy": "cut-cross-entropy",
}
_LAYER: Columns = (
    ("ms", "ms", ".2f"),
    ("MB", "extra_mb", ",.0f"),
    ("speed over the best cross entropy", "speed", ".1f"),
)
_TRAINED = ("bnce row-sparse", "bnce", "cross_entropy", "adaptive_loss")


def gpu_layer(results: Dict[str, Any]) -> List[str]:
    """Tabulate time and memory of the output layer alone, at the first shape and dtype."""
    place = results["layer"][0]["key"][1:]
    found = {row["key"][0]: row for row in results["layer"] if row["key"][1:] == place}
    best = min(found[head]["ms"] for head in list(_HEADS)[3:])
    heads = {title: found[head] for head, title in _HEADS.items()}
    lines = [([title], {**row, "speed": ratio(best, row["ms"])}) for title, row in heads.items()]
    return measured([""], _LAYER, lines)


def gpu_training(results: Dict[str, Any]) -> List[str]:
    """Tabulate words/s and peak memory by vocabulary, in bfloat16."""
    found = {tuple(row["key"]): row for row in results["training"]}
    sizes = sorted({key[1] for key in found})
    lines = [
        [f"`{system}`", *(_speed(found.get((system, size, _HALVES), {})) for size in sizes)]
        for system in _TRAINED
    ]
    return table(["words/s (peak GB)", *(f"V = {size:,}" for size in sizes)], lines)


def _speed(row: Dict[str, Any]) -> str:
    if "words_per_s" not in row:
        return "–"
    return f"{number(row['words_per_s'], ',.0f')} ({number(row['peak_gb'], '.1f')})"


def gpu_errors(results: Dict[str, Any]) -> List[str]:
    """Tabulate the largest relative error of all losses and of their gradients, by dtype."""
    lines = []
    for dtype in dict.fromkeys(row["key"][1] for row in results["errors"]):
        rows = [row for row in results["errors"] if row["key"][1] == dtype]
        most = [
            number(max(row.get(name, 0.0) for row in rows for name in names), ".1e")
            for names in (("loss",), ("features", "weight", "bias"))
        ]
        lines.append([dtype.split(".")[-1], *most])
    return table(["", "loss", "gradients"], lines)
