#!/usr/bin/env python3
"""Speech in one pass: a small character model of sound, and language models inside its decoder.

    speech_example.py --data mscc --out speech-run
    first_pass_example.py --data mscc --speech speech-run --out first-pass

flite speaks other sentences of the novels than those that speech_example.py drew, and a CTC model
learns their letters. Its emissions of the drawn sentences are decoded greedily and by flashlight
and pyctcdecode: without a language model, with a trigram of the novels, and with the model that
speech_example.py trained, unnormalised and exact. Weights are tuned on sentences of one half, and
the other half tells the word error rate. Stages that are finished are not run again. What came out
is in OUT/first-pass.json.

Needs: apt-get install flite; pip install jiwer flashlight-text pyctcdecode kenlm, for the Python
with fairseq.
"""

from __future__ import annotations

import gc
import itertools
import re
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import environment  # noqa: F401
import numpy as np
import torch
from decoders import ngrams
from experiments import command, machine
from speech import acoustics, errors, features, searches, sentences, sound, stages
from speech.stages import REPORT, Run, Steps, lines_of, read_json, say, write_json

SEED = 1
LINES = {"train": 42_000, "valid": 2_100}  # of the novels', evenly, of which some are drawn
HELD_OUT = 200  # spoken sentences, at most, that tell how many letters are wrong
EVALUATED = ("tune", "test")
EXACT = " exact"  # what a system's name ends with whose scores are
_SPELLABLE = re.compile("[a-z']+")


class Weights(NamedTuple):
    """The values that are tried of the language model's weight, and then of what a word gets."""

    lm: Sequence[float] = (0.7, 0.3, 0.5, 1.0, 1.4)
    word: Sequence[float] = (1.0, -0.5, 0.0, 2.0, 3.0)


LIBRARIES = ("flashlight", "pyctcdecode")
MODELS = ("none", "kenlm", "ours", f"ours{EXACT}")
SYSTEMS = {
    "greedy": Weights((1.0,), (0.0,)),
    **{f"{library} {model}": Weights() for library in LIBRARIES for model in MODELS},
    "flashlight none": Weights((1.0,), (0.0, -1.0, -2.0, -3.0, -4.0)),
    "pyctcdecode none": Weights((1.0,), (0.0,)),
}


# ---------------------------------------------------------------- sound


def speak(run: Run, name: str) -> None:
    """Write sound/NAME.npz: log-mel features, and the words."""
    text = run.options.speech / "text"
    if name in EVALUATED:
        pairs = zip(lines_of(text / f"{name}.spoken"), lines_of(text / f"{name}.ref"))
        chosen = [sentences.Sentence(*pair) for pair in pairs]
    else:
        chosen = drawn(run, name)
    sounds = ((sound.speak(sentence.spoken), sentence.words) for sentence in chosen)
    features.save(run.at("sound", f"{name}.npz"), sounds)


