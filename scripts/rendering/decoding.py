"""Tables of bench_decoding.py's decoding.json and first_pass_example.py's first-pass.json."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, interval, listing, measured, number, table

SYSTEMS = {
    "ours": "`FlashlightLM`, unnormalised",
    "ours exact": "`FlashlightLM`, exact",
    "prefix": "fairseq's way: prefix again, full softmax",
    "kenlm": "KenLM, trigram",
}
_SPEEDS: Columns = (
    ("utterances/s", "rate", ".2f"),
    ("× fairseq's way", "faster", ".1f"),
    ("words scored", "words", ",.0f"),
    ("contexts read", "contexts", ",.0f"),
    ("ms of decoding per context read", "ms", ".2f"),
    ("memory MiB", "peak_mib", ",.0f"),
)
MODELS = {
    "none": "none",
    "kenlm": "KenLM, trigram of the novels",
    "ours": "ours, unnormalised",
    "ours exact": "ours, exact",
}
DECODERS = {"flashlight": "`LexiconDecoder`", "pyctcdecode": "`BeamSearchDecoderCTC`"}
_ACOUSTICS: Columns = (
    ("sentences that it learned from", "sentences", ",d"),
    ("the same, hours of speech", "hours", ".1f"),
    ("parameters, millions", "millions", ".1f"),
    ("updates of 16 sentences", "updates", ",d"),
    ("training, processor minutes", "minutes", ".0f"),
    ("letters wrong of held-out sentences, greedily, %", "letters_wrong", ".1f"),
    ("its own real-time factor", "real_time", ".4f"),
)


def speeds(benchmark: Dict[str, Any]) -> List[str]:
    """Tabulate the work of each system in a processor second, at every V."""
    runs = {(run["vocab"], run["system"]): run for run in benchmark["runs"]}
    lines = []
    for vocab, system in sorted(runs, key=lambda key: (key[0], list(SYSTEMS).index(key[1]))):
        run, slow = runs[vocab, system], runs.get((vocab, "prefix"))
        found = {**run, "rate": rate(run), "faster": rate(run) / rate(slow) if slow else None}
        if run["contexts_read"]:
            found["words"] = run["words_scored"] / run["utterances"]
            found["contexts"] = run["contexts_read"] / run["utterances"]
            found["ms"] = 1000 * run["processor_seconds"] / run["contexts_read"]
        lines.append(([f"{vocab:,}", SYSTEMS[system]], found))
    return measured(["V", "language model"], _SPEEDS, lines)


def rate(run: Dict[str, Any]) -> float:
    """Return utterances per processor second."""
    return run["utterances"] / run["processor_seconds"]


def first_pass(found: Dict[str, Any]) -> List[str]:
    """Tabulate word error rates and real-time factors of all systems."""
    titles = ["decoder", "language model", "WER, %", "unnormalised − this", "real-time factor"]
    titles += ["contexts read a sentence", "weight", "a word"]
    lines = []
    for name, system in found["systems"].items():
        library, _, model = name.partition(" ")
        weights = [system[one] for one in ("lm_weight", "word_score")]
        shown = [number(one if model not in ("", "none") else None, ".1f") for one in weights]
        line = [DECODERS.get(library, "greedy"), MODELS.get(model, "–")]
        line += [interval(system["wer"], ".2f"), _difference(found, f"{library} ours - {name}")]
        line.append(number(system["real_time"] if model else None, ".4f"))
        line.append(number(system["contexts_read"] / found["sentences"] or None, ",.0f"))
        lines.append([*line, *shown])
    return table(titles, lines, text=2)


def acoustics(found: Dict[str, Any]) -> List[str]:
    """Tabulate the training of the CTC model, and its errors."""
    model = found["acoustics"]
    minutes = model["processor_seconds"] / 60
    return listing({**model, "millions": model["parameters"] / 1e6, "minutes": minutes}, _ACOUSTICS)


def _difference(found: Dict[str, Any], name: str) -> str:
    return interval(found["differences"].get(name), "+.2f")
