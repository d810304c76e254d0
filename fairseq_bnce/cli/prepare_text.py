"""Prepare binarised data for fairseq's language models, from text files.

Each line of text is one sentence, or another unit that the model is to see.
The steps are: tokenise, split into train, valid and test, count the words of
train, cut the vocabulary, write <unk> for every other word, and run
fairseq-preprocess, which ends every line with one </s>.

The result is a folder with text/ (what the model sees, as words), bin/ (for
fairseq-train) and report.json (settings and counts). The folder appears when
everything has succeeded, not before.

  fairseq-bnce prepare-text --train a.txt b.txt --valid c.txt --out data
  fairseq-bnce prepare-text --input a.txt --split 0.8 0.1 0.1 --out data
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq_bnce.cli.common import Flags, flag_adder
from fairseq_bnce.data import results
from fairseq_bnce.data.preparation import DEFAULT_SPLIT, SPLITS, Settings, prepare
from fairseq_bnce.errors import InputError, at_least
from fairseq_bnce.text.reading import TextLines
from fairseq_bnce.text.tokens import BOS, EOS, NFC, PUNCTUATION, UNK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options of ``fairseq-bnce prepare-text``."""
    text = "UTF-8, a sentence a line; '-' is standard input. Either files for each split:"
    add = flag_adder(parser.add_argument_group("text", text))
    files: dict[str, Any] = {"metavar": "FILE", "nargs": "+", "action": "extend"}
    for split in SPLITS:
        add(f"--{split}", f"text for {split}", **files)
    group = parser.add_argument_group("or one text to split")
    flag_adder(group)("--input", "text to split", **files)
    add_split_options(group)
    group = parser.add_argument_group("words")
    add = flag_adder(group)
    text = "whose rules sacremoses tokenises by (default: %(default)s). Chinese and Japanese text "
    text += "is not cut into words: segment it first and use --tokenized"
    add("--language", text, default="en")
    text = f"the words are separated by spaces already; {BOS} and {EOS} at the ends of lines are "
    add("--tokenized", text + "dropped (fairseq adds its own)")
    text = "Unicode in NFC; punctuation: quotes, dashes and dots by Moses' rules, too"
    add("--normalize", text, choices=(NFC, PUNCTUATION))
    add_line_options(group)
    text = f"From train; other words are written as {UNK}. Default: all words of train."
    add_vocabulary_options(parser.add_argument_group("vocabulary", text))
    add_result_options(parser.add_argument_group("result"))


def run(options: argparse.Namespace) -> None:
    """Check everything, make the result, move it to its place and report."""
    out = options.out.resolve()
    settings = Settings(**given_settings(options))
    check_sources(settings)
    settings.check()
    inputs = [*settings.all_files(), *filter(None, [settings.dict])]
    with results.replaced_result(out, options.overwrite, inputs) as scratch:
        report = prepare(settings, scratch)
    results.print_report(report, options.out)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the command line gives."""
    found = ((field.name, getattr(options, field.name, None)) for field in fields(Settings))
    return {name: value for name, value in found if value is not None and value is not False}


def add_split_options(group: Flags) -> None:
    """Add --split, --split-by and --seed."""
    add = flag_adder(group)
    text = "their shares of the lines of --input, adding up to 1; a split with share 0 is not made "
    text += f"(default: {' '.join(map(str, DEFAULT_SPLIT))})"
    shares = {"nargs": 3, "type": float, "metavar": ("TRAIN", "VALID", "TEST")}
    add("--split", text, **shares)
    text = "block (default): train is the first part of the text, test the last; paragraph: "
    text += "paragraphs (ended by an empty line) drawn at random; line: lines drawn at random, for "
    text += "text of unrelated lines. The order of the text stays within a split"
    add("--split-by", text, choices=("block", "paragraph", "line"))
    add("--seed", "of those random draws (1)", type=int)


def add_line_options(group: Flags) -> None:
    """Add --lowercase and --keep-empty-lines."""
    add = flag_adder(group)
    add("--lowercase", "lower-case everything")
    text = f"keep lines without a word (each is one {EOS}); they are left out otherwise"
    add("--keep-empty-lines", text)


def add_vocabulary_options(group: Flags) -> None:
    """Add --vocab-size, --min-count, --dict and --padding-factor."""
    add = flag_adder(group)
    text = f"keep the N commonest types, {EOS} and {UNK} among them"
    add("--vocab-size", text, metavar="N", type=at_least(3))
    text = "keep words that occur at least N times (1: all)"
    add("--min-count", text, metavar="N", type=at_least(1))
    text = "take the vocabulary of this dict.txt instead (to prepare text for a trained model)"
    add("--dict", text, metavar="FILE", type=Path)
    text = "fill the dictionary up to a multiple of N with made-up words, as fairseq-preprocess "
    text += "does for the sake of tensor cores (8); 1: no filling"
    add("--padding-factor", text, metavar="N", type=at_least(1))


def add_result_options(group: Flags) -> None:
    """Add --out, --overwrite, --text-only and --workers."""
    add = flag_adder(group)
    text = "gets text/, bin/ and report.json; text.json beside dict.txt says how words were made"
    add("--out", text, metavar="FOLDER", type=Path, required=True)
    text = "replace what an earlier run of this command left in a FOLDER that has data in it"
    add("--overwrite", text)
    add("--text-only", "write the text (and dict.txt beside it) without running fairseq-preprocess")
    text = "processes (default: the processors there are)"
    add("--workers", text, metavar="N", type=at_least(1), default=len(os.sched_getaffinity(0)))


def check_sources(args: Settings) -> None:
    """Raise InputError for inputs that cannot be read, or whose splits are not clear."""
    given = [split for split in SPLITS if getattr(args, split)]
    if bool(args.input) == bool(given) or given and not (args.train or args.dict):
        required = "one of them, or --dict with --valid or --test"
        raise InputError(f"--train, --input: required {required}, got {given + (args.input or [])}")
    TextLines(args.all_files())  # raises for what cannot be opened
