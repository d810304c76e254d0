#!/usr/bin/env python3
"""A real rescoring: translate with a small fairseq model, rescore its 100-best lists with B-NCE.

    python scripts/rescoring_example.py --data fr-en --out fr-en-run

``--data`` has train, dev and test as tokenised ``.fr`` and ``.en``. The first half of dev serves to
validate both models, weights are tuned on the second half, and test is only rescored. Stages that
are finished are not run again; an interrupted training goes on from its last checkpoint. What the
commands print is in OUT/log, what came out in OUT/rescoring.json. Needs: pip install subword-nmt.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import gzip
import json
import math
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TextIO,
)

from experiments import command, machine, processes, tables
from experiments.recipes import words

LANGUAGES = ("fr", "en")
MERGES = 4000
LISTS = ("tune", "test")
LONGEST = 50  # words of a pair that the translation model learns from
RECIPES = tables.load("recipes")["rescoring"]

# What gets weights: fairseq's own score, its parts, and the language model's score.
VARIANTS = {
    "without": "score,TM,Words",
    "unnormalized": "score,TM,Words,BNCE",
    "exact": "score,TM,Words,Exact",
}
EXCHANGED = "exchanged"

# What rescore says of test: the measure and its interval, before, after, and the difference.
MEASURED = re.compile(r"(before|after|difference) ([-+.\d]+) \[([-+.\d]+), ([-+.\d]+)\]")


# ---------------------------------------------------------------- stages


class Run:
    """A folder with results, and how commands are run for it."""

    def __init__(self, options: argparse.Namespace):
        self.data, self.folder = options.data.resolve(), options.out.resolve()
        self.threads, self.cpu = options.threads, [] if options.gpu else ["--cpu"]
        self.plugin = machine.plugin_folder()
        self.folder.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Do it unless it was done; a file OUT/done/NAME tells, with the seconds that it took."""
        done = self.at("done", name)
        if done.exists():
            return say(f"{name}: done before, {done.read_text().strip()} s")
        say(name)
        start = time.time()
        work()
        done.write_text(f"{time.time() - start:.0f}\n")
        say(f"{name}: {time.time() - start:.0f} s")

    def at(self, folder: str, name: str) -> Path:
        """The path of a file; its folder is made."""
        (self.folder / folder).mkdir(exist_ok=True)
        return self.folder / folder / name

    def python(self, *arguments: Any, log: str = "log", printed: Optional[Path] = None) -> None:
        """A command of this Python; what it prints goes to OUT/LOG, or standard output elsewhere.

        Raises:
            processes.CommandFailed: if it did not succeed.
        """
        line = [sys.executable, *map(str, arguments)]
        processes.run(line, self.folder / log, self.threads, printed)

    def checkpoint(self, model: str) -> Path:
        return self.folder / model / "checkpoint_best.pt"


def say(text: str) -> None:
    print(text, flush=True)


# ---------------------------------------------------------------- data


def split_text(run: Run) -> None:
    """text/: train, clean (its pairs of a common length), valid and tune (halves of dev), test."""
    for language in LANGUAGES:
        dev = read(run.data / f"dev.{language}")
        middle = (len(dev) + 1) // 2
        write(run, "valid", language, dev[:middle])
        write(run, "tune", language, dev[middle:])
        for name in ("train", "test"):
            write(run, name, language, read(run.data / f"{name}.{language}"))
    pairs = zip(*(read(run.data / f"train.{language}") for language in LANGUAGES))
    clean = [pair for pair in pairs if all(1 <= len(side.split()) <= LONGEST for side in pair)]
    for language, lines in zip(LANGUAGES, zip(*clean)):
        write(run, "clean", language, lines)


