#!/usr/bin/env python3
"""A real rescoring: sentences are spoken and recognised, and B-NCE scores the recogniser's lists.

    fairseq-bnce get-data mscc --source FOLDER --out mscc
    python scripts/speech_example.py --data mscc --out speech-run

Held-out sentences of the novels, spoken by flite, are recognised by pocketsphinx with the models
that it brings. A language model trained on the other sentences is added to its 100-best lists, by
weights that are tuned on one half of them, and the other half tells the word error rate. With
``--model softmax`` it is a stock transformer_lm, trained by cross_entropy, to whose checkpoint
fairseq-bnce diagnose adds what makes its scores close to normalised ones without a softmax. Stages
that are finished are not run again; lists and training go on where they were interrupted. What the
commands print is in OUT/log, what came out in OUT/speech.json.

Needs: apt-get install flite; pip install pocketsphinx jiwer, for the Python with fairseq.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence

import numpy as np
from experiments import command, machine, tables
from experiments.recipes import words
from speech import errors as word_errors
from speech import sentences, sound
from speech.stages import REPORT, Run, Steps, lines_of, parser, run_all, say, write, write_json

from fairseq_bnce.rescoring.measures import WordErrorRate

LISTS = ("tune", "test")
SIZE = 100  # hypotheses of a list
SEED = 1
VALID = 15  # every so many held-out sentences validate the model
RECIPE = tables.load("recipes")["speech"]

FIRST_PASS = "Acoustic,Trigram,Words"
UNNORMALIZED = f"{FIRST_PASS},BNCE,BNCEOOV"
EXACT = f"{FIRST_PASS},BNCEExact,BNCEOOV"
HALF = "-half"  # the same lists, scored as if the model knew the commoner half of its words alone
# What gets weights, and which lists have it.
VARIANTS = {
    "trigram": (FIRST_PASS, ""),
    "unnormalized": (UNNORMALIZED, ""),
    "exact": (EXACT, ""),
    "unnormalized-half": (UNNORMALIZED, HALF),
    "exact-half": (EXACT, HALF),
}
EXCHANGED = "exchanged"
MODEL = ("contexts", "ppl", "mu_z", "sigma_z")  # what diagnose finds that is reported
SOFTMAX = "softmax"
BEST, CALIBRATED = "checkpoint_best.pt", "checkpoint_best.calibrated.pt"
# (before, after), of the same sentences
COMPARED = (
    *(("first", variant) for variant in (*VARIANTS, EXCHANGED)),
    *(("trigram", variant) for variant in (*VARIANTS, EXCHANGED) if variant != "trigram"),
    ("exact", "unnormalized"),
    ("exact-half", "unnormalized-half"),
    ("exact", EXCHANGED),
)


# ---------------------------------------------------------------- text


def draw(run: Run) -> None:
    """text/: train and valid as the model reads them; tune and test, of which train has none."""
    source = run.data / "text"
    if not (source / "train.txt").is_file():
        raise command.UsageError(f"--data: required {source}/train.txt, got no such file")
    found = sentences.speakable(lines_of(source / "test.txt"))
    write(run.at("text", "train.txt"), training_text(lines_of(source / "train.txt"), found))
    validation = list(lines_of(source / "valid.txt"))[::VALID]
    write(run.at("text", "valid.txt"), training_text(validation, found))
    try:
        drawn = sentences.drawn(found, 2 * run.options.sentences, SEED)
    except ValueError as error:
        raise command.UsageError(f"--sentences: {error}") from error
    for name, half in zip(LISTS, (drawn[: run.options.sentences], drawn[run.options.sentences :])):
        write(run.at("text", f"{name}.ref"), (sentence.words for sentence in half))
        write(run.at("text", f"{name}.spoken"), (sentence.spoken for sentence in half))


def training_text(lines: Iterable[str], apart: Dict[str, sentences.Sentence]) -> Iterator[str]:
    """Normalised, without lists of contents; what it has is taken out of ``apart``."""
    for line in lines:
        text = sentences.normalised(line)
        apart.pop(text, None)
        if 1 <= len(text.split()) <= sentences.LONGEST:
            yield text


def binarise(run: Run) -> None:
    """data/, with the 50,000 commonest words."""
    text = run.folder / "text"
    flags = ["--tokenized", "--train", text / "train.txt", "--valid", text / "valid.txt"]
    flags += ["--vocab-size", 50_000, "--overwrite", "--out", run.folder / "data"]
    run.python("-m", "fairseq_bnce.cli", "prepare-text", *flags)


def train(run: Run) -> None:
    """lm/: the best checkpoint by validation loss; goes on where it was interrupted."""
    flags = [*words([RECIPE["training"], RECIPE["models"][run.options.model]])]
    flags += ["--max-update", run.options.updates, "--save-dir", run.folder / "lm"]
    data = run.folder / "data" / "bin"
    run.python("-m", "fairseq_cli.train", data, "--user-dir", run.plugin, *flags)


def calibrate(run: Run) -> None:
    """For a softmax's model: rows, or mu_z alone, written into a checkpoint of their own."""
    if run.options.model != SOFTMAX:
        return
    text, rows = ("train.txt", ["--reduced-partition", run.options.rows])
    if not run.options.rows:
        text, rows = "valid.txt", []
    flags = ["--calibrate", run.folder / "lm" / CALIBRATED, "--overwrite", *rows]
    places = ["--path", run.folder / "lm" / BEST, "--data", run.folder / "data" / "bin"]
    flags += ["--threads", run.threads, run.folder / "text" / text]
    run.python("-m", "fairseq_bnce.cli", "diagnose", *places, *flags)


