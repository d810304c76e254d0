"""Tables of scripts/experiments/gpu_run.py's results.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, measured, number, ratio, table

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
_SYSTEMS = ("bnce row-sparse", "bnce", "cross_entropy", "adaptive_loss")


def layer(results: Dict[str, Any]) -> List[str]:
    """Time and memory of the output layer alone, at the first shape and dtype of the stage."""
    place = results["layer"][0]["key"][1:]
    found = {row["key"][0]: row for row in results["layer"] if row["key"][1:] == place}
    best = min(found[head]["ms"] for head in list(_HEADS)[3:])
    heads = {title: found[head] for head, title in _HEADS.items()}
    lines = [([title], {**row, "speed": ratio(best, row["ms"])}) for title, row in heads.items()]
    return measured([""], _LAYER, lines)


def training(results: Dict[str, Any]) -> List[str]:
    """Words/s and peak memory by vocabulary, in bfloat16."""
    found = {tuple(row["key"]): row for row in results["training"]}
    sizes = sorted({key[1] for key in found})
    lines = [
        [f"`{system}`", *(_speed(found.get((system, size, _HALVES), {})) for size in sizes)]
        for system in _SYSTEMS
    ]
    return table(["words/s (peak GB)", *(f"V = {size:,}" for size in sizes)], lines)


def _speed(row: Dict[str, Any]) -> str:
    if "words_per_s" not in row:
        return "–"
    return f"{number(row['words_per_s'], ',.0f')} ({number(row['peak_gb'], '.1f')})"


def errors(results: Dict[str, Any]) -> List[str]:
    """The largest relative error of all losses and of their gradients, by dtype."""
    lines = []
    for dtype in dict.fromkeys(row["key"][1] for row in results["errors"]):
        rows = [row for row in results["errors"] if row["key"][1] == dtype]
        most = [
            number(max(row.get(name, 0.0) for row in rows for name in names), ".1e")
            for names in (("loss",), ("features", "weight", "bias"))
        ]
        lines.append([dtype.split(".")[-1], *most])
    return table(["", "loss", "gradients"], lines)
