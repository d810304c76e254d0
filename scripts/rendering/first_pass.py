"""Tables of first_pass_example.py's first-pass.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import interval, number, table

MODELS = {
    "none": "none",
    "kenlm": "KenLM, trigram of the novels",
    "ours": "ours, unnormalised",
    "ours exact": "ours, exact",
}
DECODERS = {"flashlight": "`LexiconDecoder`", "pyctcdecode": "`BeamSearchDecoderCTC`"}


def systems(found: Dict[str, Any]) -> List[str]:
    """Word error rates and real-time factors of all that was decoded."""
    titles = ["decoder", "language model", "WER, %", "unnormalised − this", "real-time factor"]
    titles += ["contexts read a sentence", "weight", "a word"]
    return table(titles, [_line(found, name) for name in found["systems"]], text=2)


def _line(found: Dict[str, Any], name: str) -> List[str]:
    library, _, model = name.partition(" ")
    system = found["systems"][name]
    contexts = system["contexts_read"] / found["sentences"]
    difference = found["differences"].get(f"{library} ours - {name}")
    weights = (system["lm_weight"], system["word_score"]) if model not in ("", "none") else ()
    return [
        DECODERS.get(library, "greedy"),
        MODELS.get(model, "–"),
        interval(system["wer"], ".2f"),
        interval(difference, "+.2f"),
        number(system["real_time"] if model else None, ".4f"),
        number(contexts or None, ",.0f"),
        *(number(weight, ".1f") for weight in weights or (None, None)),
    ]


def acoustics(found: Dict[str, Any]) -> List[str]:
    """What the CTC model learned from, for how long, and how good it is."""
    model = found["acoustics"]
    lines = [
        ["sentences that it learned from", number(model["sentences"], ",d")],
        ["the same, hours of speech", number(model["hours"], ".1f")],
        ["parameters, millions", number(model["parameters"] / 1e6, ".1f")],
        ["updates of 16 sentences", number(model["updates"], ",d")],
        ["training, processor minutes", number(model["processor_seconds"] / 60, ".0f")],
        ["letters wrong of held-out sentences, greedily, %", number(model["letters_wrong"], ".1f")],
        ["its own real-time factor", number(model["real_time"], ".4f")],
    ]
    return table(["", ""], lines)
