"""Tables of the speech examples and of bench_decoding.py."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import Columns, interval, listing, measured, number, table

# bench_decoding.py
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
# first_pass_example.py
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
# speech_example.py
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
_MODEL: Columns = (
    ("WER, unnormalised − exact", "all", ""),
    ("the same, half of the vocabulary OOV", "half", ""),
    ("updates of the model", "updates", ",d"),
    ("validation perplexity, exact", "ppl", ".1f"),
    ("µ_z, nats", "mu_z", ".3f"),
    ("σ_z, nats", "sigma_z", ".3f"),
)
Content = Dict[str, Any]


def speeds(benchmark: Content) -> List[str]:
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


def rate(run: Content) -> float:
    """Return utterances per processor second."""
    return run["utterances"] / run["processor_seconds"]


def first_pass(found: Content) -> List[str]:
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


def acoustics(found: Content) -> List[str]:
    """Tabulate the training of the CTC model, and its errors."""
    model = found["acoustics"]
    minutes = model["processor_seconds"] / 60
    return listing({**model, "millions": model["parameters"] / 1e6, "minutes": minutes}, _ACOUSTICS)


def rescoring(found: Content) -> List[str]:
    """Tabulate word error rates of the test half, and the differences to the two first passes."""
    titles = ["", "WER, %", "over the first pass", "over the trigram by tuned weights"]
    lines = []
    for name, title in ROWS.items():
        differences = [_difference(found, f"{name} - {one}") for one in ("first", "trigram")]
        lines.append([title, interval(found["wer"][name], ".2f"), *differences])
    return table(titles, lines)


def _difference(found: Content, name: str) -> str:
    return interval(found["differences"].get(name), "+.2f")


def unnormalized(found: Content) -> List[str]:
    """Tabulate errors of unnormalised and exact scores, and the model's numbers."""
    half = _difference(found, "unnormalized-half - exact-half")
    every = _difference(found, "unnormalized - exact")
    return listing({**found["model"], "all": every, "half": half}, _MODEL)


def ways(*found: Content) -> List[str]:
    """Tabulate several runs: the normaliser of unnormalised scores, and its effect on errors."""
    titles = ["model, and what is subtracted", "validation PPL^f", "σ_z, nats"]
    titles += ["WER, exact", "unnormalised", "unnormalised − exact"]
    lines = []
    for one in found:
        model, rows = one["model"], one["model"].get("rows")
        constant = "log Z" if rows is None else "a constant"
        line = [f"{model.get('kind', 'ranking')}, {f'{rows:,} rows' if rows else constant}"]
        line += [number(model["ppl"], ".1f"), number(model["sigma_z"], ".3f")]
        line += [interval(one["wer"][name], ".2f") for name in ("exact", "unnormalized")]
        lines.append([*line, _difference(one, "unnormalized - exact")])
    return table(titles, lines)
