"""Speech in one pass: a small character model of sound, and language models in its decoder."""

import functools
import gc
import itertools
import re
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from rendering.cells import NAMES
from speech import acoustics, errors, searches, sentences, sound

from ..command import say
from ..workshop import Workshop, lines_of, run_all

DECODERS = NAMES["decoders"]
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
    **{f"{library} {model}": TRIED for library in DECODERS for model in NAMES["language models"]},
    "flashlight none": ((1.0,), (0.0, -1.0, -2.0, -3.0, -4.0)),
    "pyctcdecode none": ((1.0,), (0.0,)),
}


# ---------------------------------------------------------------- sound


def speak(shop: Workshop) -> None:
    """Write sound/NAME.npz: log-mel features, and the words."""
    for name in (*LINES, *EVALUATED):
        sounds = ((sound.speak(one.spoken), one.words) for one in chosen(shop, name))
        acoustics.save_speech(shop.at("sound", f"{name}.npz"), sounds)


def chosen(shop: Workshop, name: str) -> List[sentences.Sentence]:
    """Return the drawn sentences, or for training sentences of the novels without these."""
    text = shop.options.speech / "text"
    if name in EVALUATED:
        pairs = zip(lines_of(text / f"{name}.spoken"), lines_of(text / f"{name}.ref"))
        return [sentences.Sentence(*pair) for pair in pairs]
    path = shop.options.data / "text" / f"{name}.txt"
    every = max(1, sum(1 for _ in lines_of(path)) // LINES[name])
    found = sentences.speakable(itertools.islice(lines_of(path), 0, None, every))
    for other in EVALUATED:
        for words in lines_of(text / f"{other}.ref"):
            found.pop(words, None)
    count = shop.options.spoken if name == "train" else min(HELD_OUT, len(found))
    return sentences.drawn(found, count, SEED)


def sound_of(shop: Workshop, name: str) -> acoustics.Speech:
    return acoustics.load_speech(shop.at("sound", f"{name}.npz"))


def train(shop: Workshop) -> None:
    """Write acoustics/model.pt."""
    path = shop.at("acoustics", "model.pt")
    acoustics.train(path, sound_of(shop, "train"), shop.options.updates, say)


# ---------------------------------------------------------------- decoding


def dictionary(shop: Workshop) -> Dict[str, int]:
    """Return the language model's words that letters spell, and how often its text has them."""
    counts = (line.split(" ") for line in lines_of(shop.options.speech / "data/bin/dict.txt"))
    return {word: int(count) for word, count in counts if _SPELLABLE.fullmatch(word)}


def make(shop: Workshop, system: str) -> searches.Search:
    library, _, model = system.partition(" ")
    if library == "greedy":
        return searches.Search(acoustics.greedy)
    models = shop.options.speech / "lm"
    files = models / "checkpoint_best.pt", models / "kenlm.bin"
    return getattr(searches, library)(model, *files, dictionary(shop))


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


def decode_all(shop: Workshop) -> Dict[str, Any]:
    """Return errors, times and weights of all systems.

    Exact scores have the weights of unnormalised ones, so that nothing else differs.
    """
    model, stored = acoustics.read_model(shop.at("acoustics", "model.pt"))
    tuning, test = sound_of(shop, "tune"), sound_of(shop, "test")
    heard = model.emit(tuning.features()[: shop.options.tuned])
    start = time.process_time()
    emissions = model.emit(test.features())
    spent = time.process_time() - start
    systems: Dict[str, Dict[str, Any]] = {}
    weights: Dict[str, Dict[str, Any]] = {}
    counts = {}
    for system in SYSTEMS:
        search = make(shop, system)
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
    others = (system for system in counts if not system.endswith(" ours"))
    pairs = {other: [f"{other.partition(' ')[0]} ours"] for other in others}
    return {
        "data": shop.options.data.name,
        "sentences": len(test.words),
        "words": sum(len(words.split()) for words in test.words),
        "tuned": shop.options.tuned,
        "audio_seconds": test.seconds,
        "acoustics": {**of_acoustics(shop, model, stored), "real_time": spent / test.seconds},
        "systems": systems,
        "differences": errors.differences(counts, pairs),
    }


def of_acoustics(shop: Workshop, model: Any, stored: Dict[str, Any]) -> Dict[str, Any]:
    """Return how the model of sound was trained, and what it reads greedily."""
    held_out = sound_of(shop, "valid")
    emissions = model.emit(held_out.features())
    return {
        "sentences": shop.options.spoken,
        "hours": sound_of(shop, "train").seconds / 3600,
        "updates": stored["update"],
        "processor_seconds": stored["seconds"],
        "parameters": sum(one.numel() for one in stored["model"].values()),
        "letters_wrong": acoustics.letter_error_rate(emissions, held_out.words),
    }


def measure(options: Any) -> Optional[Dict[str, Any]]:
    torch.set_num_threads(options.threads)
    return run_all(options, {"speak": speak, "train": train, "decode": decode_all})