# ---------------------------------------------------------------- lists


def recognise(run: Run, name: str) -> None:
    """lists/NAME.nbest.gz; lists/NAME.jsonl grows by a line for each sentence."""
    path = run.at("lists", f"{name}.jsonl")
    spoken = list(lines_of(run.folder / "text" / f"{name}.spoken"))
    recogniser = sound.Recogniser()
    with path.open("a+", encoding="utf-8") as stream:
        for text in spoken[whole_lines(stream) :]:
            found = recogniser.recognise(sound.speak(text), SIZE)
            stream.write(f"{json.dumps(found)}\n")
            stream.flush()
    answers, lists = zip(*(json.loads(line) for line in lines_of(path)))
    write(run.at("lists", f"{name}.first"), answers)
    write(run.at("lists", f"{name}.nbest.gz"), moses(lists))


def whole_lines(stream: Any) -> int:
    """How many there are; a last one that was interrupted is cut off."""
    stream.seek(0)
    text = stream.read()
    whole = text.rfind("\n") + 1
    stream.truncate(len(text[:whole].encode("utf-8")))
    return text.count("\n")


def moses(lists: Iterable[Sequence[Sequence[Any]]]) -> Iterator[str]:
    """Lines of n-best lists: sound and trigram apart, and the recogniser's total of both."""
    for number, entries in enumerate(lists):
        for entry in (sound.Entry(*entry) for entry in entries or [("", 0.0, 0.0)]):
            features = f"Acoustic= {entry.acoustic:.4f} Trigram= {entry.trigram:.4f}"
            features += f" Words= {len(entry.text.split())}"
            yield f"{number} ||| {entry.text} ||| {features} ||| {entry.total:.4f}"


# ---------------------------------------------------------------- rescoring


def rescore(run: Run, *arguments: Any) -> None:
    run.python("-m", "fairseq_bnce.cli", "rescore", *arguments)


def score(run: Run, name: str) -> None:
    """scored/NAME, with the model's scores of both kinds."""
    add_scores(run, run.folder / "lists" / f"{name}.nbest.gz", run.at("scored", name))


