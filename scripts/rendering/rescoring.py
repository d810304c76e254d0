"""The tables of speech_example.py's speech.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import interval, number, table

ROWS = {
    "first": "pocketsphinx's own answer",
    "trigram": "sound, trigram, number of words",
    "unnormalized": "and the unnormalised model",
    "exact": "and the exactly normalised one",
    "exchanged": "exact scores by the weights of the unnormalised ones",
    "unnormalized-half": "unnormalised, half of the vocabulary OOV",
    "exact-half": "exact, half of the vocabulary OOV",
    "oracle": "the best of each list",
}


def speech(found: Dict[str, Any]) -> List[str]:
    """Word error rates of the test half, and the differences to the two first passes."""
    titles = ["", "WER, %", "over the first pass", "over the trigram by tuned weights"]
    lines = [[title, interval(found["wer"][name], ".2f")] for name, title in ROWS.items()]
    for name, line in zip(ROWS, lines):
        line += [_difference(found, f"{name} - {one}") for one in ("first", "trigram")]
    return table(titles, lines)


def _difference(found: Dict[str, Any], name: str) -> str:
    return interval(found["differences"].get(name), "+.2f")


def ways(*found: Dict[str, Any]) -> List[str]:
    """Several runs: the normaliser of unnormalised scores, and its effect on the errors."""
    titles = ["model, and what is subtracted", "validation PPL^f", "σ_z, nats"]
    titles += ["WER, exact", "unnormalised − exact"]
    return table(titles, [_way(one) for one in found])


def _way(found: Dict[str, Any]) -> List[str]:
    model, rows = found["model"], found["model"].get("rows")
    constant = "log Z" if rows is None else "a constant"
    return [
        f"{model.get('kind', 'ranking')}, {f'{rows:,} rows' if rows else constant}",
        number(model["ppl"], ".1f"),
        number(model["sigma_z"], ".3f"),
        interval(found["wer"]["exact"], ".2f"),
        _difference(found, "unnormalized - exact"),
    ]