def read(path: Path) -> List[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def write(run: Run, name: str, language: str, lines: Sequence[str]) -> None:
    path = run.at("text", f"{name}.{language}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def segment(run: Run) -> None:
    """bpe/: the same text in subwords of both languages together, for the translation model."""
    folder, text = run.folder / "bpe", run.folder / "text"
    folder.mkdir(exist_ok=True)
    sources = [text / f"clean.{language}" for language in LANGUAGES]
    vocabularies = [folder / f"vocab.{language}" for language in LANGUAGES]
    learn = ["learn-joint-bpe-and-vocab", "-s", MERGES, "-o", folder / "codes", "--input"]
    subwords(run, *learn, *sources, "--write-vocabulary", *vocabularies)
    for name in ("clean", "valid", *LISTS):
        for language in LANGUAGES:
            apply = ["apply-bpe", "-c", folder / "codes", "--vocabulary"]
            apply += [folder / f"vocab.{language}", "--vocabulary-threshold", 5]
            apply += ["-i", text / f"{name}.{language}", "-o", folder / f"{name}.{language}"]
            subwords(run, *apply)


def subwords(run: Run, *arguments: Any) -> None:
    """subword-nmt of this Python; its modules can't be run by themselves."""
    main = "from subword_nmt.subword_nmt import main; main()"
    run.python("-c", main, *arguments)


def binarise(run: Run) -> None:
    """bin-tm/ and bin-lm/, the latter with the words that train has at least twice."""
    source, target = LANGUAGES
    bpe, text = run.folder / "bpe", run.folder / "text"
    tests = ",".join(str(bpe / name) for name in LISTS)
    flags = ["-s", source, "-t", target, "--joined-dictionary", "--trainpref", bpe / "clean"]
    flags += ["--validpref", bpe / "valid", "--testpref", tests]
    run.python("-m", "fairseq_cli.preprocess", *flags, "--destdir", run.folder / "bin-tm")
    flags = ["--only-source", "--thresholdsrc", 2, "--trainpref", text / f"train.{target}"]
    flags += ["--validpref", text / f"valid.{target}", "--destdir", run.folder / "bin-lm"]
    run.python("-m", "fairseq_cli.preprocess", *flags)


# ---------------------------------------------------------------- models


def train(run: Run, model: str) -> None:
    """A model's best checkpoint by validation loss; goes on where it was interrupted."""
    flags = [*words([RECIPES[model], RECIPES["common"]]), "--save-dir", run.folder / model]
    data = run.folder / f"bin-{model}"
    run.python("-m", "fairseq_cli.train", data, "--user-dir", run.plugin, *flags, *run.cpu)


# ---------------------------------------------------------------- lists


class Entry(NamedTuple):
    """A line of fairseq-generate's: ``score`` as it sorts by, the sum of ``log_probs`` in nats."""

    text: str
    score: float
    log_prob: float


def translate(run: Run, name: str) -> None:
    """lists/NAME.nbest.gz"""
    printed, part = (run.at("lists", f"{name}.{kind}") for kind in ("generated", "nbest.gz.part"))
    number = LISTS.index(name)
    flags = ["--gen-subset", f"test{number or ''}", "--path", run.checkpoint("tm"), *run.cpu]
    # The plugin is imported for torch >= 2.6, which would refuse fairseq's checkpoints without it.
    flags += ["--user-dir", run.plugin, *words(RECIPES["lists"])]
    run.python("-m", "fairseq_cli.generate", run.folder / "bin-tm", *flags, printed=printed)
    with printed.open(encoding="utf-8") as lines, gzip.open(part, "wt", encoding="utf-8") as out:
        found = entries(lines)
        write_moses(found, out)
    check_complete(run, name, found)
    part.replace(part.with_suffix(""))
    printed.unlink()


def check_complete(run: Run, name: str, found: Dict[int, List[Entry]]) -> None:
    """fairseq skips sentences without failing: those that are too long, or the last few."""
    wanted = len(read(run.folder / "text" / f"{name}.fr"))
    if len(found) != wanted:
        raise command.UsageError(f"{name}: required {wanted} lists, got {len(found)}")


def entries(lines: TextIO) -> Dict[int, List[Entry]]:
    """What fairseq-generate printed, by sentence: its H lines and the P lines behind them."""
    found: Dict[int, List[Entry]] = {}
    for kind, number, *fields in tagged(lines):
        if kind == "H":
            entry = Entry(fields[1], float(fields[0]) * math.log(2), 0.0)
            found.setdefault(number, []).append(entry)
        else:
            total = sum(map(float, fields[0].split())) * math.log(2)  # it prints base 2
            found[number][-1] = found[number][-1]._replace(log_prob=total)
    return found


def tagged(lines: TextIO) -> Iterator[List[Any]]:
    for line in lines:
        tag, *fields = line.rstrip("\n").split("\t")
        kind, _, number = tag.partition("-")
        if kind in ("H", "P") and number.isdigit():
            yield [kind, int(number), *fields]


def write_moses(found: Dict[int, List[Entry]], out: TextIO) -> None:
    for number in sorted(found):
        for entry in found[number]:
            features = f"TM= {entry.log_prob:.4f} Words= {len(entry.text.split())}"
            out.write(f"{number} ||| {entry.text} ||| {features} ||| {entry.score:.6f}\n")


# ---------------------------------------------------------------- rescoring


def score(run: Run, name: str) -> None:
    """scored/NAME.unnormalized, with the feature BNCE."""
    source = run.folder / "lists" / f"{name}.nbest.gz"
    rescore(run, *by_model(run), "--out", run.at("scored", f"{name}.unnormalized"), source)


def score_exactly(run: Run, name: str) -> None:
    """scored/NAME, with Exact besides."""
    flags = [*by_model(run), "--exact", "--feature", "Exact", "--out", run.at("scored", name)]
    rescore(run, *flags, run.at("scored", f"{name}.unnormalized"))


def by_model(run: Run) -> List[Any]:
    return ["--path", run.checkpoint("lm"), "--data", run.folder / "bin-lm"]


def rescore(run: Run, *arguments: Any, log: str = "log") -> None:
    run.python("-m", "fairseq_bnce.cli", "rescore", *arguments, log=log)


def tune(run: Run, variant: str) -> None:
    """weights/VARIANT, tuned on the second half of dev; then test by them."""
    weights = run.at("weights", variant)
    flags = ["--tune", run.folder / "text" / "tune.en", "--tune-features", VARIANTS[variant]]
    flags += ["--weights-out", weights, "--out", os.devnull]
    rescore(run, *flags, run.folder / "scored" / "tune")
    apply(run, variant)


def exchange(run: Run) -> None:
    """Exact scores by the weights of the unnormalised ones: what normalising alone changes."""
    weights = run.folder / "weights"
    text = (weights / "unnormalized").read_text()
    (weights / EXCHANGED).write_text(text.replace("BNCE=", "Exact="))
    apply(run, EXCHANGED)


def apply(run: Run, variant: str) -> None:
    """best/VARIANT: the translations of test; best/VARIANT.log: how good they are."""
    flags = ["--weights", run.folder / "weights" / variant, "--out", os.devnull]
    flags += ["--ref", run.folder / "text" / "test.en", "--best", run.at("best", variant)]
    rescore(run, *flags, run.folder / "scored" / "test", log=f"best/{variant}.log")


def report(run: Run) -> None:
    """rescoring.json: what rescore said of test, the weights, and the seconds of every stage."""
    found = {
        "data": run.data.name,
        "variants": {variant: result(run, variant) for variant in (*VARIANTS, EXCHANGED)},
        "seconds": {done.name: int(done.read_text()) for done in (run.folder / "done").iterdir()},
    }
    text = json.dumps(found, indent=1)
    (run.folder / "rescoring.json").write_text(text + "\n", encoding="utf-8")
    say(text)


def result(run: Run, variant: str) -> Dict[str, Any]:
    """BLEU with the ends of its interval, ``before``, ``after`` and ``difference``; weights."""
    said = (run.folder / "best" / f"{variant}.log").read_text(encoding="utf-8")
    found = {name: list(map(float, numbers)) for name, *numbers in MEASURED.findall(said)}
    lines = (run.folder / "weights" / variant).read_text(encoding="utf-8").splitlines()
    weights = dict(line.split("= ", 1) for line in lines)
    return {**found, "weights": {name: float(weight) for name, weight in weights.items()}}


# ---------------------------------------------------------------- command line


def main(arguments: Sequence[str]) -> int:
    """All stages, or those up to the one that is asked for."""
    parser = command.parser(__doc__.splitlines()[0], default=Path("fr-en-run"))
    parser.set_defaults(threads=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gpu", action="store_true", help="train and translate on a GPU")
    parser.add_argument("--until", metavar="STAGE", help="the last stage to do")
    options = parser.parse_args(arguments)
    run = Run(options)
    steps = {name: partial(work, run) for name, work in stages().items()}
    if options.until not in (None, *steps):
        parser.error(f"--until: required one of {', '.join(steps)}, got {options.until!r}")
    return command.status(lambda: run_all(run, steps, options.until))


def stages() -> Dict[str, Callable[[Run], Any]]:
    """In their order."""
    return {
        "text": split_text,
        "subwords": segment,
        "binarise": binarise,
        "lm": partial(train, model="lm"),
        "tm": partial(train, model="tm"),
        **{f"translate-{name}": partial(translate, name=name) for name in LISTS},
        **{f"score-{name}-unnormalized": partial(score, name=name) for name in LISTS},
        **{f"score-{name}-exact": partial(score_exactly, name=name) for name in LISTS},
        **{f"tune-{variant}": partial(tune, variant=variant) for variant in VARIANTS},
        "exchange": exchange,
    }


def run_all(run: Run, steps: Mapping[str, Callable[[], Any]], last: Optional[str]) -> int:
    for name, work in steps.items():
        run.stage(name, work)
        if name == last:
            return 0
    report(run)
    return 0


if __name__ == "__main__":
    command.start(main)
