"""A real rescoring: sentences are spoken and recognised, and B-NCE scores the lists."""

import json
import os
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

import numpy as np
from speech import errors as word_errors
from speech import sentences, sound

from .. import machine, report
from ..workshop import Workshop, lines_of, run_all, write

LISTS = ("tune", "test")
SIZE = 100  # hypotheses of a list
SEED = 1
VALID = 15  # every so many held-out sentences validate the model
COMMANDS = report.load("recipes")["speech"]

HALF = "-half"  # the same lists; the model knows only the commoner half of its words
EXCHANGED = "exchanged"
MODEL = ("contexts", "ppl", "mu_z", "sigma_z")  # reported numbers of fairseq-bnce diagnose
SOFTMAX = "softmax"


# ---------------------------------------------------------------- text and model


def draw(shop: Workshop) -> None:
    """Write text/: train and valid for the model; tune and test, of which train has none."""
    source, count = shop.options.data / "text", shop.options.sentences
    found = sentences.speakable(lines_of(source / "test.txt"))
    write(shop.at("text", "train.txt"), training_text(lines_of(source / "train.txt"), found))
    validation = list(lines_of(source / "valid.txt"))[::VALID]
    write(shop.at("text", "valid.txt"), training_text(validation, found))
    drawn = sentences.drawn(found, 2 * count, SEED)
    for name, half in zip(LISTS, (drawn[:count], drawn[count:])):
        write(shop.at("text", f"{name}.ref"), (sentence.words for sentence in half))
        write(shop.at("text", f"{name}.spoken"), (sentence.spoken for sentence in half))


def binarise(shop: Workshop) -> None:
    shop.run(COMMANDS["binarise"])


def training_text(lines: Iterable[str], apart: Dict[str, sentences.Sentence]) -> Iterator[str]:
    """Normalise lines, leave out lists of contents, and remove what is left from ``apart``."""
    for line in lines:
        text = sentences.normalised(line)
        apart.pop(text, None)
        if 1 <= len(text.split()) <= sentences.LONGEST:
            yield text


def variants(shop: Workshop) -> Dict[str, str]:
    """Return the features that get weights."""
    own, ngrams = COMMANDS["variants"]
    return {**own, **ngrams} if shop.options.kenlm else own


def chosen(shop: Workshop) -> List[str]:
    """Return the names of all answers to the test sentences that the model had a part in."""
    return [*variants(shop), EXCHANGED]


def train(shop: Workshop) -> None:
    """Write lm/: the best checkpoint by validation loss. Calibrate the model of a softmax."""
    shop.run(COMMANDS["training"], COMMANDS["models"][shop.options.model])
    if shop.options.model == SOFTMAX:
        shop.run(COMMANDS["calibrate"])


def ngrams(shop: Workshop) -> None:
    """Write lm/kenlm.bin, with --kenlm."""
    if shop.options.kenlm:
        source = lines_of(shop.out / "data" / "text" / "train.txt")
        text = (line.replace(sentences.UNKNOWN, "UNK") for line in source)
        write(shop.at("lm", "kenlm.txt"), text)
        for line in COMMANDS["ngrams"]:
            shop.run(line)
        shop.at("lm", "kenlm.arpa").unlink()


# ---------------------------------------------------------------- lists


def recognise(shop: Workshop) -> None:
    """Write lists/NAME.nbest, and lists/NAME.first, the recogniser's own answers."""
    recogniser = sound.Recogniser()
    for name in LISTS:
        spoken = lines_of(shop.out / "text" / f"{name}.spoken")
        found = [recogniser.recognise(sound.speak(text), SIZE) for text in spoken]
        write(shop.at("lists", f"{name}.first"), (one.text for one in found))
        write(shop.at("lists", f"{name}.nbest"), moses([one.entries for one in found]))


def moses(lists: Iterable[Sequence[sound.Entry]]) -> Iterator[str]:
    """Write n-best lists as lines: sound and trigram apart, and the recogniser's total of both."""
    for number, entries in enumerate(lists):
        for entry in entries or [sound.Entry("", 0.0, 0.0)]:
            features = f"Acoustic= {entry.acoustic:.4f} Trigram= {entry.trigram:.4f}"
            features += f" Words= {len(entry.text.split())}"
            yield f"{number} ||| {entry.text} ||| {features} ||| {entry.total:.4f}"


