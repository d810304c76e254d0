#!/usr/bin/env python3
"""Speech in one pass: a small character model of sound, and language models inside its decoder.

    speech_example.py --data mscc --out speech-run
    first_pass_example.py --data mscc --speech speech-run --out first-pass

flite speaks other sentences of the novels than those that speech_example.py drew, and a CTC model
learns their letters. Its emissions of the drawn sentences are decoded greedily and by flashlight
and pyctcdecode: without a language model, with a trigram of the novels, and with the model that
speech_example.py trained, unnormalised and exact. Weights are tuned on sentences of one half; word
error rates are those of the other half. ``--only`` repeats, or goes on with, some of the stages.
OUT/first-pass.json has the results.

Needs: apt-get install flite; pip install jiwer flashlight-text pyctcdecode kenlm, for the Python
with fairseq.
"""

from __future__ import annotations

import functools
import gc
import itertools
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import environment  # noqa: F401
import numpy as np
import torch
from decoders import ngrams
from experiments import command, machine
from rendering.decoding import DECODERS, MODELS
from speech import acoustics, errors, searches, sentences, sound, stages
from speech.stages import Run, Steps, lines_of, say

SEED = 1
LINES = {"train": 42_000, "valid": 2_100}  # of the novels', evenly, of which some are drawn
HELD_OUT = 200  # spoken sentences, at most, that tell how many letters are wrong
EVALUATED = ("tune", "test")
EXACT = " exact"  # the end of the name of a system with exact scores
_SPELLABLE = re.compile("[a-z']+")

# Tried weights of the language model, and then tried scores of a word.
TRIED = ((0.7, 0.3, 0.5, 1.0, 1.4), (1.0, -0.5, 0.0, 2.0, 3.0))
SYSTEMS = {
    "greedy": ((1.0,), (0.0,)),
    **{f"{library} {model}": TRIED for library in DECODERS for model in MODELS},
    "flashlight none": ((1.0,), (0.0, -1.0, -2.0, -3.0, -4.0)),
    "pyctcdecode none": ((1.0,), (0.0,)),
}


# ---------------------------------------------------------------- sound


def speak(run: Run) -> None:
    """Write sound/NAME.npz: log-mel features, and the words."""
    for name in (*LINES, *EVALUATED):
        sounds = ((sound.speak(one.spoken), one.words) for one in chosen(run, name))
        acoustics.save_speech(run.at("sound", f"{name}.npz"), sounds)


