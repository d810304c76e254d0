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
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, TextIO

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = str(ROOT / "fairseq_bnce")
LANGUAGES = ("fr", "en")
MERGES = 4000
LISTS = ("tune", "test")
LONGEST = 50  # words of a pair that the translation model learns from

COMMON = """
  --required-batch-size-multiple 1 --no-epoch-checkpoints --num-workers 0 --no-progress-bar
  --log-format simple --log-interval 50 --seed 1
"""

# Small and regularised, as suits 10,000 pairs; a single decoder layer, since lists of 100 are slow.
TRANSLATION = """
  --task translation --arch transformer --share-all-embeddings
  --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-layers 2 --encoder-attention-heads 4
  --decoder-embed-dim 128 --decoder-ffn-embed-dim 512 --decoder-layers 1 --decoder-attention-heads 4
  --encoder-normalize-before --decoder-normalize-before --dropout 0.2
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1
  --optimizer adam --adam-betas (0.9,0.98) --lr 0.003 --lr-scheduler inverse_sqrt
  --warmup-updates 400 --weight-decay 0.0001 --clip-norm 1 --max-tokens 2500 --max-epoch 25
  --max-valid-steps 20
"""

LANGUAGE = """
  --task language_modeling --arch rnn_lm --decoder-embed-dim 256 --dropout 0.5
  --criterion bnce --row-sparse --noise-samples 400 --optimizer sparse_adagrad --lr 0.1
  --clip-norm 1 --sample-break-mode eos --tokens-per-sample 300 --max-tokens 1000 --max-epoch 15
  --patience 3
"""

# Lists: fairseq's own length penalty orders them.
GENERATION = """
  --nbest 100 --beam 100 --max-len-a 1.2 --max-len-b 10 --remove-bpe --batch-size 8
  --required-batch-size-multiple 1 --no-progress-bar --num-workers 0
"""

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
        self.options = options
        self.folder.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Do it unless it was done; a file OUT/done/NAME tells, with the seconds that it took."""
        done = self.folder / "done" / name
        if done.exists():
            return say(f"{name}: done before, {done.read_text().strip()} s")
        say(name)
        start = time.time()
        work()
        done.parent.mkdir(exist_ok=True)
        done.write_text(f"{time.time() - start:.0f}\n")
        say(f"{name}: {time.time() - start:.0f} s")

    def python(self, module: str, *arguments: Any, **streams: Optional[Path]) -> None:
        """``python -m module``, as :meth:`command`."""
        self.command(sys.executable, "-m", module, *arguments, **streams)

    def command(
        self, *arguments: Any, out: Optional[Path] = None, log: Optional[Path] = None
    ) -> None:
        """What it prints goes to ``out``, or with its messages to ``log``, OUT/log by default.

        Raises:
            SystemExit: if the command fails.
        """
        command = [str(argument) for argument in arguments]
        log = log or self.folder / "log"
        with open(log, "a", encoding="utf-8") as messages:
            print("$", shlex.join(command), file=messages, flush=True)
            with open(out or os.devnull, "wb") as stream:
                status = subprocess.call(
                    command, stdout=stream if out else messages, stderr=messages
                )
        if status:
            sys.exit(f"rescoring_example.py: error: {command[2]} failed; see {log}")

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
    path = run.folder / "text" / f"{name}.{language}"
    path.parent.mkdir(exist_ok=True)
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
    run.command(sys.executable, "-c", main, *arguments)


def binarise(run: Run) -> None:
    """bin-tm/ and bin-lm/, the latter with the words that train has at least twice."""
    source, target = LANGUAGES
    bpe, text = run.folder / "bpe", run.folder / "text"
    tests = ",".join(str(bpe / name) for name in LISTS)
    flags = ["-s", source, "-t", target, "--joined-dictionary", "--trainpref", bpe / "clean"]
    flags += ["--validpref", bpe / "valid", "--testpref", tests]
    run.python("fairseq_cli.preprocess", *flags, "--destdir", run.folder / "bin-tm")
    flags = ["--only-source", "--thresholdsrc", 2, "--trainpref", text / f"train.{target}"]
    flags += ["--validpref", text / f"valid.{target}", "--destdir", run.folder / "bin-lm"]
    run.python("fairseq_cli.preprocess", *flags)


# ---------------------------------------------------------------- models


def train(run: Run, model: str, recipe: str) -> None:
    """A model's best checkpoint by validation loss; goes on where it was interrupted."""
    data = run.folder / ("bin-tm" if model == "tm" else "bin-lm")
    flags = [*recipe.split(), *COMMON.split(), "--save-dir", run.folder / model, *cpu(run)]
    run.python("fairseq_cli.train", data, "--user-dir", PLUGIN, *flags)


def cpu(run: Run) -> List[str]:
    return [] if run.options.gpu else ["--cpu"]


# ---------------------------------------------------------------- lists


class Entry(NamedTuple):
    """A line of fairseq-generate's: ``score`` as it sorts by, the sum of ``log_probs`` in nats."""

    text: str
    score: float
    log_prob: float


