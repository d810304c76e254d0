#!/usr/bin/env python3
"""Hold what fairseq-bnce scores against fairseq-eval-lm, word by word.

    score_agreement.py DATA --out FOLDER
    score_agreement.py DATA --out FOLDER --models rnn_lm mine=checkpoint_best.pt

DATA is a folder made by fairseq-preprocess --only-source. A model is an architecture, which is
trained on DATA for a few hundred updates, or NAME=CHECKPOINT. Each word of the split is scored by
fairseq-eval-lm, a sentence a sample, and by fairseq_bnce.Scorer from the same split as text,
exactly and unnormalised; fairseq prints six decimals.

FOLDER gets agreement.md and agreement.json, and models, text and logs, which a second call does not
make again.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import math
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple

from experiments import command, machine, processes, sentences, tables
from experiments.command import UsageError
from experiments.recipes import words
from rendering import scoring

_RECIPE = tables.load("recipes")["agreement"]
_MODELS = _RECIPE["models"]
_WORDS_OF_A_LINE = re.compile(r"(?:\| |eval_lm:)(\d+) (.* \[-?[\d.]+\])")
_WORD = re.compile(r"(\S+) \[(-?[\d.]+)\]")
Scores = List[Tuple[str, float]]  # (word, log-probability)


@dataclass(frozen=True)
class Agreement:
    """Of one model, scored one way.

    Attributes:
        words: that were compared.
        perplexity: of the split, by fairseq_bnce.
        difference: the largest of any word, in nats.
    """

    words: int
    perplexity: float
    difference: float


class Disagreement(RuntimeError):
    """The two did not score the same words."""


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if other words were scored, 2 for what can't be done, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        return command.status(lambda: _compare(options))
    except Disagreement as error:
        print(f"score_agreement.py: {error}", file=sys.stderr)
        return 1


def eval_lm_scores(output: str) -> Scores:
    """What --output-word-probs printed, in the order of the data."""
    lines = sorted((int(number), line) for number, line in _WORDS_OF_A_LINE.findall(output))
    return [(word, float(score)) for _, line in lines for word, score in _WORD.findall(line)]


def agreement(want: Scores, got: Scores, what: str) -> Agreement:
    """Of two lists.

    Raises:
        Disagreement: where these are not the same words, or there are none.
    """
    if [word for word, _ in want] != [word for word, _ in got] or not want:
        raise Disagreement(
            f"{what}: fairseq-eval-lm scored {len(want)} words, we {len(got)} others"
        )
    difference = max(abs(a - b) for (_, a), (_, b) in zip(want, got))
    perplexity = math.exp(-sum(score for _, score in got) / len(got))
    return Agreement(len(got), perplexity, difference)


def _compare(options: argparse.Namespace) -> int:
    machine.check_data(options.data)
    options.fingerprint = machine.data_fingerprint(options.data)
    models = dict(map(_named, options.models))
    if len(models) < len(options.models):
        raise UsageError(f"--models: required each name once, got {' '.join(options.models)}")
    options.out.mkdir(parents=True, exist_ok=True)
    _write({name: _both_ways(name, path, options) for name, path in models.items()}, options)
    return 0


def _both_ways(name: str, given: str, options: argparse.Namespace) -> Dict[str, Agreement]:
    checkpoint = Path(given) if given else _trained(name, options)
    found = {}
    for way, flags in (("exact", []), ("unnormalised", ["--unnormalized"])):
        want = eval_lm_scores(_eval_lm(checkpoint, options, flags))
        got = list(_our_scores(checkpoint, options, exact=way == "exact"))
        found[way] = agreement(want, got, f"{name}, {way}")
        print(f"{name}, {way}: {found[way]}", file=sys.stderr, flush=True)
    return found


def _trained(name: str, options: argparse.Namespace) -> Path:
    folder = f"{name}-{options.updates}-{options.fingerprint}"
    checkpoint = options.out / folder / "checkpoint_last.pt"
    flags = ["--arch", name, *words([_RECIPE["training"], _MODELS[name]])]
    flags += ["--cpu", "--max-update", str(options.updates)]
    sentences.train(options.data, checkpoint, flags, options.out / "train.log", options.threads)
    return checkpoint


def _eval_lm(checkpoint: Path, options: argparse.Namespace, flags: List[str]) -> str:
    split, log = options.gen_subset, options.out / "eval_lm.log"
    flags = ["--cpu", "--max-tokens", "4000", *flags]
    command = sentences.eval_lm(options.data, checkpoint, split, *flags)
    processes.run(command, log, options.threads)
    return "\n".join(processes.last_attempt(log))


def _our_scores(
    checkpoint: Path, options: argparse.Namespace, exact: bool
) -> Iterable[Tuple[str, float]]:
    from fairseq_bnce import Scorer  # late, since it takes seconds: first what was asked

    scorer = Scorer.from_checkpoint(str(checkpoint), exact=exact)
    unk, split = scorer.dictionary.unk_word, options.gen_subset
    text = options.out / f"{split}-{options.fingerprint}.txt"
    log = options.out / "text.log"
    written = sentences.write_text(options.data, split, text, log, options.threads)
    with written.open(encoding="utf-8") as lines:
        for line in scorer.score_stream(lines):
            shown = (unk if oov else word for word, oov in zip(line.words, line.is_oov))
            yield from zip(shown, line.log_probs.tolist())


def _named(model: str) -> Tuple[str, str]:
    """(name, checkpoint or nothing)"""
    name, given, path = model.partition("=")
    if not given and name not in _MODELS:
        known = ", ".join(_MODELS)
        raise UsageError(f"--models: required NAME=CHECKPOINT or one of {known}, got {name!r}")
    if given and not Path(path).is_file():
        raise UsageError(f"--models: required a checkpoint, got {path!r}, which is no file")
    return name, path


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("data", type=Path, help="folder made by fairseq-preprocess --only-source")
    add("--models", nargs="+", default=list(_MODELS), metavar="MODEL", help="default: %(default)s")
    add("--gen-subset", default="test", help="split to score (default: %(default)s)")
    about = "of a training (default: %(default)s)"
    add("--updates", type=command.positive, default=300, help=about)
    return parser


def _write(found: Dict[str, Dict[str, Agreement]], options: argparse.Namespace) -> None:
    where = machine.record()
    models = {name: {way: asdict(one) for way, one in ways.items()} for name, ways in found.items()}
    about = {"split": options.gen_subset, "updates": options.updates, "machine": where}
    content = {**about, "data": options.fingerprint, "models": models}
    parts = [", ".join(f"{k} {v}" for k, v in where.items())]
    parts.append("\n".join(scoring.agreement(content)))
    tables.write(options.out / "agreement", parts, content)
    print((options.out / "agreement.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    command.start(main)
