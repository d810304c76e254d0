"""Add a language model's scores to n-best lists; tune weights on them; apply weights.

Moses: "id ||| hypothesis ||| features ||| score" (more fields may follow) gets a feature more,
"BNCE= -12.3": the log-probability, nats. Kaldi: "utterance-n word word ..." gives a file of costs,
"utterance-n 12.3": the negative log-probability.

With --weights or --tune the lists are sorted by the weighted sum of their features, best first;
"score" is the total that a Moses list came with.

  fairseq-bnce rescore --path CKPT --tune dev.ref --weights-out w dev.nbest
  fairseq-bnce rescore --path CKPT --weights w --best test.best test.nbest
"""

from __future__ import annotations

import argparse
import os
import re
from typing import Any, Tuple

from fairseq_bnce.cli.common import add_model_options, model_files, refuse_overwriting
from fairseq_bnce.cli.rescore_job import Job
from fairseq_bnce.cli.words import add_text_options
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.numerals import at_least, decimal
from fairseq_bnce.text.reading import STDIN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fairseq-bnce rescore``."""
    add_model_options(parser, required=False)  # lists may have their scores already
    add_text_options(parser)
    _add_list_options(parser)
    _add_feature_options(parser.add_argument_group("features"))
    _add_weight_options(parser.add_argument_group("weights"))
    _add_output_options(parser.add_argument_group("output"))


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "list",
        nargs="?",
        default=STDIN,
        metavar="NBEST",
        help="n-best lists, compressed (gzip, bzip2, xz) or not; standard input by default, and "
        "for -",
    )
    parser.add_argument(
        "--format", choices=("moses", "kaldi"), default="moses", help="of NBEST (default: moses)"
    )
    parser.add_argument(
        "--cost",
        action="append",
        default=[],
        type=_cost,
        metavar="NAME=FILE",
        help="Kaldi: costs of the same hypotheses in the same order ('utterance-n cost'), as a "
        "feature of this name; may be given again",
    )


def _add_feature_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--feature",
        default="BNCE",
        type=_feature_name,
        metavar="NAME",
        help="of the added score (default: BNCE)",
    )
    add(
        "--both",
        action="store_true",
        help="the softmax's log-probabilities as a feature NAMEExact, besides unnormalised ones",
    )
    add(
        "--count-words",
        action="store_true",
        help="a feature NAMEWords: words of the hypothesis",
    )
    add(
        "--count-oov",
        action="store_true",
        help="a feature NAMEOOV: words that the model does not know",
    )


def _add_weight_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--weights",
        nargs="+",
        metavar=("FILE|NAME=V", "NAME=V"),
        help="a file of 'name= value ...' lines, or NAME=VALUE, several with spaces or commas "
        "between them: a weight for each of a feature's values. With --tune: where the search "
        "starts",
    )
    add(
        "--tune",
        action="append",
        metavar="REF",
        help="fit weights to references: line i (from 0) is of list i; for Kaldi a text "
        "('utterance word word ...'). Given again: more references for BLEU",
    )
    add("--ref", action="append", metavar="REF", help="references to measure --weights by")
    add(
        "--tune-features",
        metavar="NAME,...",
        help="the features that get weights (default: score, or the costs of a Kaldi list; those "
        "added; those of --weights)",
    )
    add("--weights-out", metavar="FILE", help="where tuned weights are written for --weights")
    add("--metric", choices=("bleu", "wer"), help="default: bleu; for Kaldi wer")
    add(
        "--bleu-tokenize",
        default="none",
        metavar="NAME",
        help="tokeniser of sacrebleu's (default: none; lists and references are taken to be "
        "tokenised alike)",
    )
    some, many = at_least(0), at_least(1)
    add("--restarts", type=some, default=10, metavar="N", help="random starts (default: 10)")
    add(
        "--resamples", type=many, default=1000, metavar="N", help="of the bootstrap (default: 1000)"
    )
    seed = "of random starts and resamples (default: 1)"
    add("--seed", type=at_least(0), default=1, metavar="N", help=seed)


def _add_output_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--out",
        metavar="FILE",
        help="appears when it is whole, FILE.part until then (default: standard output, also -)",
    )
    add("--best", metavar="FILE", help="the first hypotheses, with --weights or --tune")


def _feature_name(text: str) -> str:
    """Return a name that lists and weights can hold: a type for argparse."""
    if not re.fullmatch(r"[\w.+-]+", text):
        required = "a name of letters, digits and _ . + -"
        raise argparse.ArgumentTypeError(f"required {required}, got {quoted(text)}")
    return text


def _cost(text: str) -> Tuple[str, str]:
    """Return (name, file): a type for argparse."""
    name, _, file = text.partition("=")
    if not file:
        raise argparse.ArgumentTypeError(f"required NAME=FILE, got {quoted(text)}")
    return _feature_name(name), file


def run(options: argparse.Namespace) -> int:
    """Rescore the lists."""
    if options.weights:
        _separate_weights(options)
    _check(options)
    _check_files(options)
    Job(options).run()
    return 0


def _separate_weights(options: argparse.Namespace) -> None:
    """Join the values of --weights into one text; an NBEST among them is not a weight."""
    weights, *others = options.weights
    lists = []
    for value in others:
        is_number = decimal(value) is not None
        if os.path.exists(value) or not (is_number or "=" in value):
            lists.append(value)
        else:
            weights += f"{' ' if is_number else ','}{value}"
    if len(lists) + (options.list != STDIN) > 1:
        required = "a file or NAME=VALUE ..., and one NBEST"
        raise InputError(f"--weights: required {required}, got {quoted(lists[-1])} as well")
    options.weights, options.list = weights, (lists or [options.list])[0]


def _check(options: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, before any work."""
    has_weights = bool(options.weights or options.tune)
    of_model = ("exact", "both", "count_words", "count_oov")
    names = [name for name, _ in options.cost]
    for is_wrong, flag, required in (
        *((getattr(options, n) and not options.path, f"--{n}", "--path") for n in of_model),
        (not options.path and not has_weights, "--path", "it, or --weights or --tune"),
        (options.exact and options.both, "--both", "no --exact, which is one of the two"),
        (options.tune and options.ref, "--ref", "no --tune, which measures by its own references"),
        (options.ref and not has_weights, "--ref", "--weights, whose effect is measured"),
        (options.best and not has_weights, "--best", "--weights or --tune"),
        (options.weights_out and not options.tune, "--weights-out", "--tune"),
        (options.tune_features and not options.tune, "--tune-features", "--tune"),
        (options.cost and options.format != "kaldi", "--cost", "--format kaldi"),
        (len(set(names)) < len(names), "--cost", "every name once"),
    ):
        if is_wrong:
            raise InputError(f"{flag.replace('_', '-')}: required {required}")


def _check_files(options: argparse.Namespace) -> None:
    """Check that standard input is read once and that no output replaces an input."""
    given = {"NBEST": [options.list], "--weights": [options.weights], "--tune": options.tune}
    given.update({"--ref": options.ref, "--cost": [file for _, file in options.cost]})
    names = [(flag, name) for flag, some in given.items() for name in some or []]
    waiting = [flag for flag, name in names if name == STDIN]
    if len(waiting) > 1:
        raise InputError(
            f"standard input ({STDIN!r}): required once, got it for {' and '.join(waiting)}"
        )
    if options.path:
        names += model_files(options.path, options.data)
    outputs = {"--out": options.out or STDIN, "--best": options.best}
    refuse_overwriting({**outputs, "--weights-out": options.weights_out}, names)