def score(shop: Workshop) -> None:
    """Write scored/NAME with exact and unnormalised scores of the model.

    In scored/NAME-half the model does not know the rarer half of its words.
    """
    known = [line.split(" ")[0] for line in lines_of(shop.out / "data" / "bin" / "dict.txt")]
    common = set(known[: len(known) // 2])
    for name in LISTS:
        lists, masked = shop.out / "lists" / f"{name}.nbest", shop.at("masked", f"{name}.nbest")
        write(masked, (mask(line, common) for line in lines_of(lists)))
        for some, out in ((lists, shop.at("scored", name)), (masked, shop.at("masked", name))):
            shop.run(*COMMANDS["score"], lists=some, scored=out)
        if shop.options.kenlm:
            add_mixture(shop, name)
        texts = (line.split(" ||| ")[1] for line in lines_of(lists))
        halves = map(with_text, lines_of(shop.at("masked", name)), texts)
        write(shop.at("scored", name + HALF), halves)


def add_mixture(shop: Workshop, name: str) -> None:
    """Add the scores of KenLM, and of its mixture with the model, to scored/NAME."""
    command, features = COMMANDS["mix"]
    for feature, flags in features.items():
        scored, mixed = shop.at("scored", name), shop.at("scored", f"{name}.mixed")
        ended = shop.run(*command, flags, scored=scored, mixed=mixed)
        os.replace(mixed, scored)
        write(shop.at("seconds", f"{name}.{feature}"), [str(ended.cpu_seconds)])


def mask(line: str, known: Iterable[str]) -> str:
    """Return a list's line with <unk> for all other words."""
    words = line.split(" ||| ")[1].split()
    return with_text(line, " ".join(w if w in known else sentences.UNKNOWN for w in words))


def with_text(line: str, text: str) -> str:
    """Return a list's line with another text."""
    number, _, *rest = line.split(" ||| ")
    return " ||| ".join([number, text, *rest])


def tune(shop: Workshop) -> None:
    """Write weights/VARIANT, tuned on the first half, and best/VARIANT, the second half's words.

    The last variant weighs exact scores as unnormalised ones: what does normalising alone change?
    """
    for variant, features in variants(shop).items():
        half, chosen_weights = HALF * variant.endswith(HALF), shop.at("weights", variant)
        shop.run(COMMANDS["tune"], features=features, half=half, weights=chosen_weights)
    lines = lines_of(shop.at("weights", "unnormalized"))
    write(shop.at("weights", EXCHANGED), (line.replace("BNCE=", "BNCEExact=") for line in lines))
    for variant in chosen(shop):
        places: Any = {name: shop.at(name, variant) for name in ("weights", "best")}
        shop.run(COMMANDS["best"], half=HALF * variant.endswith(HALF), **places)


# ---------------------------------------------------------------- results


def results(shop: Workshop) -> Dict[str, Any]:
    """Return errors, weights, and the model on its validation text."""
    options, printed = shop.options, shop.out / "model.json"
    shop.run(*COMMANDS["diagnose"], printed=printed)
    model = json.loads(printed.read_text(encoding="utf-8"))
    kind = {"kind": options.model, "updates": options.updates}
    if options.model == SOFTMAX:  # the default rows of fairseq-bnce diagnose
        types = machine.vocabulary_size(shop.out / "data" / "bin")
        kind["rows"] = min(types // 50, 1_000)
    seconds = sorted((shop.out / "seconds").glob("test.*"))
    return {
        "data": options.data.name,
        "sentences": options.sentences,
        **errors(shop),
        "weights": {name: weights(shop, name) for name in chosen(shop)},
        "seconds": {path.name: float(path.read_text("utf-8")) for path in seconds},
        "model": {**kind, **{name: model[name] for name in MODEL}},
    }


def errors(shop: Workshop) -> Dict[str, Any]:
    """Return word error rates, per cent, with the ends of their intervals, and differences."""
    references = list(lines_of(shop.out / "text" / "test.ref"))
    answers = {"first": shop.out / "lists" / "test.first"}
    answers.update((name, shop.out / "best" / name) for name in chosen(shop))
    texts = {name: lines_of(path) for name, path in answers.items()}
    counts = {name: word_errors.counts(text, references) for name, text in texts.items()}
    lists: List[List[str]] = [[] for _ in references]
    for line in lines_of(shop.out / "lists" / "test.nbest"):
        number, text, *_ = line.split(" ||| ")
        lists[int(number)].append(text)
    every = [word_errors.counts(s, [right] * len(s)) for s, right in zip(lists, references)]
    counts["oracle"] = np.array([found[np.argmin(found[:, 0])] for found in every])
    return {
        "words": int(counts["first"][:, 1].sum()),
        "wer": {name: word_errors.rate(found) for name, found in counts.items()},
        "differences": word_errors.differences(counts, COMMANDS["compared"]),
    }


def weights(shop: Workshop, variant: str) -> Dict[str, float]:
    pairs = (line.split("= ", 1) for line in lines_of(shop.at("weights", variant)))
    return {name: float(weight) for name, weight in pairs}


STAGES = {one.__name__: one for one in (draw, binarise, train, ngrams, recognise, score, tune)}


def measure(options: Any) -> Optional[Dict[str, Any]]:
    options.kind = ".calibrated" if options.model == SOFTMAX else ""
    return run_all(options, {**STAGES, "report": results})
