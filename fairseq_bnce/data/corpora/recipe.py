"""From the archive of a corpus to the folder of its data, and its counts beside the published."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Iterator

from fairseq_bnce.data.corpora import novels
from fairseq_bnce.data.corpora.completion import read_questions, right_letters
from fairseq_bnce.data.corpora.table import WHOLE, Corpus, Published
from fairseq_bnce.data.preparation import options as text_options
from fairseq_bnce.data.preparation.folder import RESULTS as TEXT_RESULTS
from fairseq_bnce.data.preparation.pipeline import prepare
from fairseq_bnce.data.preparation.report import write_report
from fairseq_bnce.data.preparation.splits import SPLITS
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.training_text import TrainingText

# Of prepare-text: what the command line may say in the recipe's place.
CHOICES = (
    *("split", "split_by", "seed", "lowercase", "keep_empty_lines"),
    *("vocab_size", "min_count", "dict", "padding_factor"),
)
RESULTS = (*TEXT_RESULTS, "questions")


def comparisons(published: Published, report: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(what, published, here) of every count that is known."""
    splits = report["splits"]
    if published.types is not None:
        yield "types", published.types, splits["train"]["types"] + published.markers
    for split, tokens in published.tokens.items():
        if split in splits:
            yield f"{split} tokens", tokens, splits[split]["tokens"]
    if published.words is not None:
        words = sum(found["tokens"] - found["lines"] for found in splits.values())
        yield "words in all splits", published.words, words


def verdict(what: str, expected: int, found: int) -> str:
    """One line about one count."""
    if expected == found:
        return f"{what}: {found:,}, as published"
    return f"warning: {what}: {expected:,} are published, but came {found:,}"


def text_settings(corpus: Corpus, args: argparse.Namespace, raw: Path) -> argparse.Namespace:
    """prepare-text's settings for the text files in ``raw``, checked but for these files.

    Args:
        corpus: the recipe.
        args: of the command line; those of ``CHOICES`` that are not None go before the recipe's.
        raw: the folder of the files that the recipe writes.

    Raises:
        InputError: for what does not fit.
    """
    command = ["--out", str(args.out), "--tokenized", *corpus.options]
    command += ["--workers", str(args.workers)]
    for name in corpus.files:
        command += [f"--{name}", str(raw / name)]
    command += ["--text-only"] * args.text_only
    settings = text_options.parse(command)
    if args.dict:  # it stands for what the recipe says of the vocabulary
        settings.vocab_size, settings.min_count = None, 1
    chosen = {name: getattr(args, name) for name in CHOICES}
    vars(settings).update({name: value for name, value in chosen.items() if value is not None})
    check_splitting(corpus, args)
    text_options.check_requirements(settings)
    return settings


def prepare_questions(
    args: argparse.Namespace, result: Path, scratch: Path, made: TrainingText
) -> None:
    """The questions in the vocabulary of the result, binarised as a split of their own."""
    folder = scratch / "questions"
    folder.mkdir()
    text = novels.write_questions(args.questions, args.answers, folder)
    dictionary = result / ("text" if args.text_only else "bin") / "dict.txt"
    command = ["--tokenized", "--test", str(text), "--dict", str(dictionary)]
    command += ["--out", str(folder), "--workers", "1", *["--text-only"] * args.text_only]
    prepare(text_options.parse(command), folder, made)
    (folder / "result").rename(result / "questions")
    if args.answers:
        (folder / "answers.txt").rename(result / "questions" / "answers.txt")


def make(corpus: Corpus, source: Path, args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Make the result in ``scratch / "result"``; return the report, completed."""
    raw = scratch / "raw"
    raw.mkdir()
    own = [args.out / name for name in RESULTS]  # of an earlier run, where --out is in --source
    corpus.write(source, raw, [*own, scratch])
    settings = text_settings(corpus, args, raw)
    text_options.check_sources(settings)
    text_options.fill_in(settings)
    made = corpus.made._replace(lowercase=corpus.made.lowercase or settings.lowercase)
    report = prepare(settings, scratch, made)
    if args.questions:
        prepare_questions(args, scratch / "result", scratch, made)
    for name in (*SPLITS, WHOLE):  # they named files that are gone by then
        del report["settings"][name]
    report["corpus"] = _about(corpus, args.corpus, source, report)
    write_report(scratch / "result", report)
    return report


def _about(corpus: Corpus, name: str, source: Path, report: dict[str, Any]) -> dict[str, Any]:
    counts = [
        {"what": what, "published": expected, "here": found}
        for what, expected, found in comparisons(corpus.published, report)
    ]
    return {"name": name, "title": corpus.title, "source": source.name, "counts": counts}


def check_splitting(corpus: Corpus, args: argparse.Namespace) -> None:
    """Refuse to split what comes in splits, or by what the corpus' text does not have."""
    if args.split_by == "paragraph" and WHOLE in corpus.files:
        raise InputError(
            f"--split-by: required block or line, since the text of {args.corpus} has no empty "
            "lines between paragraphs, got paragraph"
        )
    for name in ("split", "split_by", "seed"):
        if getattr(args, name) is not None and WHOLE not in corpus.files:
            raise InputError(
                f"--{name.replace('_', '-')}: required a corpus that is split here, got "
                f"{args.corpus}, whose splits are given"
            )


def check_questions(args: argparse.Namespace) -> None:
    """Refuse questions without a use, before the work."""
    if args.answers and not args.questions:
        raise InputError("--answers: --questions is required with it, but was not given")
    if args.questions and args.corpus != "mscc":
        raise InputError(f"--questions: the corpus mscc is required, but came {args.corpus}")
    for path in (args.questions, args.answers):
        if path and not path.is_file():
            raise InputError(f"a table (CSV) is required, but {path} is not a file")
    asked = read_questions(str(args.questions)) if args.questions else []
    if args.answers:
        right_letters(asked, str(args.answers))
