"""The steps from text to the finished folder, joined.

Files are streamed: only the word counts are held in memory.
"""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from pathlib import Path
from typing import AbstractSet, Any, Mapping

from fairseq_bnce.data.preparation.binarising import binarise, replace_rare
from fairseq_bnce.data.preparation.parallel import needed_workers
from fairseq_bnce.data.preparation.reading import total_bytes
from fairseq_bnce.data.preparation.report import write_report
from fairseq_bnce.data.preparation.splits import SPLITS, share_out, split_sizes
from fairseq_bnce.data.preparation.vocabulary import (
    count_words,
    cut_vocabulary,
    read_dictionary,
    write_dictionary,
)
from fairseq_bnce.data.preparation.words import TextOptions, tokenize_files
from fairseq_bnce.errors import InputError
from fairseq_bnce.text import training_text
from fairseq_bnce.text.tokens import EOS, UNK
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import say

UNREPORTED = ("overwrite", "command", "run")  # they say nothing of the result


def text_options(args: argparse.Namespace) -> TextOptions:
    """How lines become words. Paragraphs can only be told apart while empty lines are there."""
    language = None if args.tokenized else args.language
    keep_empty = args.keep_empty_lines or (bool(args.input) and args.split_by == "paragraph")
    return TextOptions(language, args.lowercase, keep_empty)


def split_input(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Path], Counter]:
    """Tokenise ``--input`` and share its lines out; the tokenised file of every split."""
    whole = scratch / "input"
    notes = tokenize_files(
        args.input, whole, text_options(args), workers=args.workers, label="--input"
    )
    total = notes["usable"] + (notes["empty"] if args.keep_empty_lines else 0)
    proportions = {split: share for split, share in zip(SPLITS, args.split) if share}
    files = {split: scratch / split for split in proportions}
    share_out(
        whole,
        files,
        split_sizes(total, proportions),
        split_by=args.split_by,
        seed=args.seed,
        keep_empty=args.keep_empty_lines,
    )
    whole.unlink()
    for split, path in files.items():
        if not path.stat().st_size:
            raise InputError(
                f"--split: at least one line for {split} is required, but {total} usable line(s) "
                f"in {' '.join(args.input)} by {args.split_by} leave it none"
            )
    return files, notes


def given_splits(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Path], Counter]:
    """Tokenise ``--train``, ``--valid`` and ``--test``; the tokenised file of every split."""
    files: dict[str, Path] = {}
    notes: Counter = Counter()
    for split in SPLITS:
        names = getattr(args, split)
        if names:
            files[split] = scratch / split
            # update and not +=, which would leave out what there is none of.
            notes.update(
                tokenize_files(
                    names,
                    files[split],
                    text_options(args),
                    workers=args.workers,
                    label=f"--{split}",
                )
            )
    return files, notes


def warn_of_other_words(dictionary: Path, made: TrainingText) -> None:
    """Warn where the words of a dictionary were made in another way than those of this text."""
    earlier = training_text.read(dictionary.parent)
    if earlier is not None and earlier != made:
        say(f"warning: for --dict {dictionary}, {earlier}; here {made}")


def make_vocabulary(
    args: argparse.Namespace, files: Mapping[str, Path], dictionary: Path
) -> tuple[AbstractSet[str], str]:
    """Write ``dictionary``; return its words and a line about them."""
    if args.dict:
        words = read_dictionary(args.dict)
        shutil.copyfile(args.dict, dictionary)
        return words, f"vocabulary: {len(words):,} words of {args.dict}"
    counts = count_words(files["train"], workers=args.workers)
    vocabulary = cut_vocabulary(counts, size=args.vocab_size, min_count=args.min_count)
    write_dictionary(dictionary, vocabulary, args.padding_factor)
    summary = (
        f"vocabulary: {len(vocabulary) + 2:,} types with {EOS} and {UNK} "
        f"({len(vocabulary):,} of the {len(counts):,} words of train)"
    )
    return {word for word, _ in vocabulary}, summary


def training_text_of(args: argparse.Namespace) -> TrainingText:
    """How the words are made that the model will know."""
    if args.tokenized:
        return TrainingText(NONE, lowercase=args.lowercase)
    return TrainingText(SACREMOSES, args.language, args.lowercase)


def prepare(
    args: argparse.Namespace, scratch: Path, made: TrainingText | None = None
) -> dict[str, Any]:
    """Make the result in ``scratch / "result"``; return the report.

    Args:
        args: the settings.
        scratch: an empty folder.
        made: how the words were made, where the text was cut into words before.
    """
    made = made or training_text_of(args)
    if args.dict:
        warn_of_other_words(args.dict, made)
    result = scratch / "result"
    (result / "text").mkdir(parents=True)
    files, notes = (split_input if args.input else given_splits)(args, scratch)
    dictionary = scratch / "dict.txt"
    words, vocabulary = make_vocabulary(args, files, dictionary)
    stats = {}
    for split, source in files.items():
        target = result / "text" / f"{split}.txt"
        stats[split] = replace_rare(source, target, words, workers=args.workers, label=split)
        source.unlink()
    if args.text_only:
        shutil.copyfile(dictionary, result / "text" / "dict.txt")
        training_text.write(result / "text", made)
    else:
        size = total_bytes([str(path) for path in (result / "text").iterdir()])
        workers = needed_workers(args.workers, size)
        tokens = sum(found.tokens for found in stats.values())
        binarise(result, list(files), dictionary, workers=workers, tokens=tokens)
        training_text.write(result / "bin", made)
    report = {
        "settings": {name: value for name, value in vars(args).items() if name not in UNREPORTED},
        "read": dict(notes),
        "vocabulary": vocabulary,
        "splits": {split: found._asdict() for split, found in stats.items()},
    }
    write_report(result, report)
    return report