def score_half(run: Run, name: str) -> None:
    """scored/NAME-half: the rarer half of the model's words is unknown to it."""
    lists = run.folder / "lists" / f"{name}.nbest.gz"
    masked, scored = run.at("masked", f"{name}.nbest.gz"), run.at("masked", name)
    known = [line.split(" ")[0] for line in lines_of(run.folder / "data" / "bin" / "dict.txt")]
    common = set(known[: len(known) // 2])
    write(masked, (mask(line, common) for line in lines_of(lists)))
    add_scores(run, masked, scored)
    write(run.at("scored", name + HALF), map(with_words_of, lines_of(scored), lines_of(lists)))


def diagnose(run: Run) -> None:
    """model.json: perplexity and normalisers of the validation text."""
    flags = ["--json", "--threads", run.threads, run.folder / "text" / "valid.txt"]
    part = run.folder / "part.model.json"
    run.python("-m", "fairseq_bnce.cli", "diagnose", *of_model(run), *flags, printed=part)
    part.replace(run.folder / "model.json")


def add_scores(run: Run, lists: Path, out: Path) -> None:
    flags = ["--both", "--count-oov", "--threads", run.threads, "--out", out]
    rescore(run, *of_model(run), *flags, lists)


def of_model(run: Run) -> List[Any]:
    name = CALIBRATED if run.options.model == SOFTMAX else BEST
    return ["--path", run.folder / "lm" / name, "--data", run.folder / "data" / "bin"]


def mask(line: str, known: Iterable[str]) -> str:
    """A list's line with <unk> for all other words."""
    number, text, *rest = line.split(" ||| ")
    text = " ".join(word if word in known else sentences.UNKNOWN for word in text.split())
    return " ||| ".join([number, text, *rest])


def with_words_of(line: str, other: str) -> str:
    """A list's line with the words of another."""
    number, _, *rest = line.split(" ||| ")
    return " ||| ".join([number, other.split(" ||| ")[1], *rest])


def tune(run: Run, variant: str) -> None:
    """weights/VARIANT, tuned on the first half; then the other half by them."""
    features, lists = VARIANTS[variant]
    flags = ["--tune", run.folder / "text" / "tune.ref", "--tune-features", features]
    flags += ["--metric", "wer", "--weights-out", run.at("weights", variant), "--out", os.devnull]
    rescore(run, *flags, run.folder / "scored" / f"tune{lists}")
    apply(run, variant, lists)


def exchange(run: Run) -> None:
    """Exact scores by the weights of the unnormalised ones: what normalising alone changes."""
    weights = run.folder / "weights"
    lines = lines_of(weights / "unnormalized")
    write(weights / EXCHANGED, (line.replace("BNCE=", "BNCEExact=") for line in lines))
    apply(run, EXCHANGED, lists="")


def apply(run: Run, variant: str, lists: str) -> None:
    """best/VARIANT: the words of the other half by its weights."""
    flags = ["--weights", run.folder / "weights" / variant, "--out", os.devnull]
    rescore(run, *flags, "--best", run.at("best", variant), run.folder / "scored" / f"test{lists}")


# ---------------------------------------------------------------- results


def report(run: Run) -> None:
    """speech.json: errors, weights, and the model on its validation text."""
    model = json.loads((run.folder / "model.json").read_text(encoding="utf-8"))
    variants = (*VARIANTS, EXCHANGED)
    found = {
        "machine": machine.record(),
        "data": run.data.name,
        "sentences": run.options.sentences,
        **errors(run),
        "weights": {name: weights(run.folder / "weights" / name) for name in variants},
        "model": {**said_of_model(run), **{name: model[name] for name in MODEL}},
    }
    say(write_json(run.folder / "speech.json", found))


def said_of_model(run: Run) -> Dict[str, Any]:
    options = run.options
    rows = {"rows": options.rows} if options.model == SOFTMAX else {}
    return {"kind": options.model, "updates": options.updates, **rows}


def errors(run: Run) -> Dict[str, Any]:
    """Word error rates, per cent, with the ends of their intervals, and what they differ by."""
    measure = WordErrorRate()
    references = list(lines_of(run.folder / "text" / "test.ref"))
    lists = listed(lines_of(run.folder / "lists" / "test.nbest.gz"), len(references))
    every = [measure.counts(texts, [right]) for texts, right in zip(lists, references)]
    chosen = {"first": run.folder / "lists" / "test.first"}
    chosen.update((variant, run.folder / "best" / variant) for variant in (*VARIANTS, EXCHANGED))
    counts = {name: word_errors.counts(lines_of(path), references) for name, path in chosen.items()}
    counts["oracle"] = np.array([found[np.argmin(found[:, 0])] for found in every])
    return {
        "words": int(counts["first"][:, 1].sum()),
        "wer": {name: word_errors.rate(found) for name, found in counts.items()},
        "differences": {
            f"{after} - {before}": word_errors.difference(counts[before], counts[after])
            for before, after in COMPARED
        },
    }


def listed(lines: Iterable[str], count: int) -> List[List[str]]:
    """The hypotheses of each list."""
    found: List[List[str]] = [[] for _ in range(count)]
    for line in lines:
        number, text, *_ = line.split(" ||| ")
        found[int(number)].append(text)
    return found


def weights(path: Path) -> Dict[str, float]:
    pairs = (line.split("= ", 1) for line in lines_of(path))
    return {name: float(weight) for name, weight in pairs}


# ---------------------------------------------------------------- command line


def main(arguments: Sequence[str]) -> int:
    """All stages, or those that are asked for."""
    steps = stages()
    flags = parser(__doc__, steps, "speech-run")
    add = flags.add_argument
    add("--sentences", type=command.positive, default=500, help="of each half (%(default)s)")
    add("--updates", type=command.positive, default=5_000, help="of the model (%(default)s)")
    add("--model", choices=sorted(RECIPE["models"]), default="ranking", help="(%(default)s)")
    about = "fitted to a softmax's model; 0 for one constant (%(default)s)"
    add("--rows", type=command.at_least(0), default=1_000, help=about)
    return run_all(flags.parse_args(arguments), steps)


def stages() -> Steps:
    """In their order; those of lists and those of the model may run side by side."""
    return {
        "draw": draw,
        **{f"recognise-{name}": partial(recognise, name=name) for name in LISTS},
        "binarise": binarise,
        "train": train,
        "calibrate": calibrate,
        "diagnose": diagnose,
        **{f"score-{name}": partial(score, name=name) for name in LISTS},
        **{f"score-{name}{HALF}": partial(score_half, name=name) for name in LISTS},
        **{f"tune-{variant}": partial(tune, variant=variant) for variant in VARIANTS},
        "exchange": exchange,
        REPORT: report,
    }


if __name__ == "__main__":
    command.start(main)
