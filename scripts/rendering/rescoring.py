"""The table of rescoring_example.py's rescoring.json."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .cells import NONE, number, table

VARIANTS = {
    "without": "score, TM, number of words",
    "unnormalized": "and the unnormalised language model",
    "exact": "and the exactly normalised one",
    "exchanged": "exact scores by the weights of the unnormalised ones",
}
LANGUAGE_MODELS = ("BNCE", "Exact")


def bleu(found: Dict[str, Any]) -> List[str]:
    """BLEU of test by the weights of every variant."""
    variants = found["variants"]
    own = [_interval(variants["without"]["before"], ".2f"), NONE, NONE]
    lines = [["the list's own order", *own]]
    lines += [[title, *_variant(variants[name])] for name, title in VARIANTS.items()]
    return table(["", "BLEU", "gain over the list's own order", "the model's weight"], lines)


def _variant(variant: Dict[str, Any]) -> List[str]:
    weights = [variant["weights"].get(name) for name in LANGUAGE_MODELS]
    known = [weight for weight in weights if weight is not None]
    return [
        _interval(variant["after"], ".2f"),
        _interval(variant["difference"], "+.2f"),
        number(known[0] if known else None, ".3f"),
    ]


def _interval(numbers: Sequence[float], form: str) -> str:
    value, low, high = (number(one, form) for one in numbers)
    return f"{value} [{low}, {high}]"
