"""The command line, and what can be refused before any work is done."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
from pathlib import Path
from typing import Callable, Sequence

from .errors import PrepareError
from .reading import STDIN, check_input
from .splits import SPLITS
from .words import BOS, EOS, UNK, languages

DEFAULT_SPLIT = (0.9, 0.05, 0.05)


def at_least(minimum: int) -> Callable[[str], int]:
    """An argparse type: whole numbers from ``minimum``."""

    def parse(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"a whole number of at least {minimum} is required, but came {text!r}"
            )
        return int(text)

    return parse


def usable_cpus() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "text", "UTF-8, a sentence a line; '-' is standard input. Either files for each split:"
    )
    for split in SPLITS:
        group.add_argument(f"--{split}", nargs="+", metavar="FILE", help=f"text for {split}")
    group = parser.add_argument_group("or one text to split")
    group.add_argument("--input", nargs="+", metavar="FILE", help="text to split")
    group.add_argument(
        "--split",
        nargs=3,
        type=float,
        metavar=("TRAIN", "VALID", "TEST"),
        help="their shares of the lines of --input, adding up to 1; a split with share 0 is not "
        f"made (default: {' '.join(map(str, DEFAULT_SPLIT))})",
    )
    group.add_argument(
        "--split-by",
        choices=("block", "paragraph", "line"),
        default="block",
        help="block (default): train is the first part of the text, test the last, so that no "
        "valid or test line stood beside a train line; paragraph: paragraphs (ended by an empty "
        "line) drawn at random; line: lines drawn at random, for text whose lines have nothing to "
        "do with each other. The order of the text stays within a split",
    )
    group.add_argument(
        "--seed", type=int, default=1, help="of those random draws (default: %(default)s)"
    )


def add_word_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("words")
    group.add_argument(
        "--language",
        default="en",
        help="whose rules sacremoses tokenises by (default: %(default)s). Chinese and Japanese "
        "text is not cut into words: segment it first and use --tokenized",
    )
    group.add_argument(
        "--tokenized",
        action="store_true",
        help=f"the words are separated by spaces already; {BOS} and {EOS} at the ends of lines "
        "are dropped (fairseq adds its own)",
    )
    group.add_argument("--lowercase", action="store_true", help="lower-case everything")
    group.add_argument(
        "--keep-empty-lines",
        action="store_true",
        help=f"keep lines without a word (each is one {EOS}); they are left out otherwise",
    )


def add_vocabulary_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "vocabulary", f"From train; other words are written as {UNK}. Default: all words of train."
    )
    group.add_argument(
        "--vocab-size",
        type=at_least(3),
        metavar="N",
        help=f"keep the N commonest types, {EOS} and {UNK} among them",
    )
    group.add_argument(
        "--min-count",
        type=at_least(1),
        default=1,
        metavar="N",
        help="keep words that occur at least N times (default: %(default)s)",
    )
    group.add_argument(
        "--dict",
        type=Path,
        metavar="FILE",
        help="take the vocabulary of this dict.txt instead (to prepare text for a trained model)",
    )
    group.add_argument(
        "--padding-factor",
        type=at_least(1),
        default=8,
        metavar="N",
        help="fill the dictionary up to a multiple of N with made-up words, as fairseq-preprocess "
        "does for the sake of tensor cores; 1: no filling (default: %(default)s)",
    )


def make_parser() -> argparse.ArgumentParser:
    """The command line of this script."""
    parser = argparse.ArgumentParser(
        description="Turn text into the binarised data that fairseq's language models train on: "
        "tokenise, split, cut the vocabulary, run fairseq-preprocess."
    )
    add_input_options(parser)
    add_word_options(parser)
    add_vocabulary_options(parser)
    group = parser.add_argument_group("result")
    group.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="gets text/, bin/ and report.json",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace those three in a FOLDER that has data in it",
    )
    group.add_argument(
        "--text-only",
        action="store_true",
        help="write the text (and dict.txt beside it) without running fairseq-preprocess",
    )
    group.add_argument(
        "--workers",
        type=at_least(1),
        default=usable_cpus(),
        metavar="N",
        help="processes (default: the processors there are)",
    )
    return parser


def check_split(split: Sequence[float]) -> None:
    """Refuse shares that are none."""
    if not split[0] > 0 or min(split) < 0 or not math.isclose(sum(split), 1, abs_tol=1e-6):
        raise PrepareError(
            "--split: a share above 0 for train and three that add up to 1 are required, but came "
            f"{' '.join(map(str, split))} (sum {sum(split):g})"
        )


def check_sources(args: argparse.Namespace) -> None:
    """Refuse combinations of inputs that do not say what belongs to which split."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split)}
    if args.input and given:
        raise PrepareError(f"--input: cannot be combined with --{' --'.join(given)}")
    if args.split and not args.input:
        raise PrepareError("--split: --input is required with it, but was not given")
    if not args.input and not given:
        raise PrepareError("--train or --input is required, but neither was given")
    if not args.input and not args.train and not args.dict:
        raise PrepareError("--train (or the vocabulary of an earlier one, --dict) is required")
    names = [name for files in ([args.input or []] + list(given.values())) for name in files]
    if names.count(STDIN) > 1:
        raise PrepareError(f"input: standard input ('{STDIN}') can be read only once")
    for name in names:
        check_input(name)


def check_requirements(args: argparse.Namespace) -> None:
    """Find out before the work whether what it needs is there."""
    if args.dict and (args.vocab_size or args.min_count > 1):
        raise PrepareError("--dict: cannot be combined with --vocab-size or --min-count")
    if args.dict and not args.dict.is_file():
        raise PrepareError(f"--dict: a dict.txt is required, but {args.dict} is not a file")
    if not args.tokenized:
        if importlib.util.find_spec("sacremoses") is None:
            raise PrepareError(
                "sacremoses, which tokenises, is missing: pip install 'fairseq-bnce[text]' "
                "(or give --tokenized text)"
            )
        if args.language not in languages():
            raise PrepareError(
                f"--language: one of {' '.join(languages())} is required, but came {args.language}"
            )
    if not args.text_only and importlib.util.find_spec("fairseq_cli") is None:
        raise PrepareError(
            "fairseq, which binarises, is missing: pip install 'fairseq-bnce[fairseq]' "
            "(or ask for --text-only)"
        )