def chosen(run: Run, name: str) -> List[sentences.Sentence]:
    """Return the drawn sentences, or for training sentences of the novels without these."""
    text = run.options.speech / "text"
    if name in EVALUATED:
        pairs = zip(lines_of(text / f"{name}.spoken"), lines_of(text / f"{name}.ref"))
        return [sentences.Sentence(*pair) for pair in pairs]
    path = run.data / "text" / f"{name}.txt"
    every = max(1, sum(1 for _ in lines_of(path)) // LINES[name])
    found = sentences.speakable(itertools.islice(lines_of(path), 0, None, every))
    for other in EVALUATED:
        for words in lines_of(text / f"{other}.ref"):
            found.pop(words, None)
    count = run.options.spoken if name == "train" else min(HELD_OUT, len(found))
    return sentences.drawn(found, count, SEED)


def sound_of(run: Run, name: str) -> acoustics.Speech:
    return acoustics.load_speech(run.at("sound", f"{name}.npz"))


def train(run: Run) -> None:
    """Write acoustics/model.pt."""
    path = run.at("acoustics", "model.pt")
    acoustics.train(path, sound_of(run, "train"), run.options.updates, say)


# ---------------------------------------------------------------- decoding


def trigram(run: Run) -> None:
    """Write trigram.arpa, from the text that the language model learned from."""
    words = dictionary(run)
    lines = lines_of(run.options.speech / "text/train.txt")
    text = ([w if w in words else sentences.UNKNOWN for w in line.split()] for line in lines)
    ngrams.write_arpa(run.folder / "trigram.arpa", text, list(words))


def dictionary(run: Run) -> Dict[str, int]:
    """Return the language model's words that letters spell, and how often its text has them."""
    counts = (line.split(" ") for line in lines_of(run.options.speech / "data/bin/dict.txt"))
    return {word: int(count) for word, count in counts if _SPELLABLE.fullmatch(word)}


def make(run: Run, system: str) -> searches.Search:
    library, _, model = system.partition(" ")
    if library == "greedy":
        return searches.Search(acoustics.greedy)
    files = run.options.speech / "lm" / "checkpoint_best.pt", run.folder / "trigram.arpa"
    return getattr(searches, library)(model, *files, dictionary(run))


def tune(search: searches.Search, system: str, heard: Sequence[Any], words: Any) -> Dict[str, Any]:
    """Return the best of the tried weights, on emissions of the half for tuning."""

    @functools.lru_cache(maxsize=None)
    def error(weights: Tuple[float, float]) -> float:
        search.weigh(*weights)
        found = errors.rate(errors.counts(map(search.decode, heard), words))[0]
        say(f"{system}: {weights}: {found:.2f}")
        return found

    lm_weights, word_scores = SYSTEMS[system]
    lm_weight, _ = min(((weight, word_scores[0]) for weight in lm_weights), key=error)
    best = min(((lm_weight, score) for score in word_scores), key=error)
    return {"lm_weight": best[0], "word_score": best[1], "tried": error.cache_info().currsize}


def decode_all(run: Run) -> None:
    """Write first-pass.json: errors, times and weights of all systems.

    Exact scores have the weights of unnormalised ones, so that nothing else differs.
    """
    model, stored = acoustics.read_model(run.at("acoustics", "model.pt"))
    tuning, test = sound_of(run, "tune"), sound_of(run, "test")
    heard = model.emit(tuning.features()[: run.options.tuned])
    start = time.process_time()
    emissions = model.emit(test.features())
    spent = time.process_time() - start
    systems: Dict[str, Dict[str, Any]] = {}
    weights: Dict[str, Dict[str, Any]] = {}
    counts = {}
    for system in SYSTEMS:
        search = make(run, system)
        gc.freeze()  # what the libraries have made stays: no collection need look at it
        known = weights.get(system[: -len(EXACT)]) if system.endswith(EXACT) else None
        found = weights[system] = known or tune(search, system, heard, tuning.words)
        search.weigh(found["lm_weight"], found["word_score"])
        start = time.process_time()
        texts = list(map(search.decode, emissions))
        seconds = time.process_time() - start
        counts[system] = errors.counts(texts, test.words)
        times = {"processor_seconds": seconds, "real_time": seconds / test.seconds}
        systems[system] = {"wer": errors.rate(counts[system]), **found, **times}
        say(f"{system}: {systems[system]['wer']}")
    written = {
        "machine": machine.record(),
        "data": run.data.name,
        "sentences": len(test.words),
        "words": sum(len(words.split()) for words in test.words),
        "tuned": run.options.tuned,
        "audio_seconds": test.seconds,
        "acoustics": {**of_acoustics(run, model, stored), "real_time": spent / test.seconds},
        "systems": systems,
        "differences": differences(counts),
    }
    stages.write_json(run.folder / "first-pass.json", written)


def of_acoustics(run: Run, model: Any, stored: Dict[str, Any]) -> Dict[str, Any]:
    """Return how the model of sound was trained, and what it reads greedily."""
    held_out = sound_of(run, "valid")
    emissions = model.emit(held_out.features())
    return {
        "sentences": run.options.spoken,
        "hours": sound_of(run, "train").seconds / 3600,
        "updates": stored["update"],
        "processor_seconds": stored["seconds"],
        "parameters": sum(one.numel() for one in stored["model"].values()),
        "letters_wrong": acoustics.letter_error_rate(emissions, held_out.words),
    }


def differences(counts: Mapping[str, np.ndarray]) -> Dict[str, List[float]]:
    """Return the changes from each other language model to the unnormalised one."""
    found = {}
    for library, model in itertools.product(DECODERS, ("none", "kenlm", f"ours{EXACT}")):
        ours, other = f"{library} ours", f"{library} {model}"
        if {ours, other} <= set(counts):
            found[f"{ours} - {other}"] = errors.difference(counts[other], counts[ours])
    return found


STAGES: Steps = {"speak": speak, "train": train, "trigram": trigram, "decode": decode_all}


def main(arguments: Sequence[str]) -> int:
    """Run all stages, or those of ``--only``, and return 0."""
    flags = stages.parser(__doc__, STAGES, "first-pass")
    add = flags.add_argument
    add("--speech", type=Path, required=True, help="folder that speech_example.py made")
    add("--spoken", type=int, default=8_000, help="sentences that the CTC model learns from")
    add("--updates", type=int, default=3_000, help="of the CTC model")
    add("--tuned", type=int, default=150, help="sentences for weights")
    options = flags.parse_args(arguments)
    torch.set_num_threads(options.threads)
    return stages.run_all(options, STAGES)


if __name__ == "__main__":
    command.start(main)