def translate(run: Run, name: str) -> None:
    """lists/NAME.nbest.gz"""
    folder = run.folder / "lists"
    folder.mkdir(exist_ok=True)
    printed = folder / f"{name}.generated"
    number = LISTS.index(name)
    flags = ["--gen-subset", f"test{number or ''}", "--path", run.checkpoint("tm"), *cpu(run)]
    # The plugin is imported for torch >= 2.6, which would refuse fairseq's checkpoints without it.
    flags += ["--user-dir", PLUGIN, *GENERATION.split()]
    run.python("fairseq_cli.generate", run.folder / "bin-tm", *flags, out=printed)
    part = folder / f"{name}.nbest.gz.part"
    with printed.open(encoding="utf-8") as lines, gzip.open(part, "wt", encoding="utf-8") as out:
        found = entries(lines)
        write_moses(found, out)
    check_complete(run, name, found)
    part.replace(folder / f"{name}.nbest.gz")
    printed.unlink()


def check_complete(run: Run, name: str, found: Dict[int, List[Entry]]) -> None:
    """fairseq skips sentences without failing: those that are too long, or the last few."""
    wanted = len(read(run.folder / "text" / f"{name}.fr"))
    if len(found) != wanted:
        sys.exit(f"rescoring_example.py: error: {name}: required {wanted} lists, got {len(found)}")


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


def score(run: Run, name: str, is_exact: bool) -> None:
    """scored/NAME.unnormalized, with the feature BNCE, or scored/NAME, with Exact besides."""
    folder = run.folder / "scored"
    folder.mkdir(exist_ok=True)
    flags = ["--path", run.checkpoint("lm"), "--data", run.folder / "bin-lm"]
    if is_exact:
        flags += ["--exact", "--feature", "Exact", "--out", folder / name]
        source = folder / f"{name}.unnormalized"
    else:
        flags += ["--out", folder / f"{name}.unnormalized"]
        source = run.folder / "lists" / f"{name}.nbest.gz"
    run.python("fairseq_bnce.cli", "rescore", *flags, source)


def tune(run: Run, variant: str) -> None:
    """weights/VARIANT, tuned on the second half of dev; then test by them."""
    weights = run.folder / "weights" / variant
    weights.parent.mkdir(exist_ok=True)
    flags = ["--tune", run.folder / "text" / "tune.en", "--tune-features", VARIANTS[variant]]
    flags += ["--weights-out", weights, "--out", os.devnull]
    run.python("fairseq_bnce.cli", "rescore", *flags, run.folder / "scored" / "tune")
    apply(run, variant)


def exchange(run: Run) -> None:
    """Exact scores by the weights of the unnormalised ones: what normalising alone changes."""
    weights = run.folder / "weights"
    text = (weights / "unnormalized").read_text()
    (weights / EXCHANGED).write_text(text.replace("BNCE=", "Exact="))
    apply(run, EXCHANGED)


def apply(run: Run, variant: str) -> None:
    """best/VARIANT: the translations of test; best/VARIANT.log: how good they are."""
    folder = run.folder / "best"
    folder.mkdir(exist_ok=True)
    flags = ["--weights", run.folder / "weights" / variant, "--out", os.devnull]
    flags += ["--ref", run.folder / "text" / "test.en", "--best", folder / variant]
    scored, log = run.folder / "scored" / "test", folder / f"{variant}.log"
    run.python("fairseq_bnce.cli", "rescore", *flags, scored, log=log)


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


def main(argv: Optional[Sequence[str]] = None) -> None:
    """All stages, or those up to the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("fr-en-run"))
    parser.add_argument("--gpu", action="store_true", help="train and translate on a GPU")
    parser.add_argument("--until", metavar="STAGE", help="the last stage to do")
    options = parser.parse_args(argv)
    run = Run(options)
    steps: Dict[str, Callable[[], Any]] = {
        "text": lambda: split_text(run),
        "subwords": lambda: segment(run),
        "binarise": lambda: binarise(run),
        "lm": lambda: train(run, "lm", LANGUAGE),
        "tm": lambda: train(run, "tm", TRANSLATION),
    }
    for name in LISTS:
        steps[f"translate-{name}"] = lambda name=name: translate(run, name)
    for is_exact, kind in ((False, "unnormalized"), (True, "exact")):
        for name in LISTS:
            steps[f"score-{name}-{kind}"] = lambda name=name, is_exact=is_exact: score(
                run, name, is_exact
            )
    for variant in VARIANTS:
        steps[f"tune-{variant}"] = lambda variant=variant: tune(run, variant)
    steps["exchange"] = lambda: exchange(run)
    if options.until not in (None, *steps):
        parser.error(f"--until: required one of {', '.join(steps)}, got {options.until!r}")
    for name, work in steps.items():
        run.stage(name, work)
        if name == options.until:
            return
    report(run)


if __name__ == "__main__":
    main()
