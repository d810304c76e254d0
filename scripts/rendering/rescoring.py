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
    """Word error rates of the half that was not tuned on, and what they differ by."""
    titles = ["", "WER, %", "over the first pass", "over the trigram by tuned weights"]
    differences = found["differences"]
    lines = [
        [
            title,
            interval(found["wer"][name], ".2f"),
            *(interval(differences.get(f"{name} - {one}"), "+.2f") for one in ("first", "trigram")),
        ]
        for name, title in ROWS.items()
    ]
    return table(titles, lines)


def unnormalized(found: Dict[str, Any]) -> List[str]:
    """How far the unnormalised scores' errors are from the exact ones', and the model's numbers."""
    differences, model = found["differences"], found["model"]
    half = differences["unnormalized-half - exact-half"]
    lines = [
        ["WER, unnormalised − exact", interval(differences["unnormalized - exact"], "+.2f")],
        ["the same, half of the vocabulary OOV", interval(half, "+.2f")],
        ["updates of the model", number(model["updates"], ",d")],
        ["validation perplexity, exact", number(model["ppl"], ".1f")],
        ["µ_z, nats", number(model["mu_z"], ".3f")],
        ["σ_z, nats", number(model["sigma_z"], ".3f")],
    ]
    return table(["", ""], lines)


def ways(*found: Dict[str, Any]) -> List[str]:
    """What unnormalised scores are less, in several runs, and what that does to the errors."""
    titles = ["model, and what is subtracted", "validation PPL^f", "σ_z, nats"]
    titles += ["WER, exact", "unnormalised", "unnormalised − exact"]
    return table(titles, [_way(one) for one in found])


def _way(found: Dict[str, Any]) -> List[str]:
    model, wer = found["model"], found["wer"]
    rows = model.get("rows")
    constant = "log Z" if rows is None else "a constant"
    return [
        f"{model.get('kind', 'ranking')}, {f'{rows:,} rows' if rows else constant}",
        number(model["ppl"], ".1f"),
        number(model["sigma_z"], ".3f"),
        interval(wer["exact"], ".2f"),
        interval(wer["unnormalized"], ".2f"),
        interval(found["differences"]["unnormalized - exact"], "+.2f"),
    ]
