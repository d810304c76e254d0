#!/usr/bin/env python3
"""Hold what fairseq-bnce scores against fairseq-eval-lm, word by word.

    score_agreement.py DATA --out FOLDER

DATA is a folder made by fairseq-preprocess --only-source. A model of each architecture is trained
on DATA for a few hundred updates. Each word of the split is scored by fairseq-eval-lm, a sentence a
sample, and by fairseq_bnce.Scorer from the same split as text, exactly and unnormalised; fairseq
prints six decimals.

FOLDER gets agreement.md and agreement.json, and models, text and logs, which a second call does not
make again.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import environment  # noqa: F401
from experiments import command, machine, processes, report
from experiments.made import Workshop, eval_lm
from experiments.recipes import words
from rendering import scoring

_RECIPE = report.load("recipes")["agreement"]
_MODELS = _RECIPE["models"]
_WORDS_OF_A_LINE = re.compile(r"(?:\| |eval_lm:)(\d+) (.* \[-?[\d.]+\])")
_WORD = re.compile(r"(\S+) \[(-?[\d.]+)\]")
Scores = List[Tuple[str, float]]  # (word, log-probability)


def main(arguments: Sequence[str]) -> int:
    """Compare the scores of all models, and return 0."""
    options = _parser().parse_args(arguments)
    data, split = machine.data_fingerprint(options.data), options.gen_subset
    shop = Workshop(options.out, options.threads)
    models: Dict[str, Any] = {}
    for name in options.models:
        flags = ["--arch", name, *words([_RECIPE["training"], _MODELS[name]])]
        flags += ["--cpu", "--max-update", str(options.updates)]
        checkpoint = shop.model(options.data, f"{name}-{options.updates}-{data}", flags)
        text, models[name] = shop.text(options.data, split, f"{split}-{data}"), {}
        for way, own in (("exact", []), ("unnormalised", ["--unnormalized"])):
            flags = ["--cpu", "--max-tokens", "4000", *own]
            shop.run(*eval_lm(options.data, checkpoint, split, *flags))
            want = eval_lm_scores("\n".join(processes.last_attempt(shop.log)))
            got = list(_our_scores(checkpoint, text, is_exact=way == "exact"))
            models[name][way] = agreement(want, got, f"{name}, {way}")
            command.say(f"{name}, {way}: {models[name][way]}")
    about = {"split": split, "updates": options.updates, "machine": machine.record(), "data": data}
    content = {**about, "models": models}
    table = "\n".join(scoring.agreement(content))
    print(report.write(options.out / "agreement", [table], content))
    return 0


def eval_lm_scores(output: str) -> Scores:
    """Read the output of --output-word-probs, in the order of the data."""
    lines = sorted((int(number), line) for number, line in _WORDS_OF_A_LINE.findall(output))
    return [(word, float(score)) for _, line in lines for word, score in _WORD.findall(line)]


def agreement(want: Scores, got: Scores, what: str) -> Dict[str, float]:
    """Compare the scores of fairseq-eval-lm with ours.

    Returns:
        number of words, perplexity by our scores, and the largest difference in nats.

    Raises:
        CommandFailed: for other words, or none.
    """
    if [word for word, _ in want] != [word for word, _ in got] or not want:
        counts = f"fairseq-eval-lm scored {len(want)} words, we {len(got)} others"
        raise processes.CommandFailed(f"{what}: {counts}")
    difference = max(abs(a - b) for (_, a), (_, b) in zip(want, got))
    perplexity = math.exp(-sum(score for _, score in got) / len(got))
    return {"words": len(got), "perplexity": perplexity, "difference": difference}


def _our_scores(checkpoint: Path, text: Path, is_exact: bool) -> Iterator[Tuple[str, Any]]:
    from fairseq_bnce import Scorer  # late: the import takes seconds

    scorer = Scorer.from_checkpoint(str(checkpoint), exact=is_exact)
    unk = scorer.dictionary.unk_word
    with text.open(encoding="utf-8") as lines:
        for line in scorer.score_stream(lines):
            shown = (unk if oov else word for word, oov in zip(line.words, line.is_oov))
            yield from zip(shown, line.log_probs.tolist())


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("data", type=Path, help="folder made by fairseq-preprocess --only-source")
    add("--models", nargs="+", choices=list(_MODELS), default=list(_MODELS), metavar="MODEL")
    add("--gen-subset", default="test", help="split to score")
    add("--updates", type=int, default=300, help="of a training")
    return parser


if __name__ == "__main__":
    command.start(main)