def drawn(run: Run, name: str) -> List[sentences.Sentence]:
    """Return sentences of the novels, none of which is evaluated."""
    path = run.data / "text" / f"{name}.txt"
    every = max(1, sum(1 for _ in lines_of(path)) // LINES[name])
    found = sentences.speakable(itertools.islice(lines_of(path), 0, None, every))
    for other in EVALUATED:
        for words in lines_of(run.options.speech / "text" / f"{other}.ref"):
            found.pop(words, None)
    count = run.options.spoken if name == "train" else min(HELD_OUT, len(found))
    return sentences.drawn(found, count, SEED)


def sound_of(run: Run, name: str) -> features.Speech:
    return features.load(run.at("sound", f"{name}.npz"))


def model_of(run: Run) -> Path:
    return run.at("acoustics", "model.pt")


def train(run: Run) -> None:
    """Write acoustics/model.pt."""
    speech, held_out = sound_of(run, "train"), sound_of(run, "valid")
    acoustics.train(model_of(run), speech, run.options.updates, held_out, say)


def emit(run: Run, name: str) -> None:
    """Write emissions/NAME.npz, with the processor seconds that they took."""
    model, _ = acoustics.read(model_of(run))
    speech = sound_of(run, name)
    start = time.process_time()
    found = model.emit(speech.features())
    seconds = time.process_time() - start
    np.savez(run.at("emissions", f"{name}.npz"), *found, seconds=seconds)


# ---------------------------------------------------------------- decoding


def trigram(run: Run) -> None:
    """Write trigram.arpa, from the text that the language model learned from."""
    words = list(dictionary(run))
    known = set(words)
    lines = lines_of(run.options.speech / "text/train.txt")
    text = ([w if w in known else sentences.UNKNOWN for w in line.split()] for line in lines)
    ngrams.write_arpa(run.folder / "trigram.arpa", text, words)


def dictionary(run: Run) -> Dict[str, int]:
    """Return the language model's words that letters spell, and how often its text has them."""
    lines = lines_of(run.options.speech / "data/bin/dict.txt")
    counts = (line.split(" ") for line in lines)
    return {word: int(count) for word, count in counts if _SPELLABLE.fullmatch(word)}


def make(run: Run, system: str) -> searches.Search:
    library, _, model = system.partition(" ")
    if library == "greedy":
        return searches.Search(acoustics.greedy)
    checkpoint, counts = run.options.speech / "lm" / "checkpoint_best.pt", dictionary(run)
    arpa = run.folder / "trigram.arpa"
    files = searches.Files(checkpoint, arpa, list(counts), list(counts.values()))
    return getattr(searches, library)(model, files)


def decode(run: Run, system: str) -> None:
    """Write decoded/SYSTEM.json: weights, and the recognised words of the test half."""
    search = make(run, system)
    gc.freeze()  # what the libraries have made stays: no collection need look at it
    found = tune(run, system, search)
    search.weigh(found["lm_weight"], found["word_score"])
    emissions, references = emissions_of(run, "test")
    before, start = search.counts(), time.process_time()
    texts = list(map(search.decode, emissions))
    found["processor_seconds"] = time.process_time() - start
    words, contexts = (now - then for then, now in zip(before, search.counts()))
    found.update(words_scored=words, contexts_read=contexts, texts=texts)
    value, low, high = errors.rate(errors.counts(texts, references))
    say(f"{system}: {value:.2f} [{low:.2f}, {high:.2f}] in {found['processor_seconds']:.1f} s")
    write_json(decoded(run, system), found)


def decoded(run: Run, system: str) -> Path:
    return run.at("decoded", f"{system.replace(' ', '-')}.json")


def tune(run: Run, system: str, search: searches.Search) -> Dict[str, Any]:
    """Return the best weights of those that are tried on the first sentences of the other half.

    Exact scores have the weights of unnormalised ones, so that nothing else differs.
    """
    if system.endswith(EXACT):
        found = read_json(decoded(run, system[: -len(EXACT)]))
        return {name: found[name] for name in ("lm_weight", "word_score", "tried")}
    emissions, references = emissions_of(run, "tune")
    tried: Dict[Tuple[float, float], float] = {}

    def error(weights: Tuple[float, float]) -> float:
        if weights not in tried:
            search.weigh(*weights)
            texts = map(search.decode, emissions[: run.options.tuned])
            tried[weights] = errors.rate(errors.counts(texts, references))[0]
            say(f"{system}: {weights}: {tried[weights]:.2f}")
        return tried[weights]

    lm_weights, word_scores = SYSTEMS[system]
    lm_weight, _ = min(((weight, word_scores[0]) for weight in lm_weights), key=error)
    best = min(((lm_weight, score) for score in word_scores), key=error)
    return {"lm_weight": best[0], "word_score": best[1], "tried": len(tried)}


def emissions_of(run: Run, name: str) -> Tuple[List[np.ndarray], List[str]]:
    """Return the emissions of each sentence, and its words."""
    with np.load(run.at("emissions", f"{name}.npz")) as stored:
        found = [stored[key] for key in stored if key != "seconds"]
    return found, sound_of(run, name).words


# ---------------------------------------------------------------- results


def write_report(run: Run) -> None:
    """Write first-pass.json: errors, times and weights of all that has been decoded."""
    seconds = {name: sound_of(run, name).seconds for name in ("train", "test")}
    references = emissions_of(run, "test")[1]
    systems, counts = {}, {}
    for system in SYSTEMS:
        if decoded(run, system).is_file():
            found = read_json(decoded(run, system))
            counts[system] = errors.counts(found.pop("texts"), references)
            found["real_time"] = found["processor_seconds"] / seconds["test"]
            systems[system] = {"wer": errors.rate(counts[system]), **found}
    pairs = itertools.product(LIBRARIES, ("none", "kenlm", "ours exact"))
    compared = [(f"{library} {model}", f"{library} ours") for library, model in pairs]
    written = {
        "machine": machine.record(),
        "data": run.data.name,
        "sentences": len(references),
        "words": sum(len(words.split()) for words in references),
        "tuned": run.options.tuned,
        "audio_seconds": seconds["test"],
        "acoustics": of_acoustics(run, seconds),
        "systems": systems,
        "differences": {
            f"{after} - {before}": errors.difference(counts[before], counts[after])
            for before, after in compared
            if {before, after} <= set(counts)
        },
    }
    say(write_json(run.folder / "first-pass.json", written))


def of_acoustics(run: Run, audio: Dict[str, float]) -> Dict[str, Any]:
    """Return how the model of sound was trained, what it reads greedily, and how fast it is."""
    _, stored = acoustics.read(model_of(run))
    with np.load(run.at("emissions", "test.npz")) as emissions:
        seconds = float(emissions["seconds"])
    return {
        "sentences": run.options.spoken,
        "hours": audio["train"] / 3600,
        "updates": stored["update"],
        "processor_seconds": stored["seconds"],
        "parameters": sum(one.numel() for one in stored["model"].values()),
        "letters_wrong": acoustics.letter_error_rate(*emissions_of(run, "valid")),
        "real_time": seconds / audio["test"],
    }


STAGES: Steps = {
    **{f"speak-{name}": partial(speak, name=name) for name in (*LINES, *EVALUATED)},
    "train": train,
    **{f"emit-{name}": partial(emit, name=name) for name in ("valid", *EVALUATED)},
    "trigram": trigram,
    **{f"decode-{name.replace(' ', '-')}": partial(decode, system=name) for name in SYSTEMS},
    REPORT: write_report,
}


def main(arguments: Sequence[str]) -> int:
    """Do all stages, or those that are asked for, and return 0."""
    flags = stages.parser(__doc__, STAGES, "first-pass")
    add = flags.add_argument
    add("--speech", type=Path, required=True, help="folder that speech_example.py made")
    about = "sentences that it learns from (%(default)s)"
    add("--spoken", type=command.positive, default=8_000, help=about)
    add("--updates", type=command.positive, default=3_000, help="of the CTC model (%(default)s)")
    add("--tuned", type=command.positive, default=150, help="sentences for weights (%(default)s)")
    options = flags.parse_args(arguments)
    torch.set_num_threads(options.threads)
    return stages.run_all(options, STAGES)


if __name__ == "__main__":
    command.start(main)
