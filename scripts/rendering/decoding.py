"""Tables of bench_decoding.py's decoding.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import number, table

SYSTEMS = {
    "ours": "`FlashlightLM`, unnormalised",
    "ours exact": "`FlashlightLM`, exact",
    "prefix": "fairseq's way: prefix again, full softmax",
    "kenlm": "KenLM, trigram",
}


def speeds(benchmark: Dict[str, Any]) -> List[str]:
    """What each system did a processor second, at every V."""
    titles = ["V", "language model", "utterances/s", "× fairseq's way", "words scored"]
    titles += ["contexts read", "ms of decoding per context read", "memory MiB"]
    runs = {(run["vocab"], run["system"]): run for run in benchmark["runs"]}
    return table(titles, [_line(runs, *key) for key in sorted(runs, key=_order)], text=2)


def _order(key: Any) -> Any:
    return key[0], list(SYSTEMS).index(key[1])


def _line(runs: Dict[Any, Any], vocab: int, system: str) -> List[str]:
    run, slow = runs[vocab, system], runs.get((vocab, "prefix"))
    has_counts = bool(run["contexts_read"])
    each = run["utterances"]
    milliseconds = 1000 * run["processor_seconds"] / max(run["contexts_read"], 1)
    return [
        f"{vocab:,}",
        SYSTEMS[system],
        number(rate(run), ".2f"),
        number(rate(run) / rate(slow) if slow else None, ".1f"),
        number(run["words_scored"] / each if has_counts else None, ",.0f"),
        number(run["contexts_read"] / each if has_counts else None, ",.0f"),
        number(milliseconds if has_counts else None, ".2f"),
        number(run["peak_mib"], ",.0f"),
    ]


def rate(run: Dict[str, Any]) -> float:
    """Utterances a processor second."""
    return run["utterances"] / run["processor_seconds"]
