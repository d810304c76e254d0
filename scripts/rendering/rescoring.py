"""The tables of speech_example.py's speech.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import difference, interval, number, table

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
    """Tabulate word error rates of the test half, and the differences to the two first passes."""
    titles = ["", "WER, %", "over the first pass", "over the trigram by tuned weights"]
    lines = []
    for name, title in ROWS.items():
        differences = [difference(found, f"{name} - {one}") for one in ("first", "trigram")]
        lines.append([title, interval(found["wer"][name], ".2f"), *differences])
    return table(titles, lines)


def ways(*found: Dict[str, Any]) -> List[str]:
    """Tabulate several runs: the normaliser of unnormalised scores, and its effect on errors."""
    titles = ["model, and what is subtracted", "validation PPL^f", "σ_z, nats"]
    titles += ["WER, exact", "unnormalised − exact"]
    lines = []
    for one in found:
        model, rows = one["model"], one["model"].get("rows")
        constant = "log Z" if rows is None else "a constant"
        line = [f"{model.get('kind', 'ranking')}, {f'{rows:,} rows' if rows else constant}"]
        line += [number(model["ppl"], ".1f"), number(model["sigma_z"], ".3f")]
        line.append(interval(one["wer"]["exact"], ".2f"))
        lines.append([*line, difference(one, "unnormalized - exact")])
    return table(titles, lines)
