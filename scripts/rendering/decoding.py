"""Tables of speech: bench_decoding.py, first_pass_example.py and speech_example.py."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, difference, interval, measured, number, table

SYSTEMS = {
    "ours": "`FlashlightLM`, unnormalised",
    "ours exact": "`FlashlightLM`, exact",
    "prefix": "fairseq's way: prefix again, full softmax",
    "kenlm": "KenLM, trigram",
}
_SPEEDS: Columns = (
    ("utterances/s", "rate", ".2f"),
    ("× fairseq's way", "faster", ".1f"),
    ("memory MiB", "peak_mib", ",.0f"),
)
MODELS = {
    "none": "none",
    "kenlm": "KenLM, trigram of the novels",
    "ours": "ours, unnormalised",
    "ours exact": "ours, exact",
}
DECODERS = {"flashlight": "`LexiconDecoder`", "pyctcdecode": "`BeamSearchDecoderCTC`"}


def speeds(benchmark: Dict[str, Any]) -> List[str]:
    """Tabulate the work of each system in a processor second, at every V."""
    runs = {(run["vocab"], run["system"]): run for run in benchmark["runs"]}
    lines = []
    for vocab, system in sorted(runs, key=lambda key: (key[0], list(SYSTEMS).index(key[1]))):
        run, slow = runs[vocab, system], runs.get((vocab, "prefix"))
        found = {**run, "rate": rate(run), "faster": rate(run) / rate(slow) if slow else None}
        lines.append(([f"{vocab:,}", SYSTEMS[system]], found))
    return measured(["V", "language model"], _SPEEDS, lines)


def rate(run: Dict[str, Any]) -> float:
    """Return utterances per processor second."""
    return run["utterances"] / run["processor_seconds"]


def first_pass(found: Dict[str, Any]) -> List[str]:
    """Tabulate word error rates and real-time factors of all systems."""
    titles = ["decoder", "language model", "WER, %", "unnormalised − this", "real-time factor"]
    lines = []
    for name, system in found["systems"].items():
        library, _, model = name.partition(" ")
        line = [DECODERS.get(library, "greedy"), MODELS.get(model, "–")]
        line += [interval(system["wer"], ".2f"), difference(found, f"{library} ours - {name}")]
        lines.append([*line, number(system["real_time"] if model else None, ".4f")])
    return table(titles, lines, text=2)


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
