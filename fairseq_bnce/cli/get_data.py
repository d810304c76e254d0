"""From the original archive of a well-known corpus to the data that fairseq-train takes.

  fairseq-bnce get-data ptb --out data/ptb
  fairseq-bnce get-data obwb --source 1-billion-word-...tar.gz --out data/obwb
  fairseq-bnce get-data ltcb --out data/ltcb --vocab-size 40000

Without --source the archive is looked for in --cache, and downloaded to it if need be. The result
is that of fairseq-bnce prepare-text: text/, bin/ and report.json. docs/results/corpora.md says how
each corpus is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Iterator

from fairseq_bnce.data import options as text_options
from fairseq_bnce.data.completion import LETTERS, Question, read_questions, right_letters
from fairseq_bnce.data.corpora import CORPORA, WHOLE, Corpus, write_texts
from fairseq_bnce.data.download import find_archive
from fairseq_bnce.data.preparation import SPLITS, prepare
from fairseq_bnce.data.report import print_report, write_report
from fairseq_bnce.data.result_folder import RESULTS as TEXT_RESULTS
from fairseq_bnce.data.result_folder import (
    check_output,
    file_errors_reported,
    install,
    staging_folder,
)
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.penn import novel_words
from fairseq_bnce.text.training_text import TrainingText
from fairseq_bnce.text.writing import say

RESULTS = (*TEXT_RESULTS, "questions")
# The options of prepare-text with which the command line replaces settings of a recipe.
SPLITTING = ("split", "split_by", "seed")
VOCABULARY = ("vocab_size", "min_count", "dict", "padding_factor")
CHOICES = (*SPLITTING, "lowercase", "keep_empty_lines", *VOCABULARY)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the corpus, its archive, the result, and options of prepare-text."""
    parser.add_argument("corpus", choices=sorted(CORPORA), help="which corpus")
    text_options.add_result_options(parser.add_argument_group("result"))
    _add_sources(parser.add_argument_group("archive"))
    group = parser.add_argument_group(
        "words and vocabulary",
        "As of prepare-text; by default the recipe's (docs/results/corpora.md).",
    )
    text_options.add_split_options(group)
    text_options.add_line_options(group)
    text_options.add_vocabulary_options(group)
    parser.set_defaults(**dict.fromkeys(CHOICES))


def _add_sources(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="a local copy of the original archive, or a folder with it or with its files",
    )
    group.add_argument(
        "--cache",
        type=Path,
        default=Path("downloads"),
        metavar="FOLDER",
        help="where archives are downloaded to, and found again (default: %(default)s)",
    )
    group.add_argument("--questions", type=Path, metavar="CSV", help="of mscc: its questions too")
    group.add_argument("--answers", type=Path, metavar="CSV", help="of mscc: and their answers")


def run(options: argparse.Namespace) -> int:
    """Find the archive, make the result, move it to its place and report."""
    corpus, out = CORPORA[options.corpus], options.out.resolve()
    with file_errors_reported():
        # Check everything before a long download.
        questions, right = _read_questions(options)
        _check_splitting(corpus, options)
        settings = _build_settings(corpus, options)
        text_options.check_settings(settings)
        check_output(out, options.overwrite, names=RESULTS)
        source = find_archive(corpus.archive, options.source, options.cache)
        read = [source, *filter(None, (options.questions, options.answers, options.dict))]
        check_output(out, options.overwrite, read, RESULTS)
        say(f"{corpus.title}: {source}")
        with staging_folder(out) as scratch:
            report = _make_text(corpus, source, settings, options, scratch)
            if questions:
                _make_questions(questions, right, settings, scratch, corpus.made)
            install(scratch / "result", out, scratch, RESULTS)
    print_report(report, options.out)
    if questions:
        say(f"questions: {options.out / 'questions'}")
    for what, published, found in _comparisons(corpus, report["splits"]):
        if published == found:
            say(f"{what}: {found:,}, as published")
        else:
            say(f"warning: {what}: {published:,} are published, but came {found:,}")
    return 0


def _build_settings(corpus: Corpus, options: argparse.Namespace) -> argparse.Namespace:
    """Build prepare-text's settings: the recipe's, replaced by those of the command line."""
    recipe = dict(corpus.settings)
    if options.dict:  # it replaces the recipe's vocabulary
        recipe = {name: value for name, value in recipe.items() if name not in VOCABULARY}
    chosen = {name: getattr(options, name) for name in CHOICES}
    recipe.update({name: value for name, value in chosen.items() if value is not None})
    return text_options.build_settings(
        out=options.out,
        tokenized=True,
        workers=options.workers,
        text_only=options.text_only,
        **recipe,
    )


def _check_splitting(corpus: Corpus, options: argparse.Namespace) -> None:
    """Refuse to split a corpus that has splits, or by paragraphs that its text does not have."""
    if options.split_by == "paragraph" and WHOLE in corpus.parts:
        raise InputError(
            f"--split-by: required block or line, since the text of {options.corpus} has no empty "
            "lines between paragraphs, got paragraph"
        )
    for name in SPLITTING:
        if getattr(options, name) is not None and WHOLE not in corpus.parts:
            raise InputError(
                f"--{name.replace('_', '-')}: required a corpus that is split here, got "
                f"{options.corpus}, whose splits are given"
            )


def _make_text(
    corpus: Corpus,
    source: Path,
    settings: argparse.Namespace,
    options: argparse.Namespace,
    scratch: Path,
) -> dict[str, Any]:
    """Make the result in ``scratch / "result"``; return the report."""
    raw = scratch / "raw"
    raw.mkdir()
    # An earlier result may be inside the source.
    write_texts(corpus, source, raw, [*(options.out / name for name in RESULTS), scratch])
    for part in corpus.parts:
        setattr(settings, part, [str(raw / part)])
    made = corpus.made._replace(lowercase=corpus.made.lowercase or settings.lowercase)
    report = prepare(settings, scratch, made)
    for name in (*SPLITS, WHOLE):  # temporary files
        del report["settings"][name]
    counts = [
        {"what": what, "published": published, "here": found}
        for what, published, found in _comparisons(corpus, report["splits"])
    ]
    about = {"name": options.corpus, "title": corpus.title, "source": source.name}
    report["corpus"] = {**about, "counts": counts}
    write_report(scratch / "result", report)
    return report


def _comparisons(
    corpus: Corpus, splits: dict[str, dict[str, int]]
) -> Iterator[tuple[str, int, int]]:
    """Yield (what, published count, count here) for each published count."""
    if corpus.types is not None:
        yield "types", corpus.types, splits["train"]["types"] + corpus.markers
    for split, tokens in corpus.tokens.items():
        if split in splits:
            yield f"{split} tokens", tokens, splits[split]["tokens"]
    if corpus.words is not None:
        words = sum(found["tokens"] - found["lines"] for found in splits.values())
        yield "words in all splits", corpus.words, words


# ---------------------------------------------------------------- questions


def _read_questions(options: argparse.Namespace) -> tuple[list[Question], list[str]]:
    """Read the questions, and the letters of their right answers; both may be empty."""
    if options.answers and not options.questions:
        raise InputError("--answers: --questions is required with it, but was not given")
    if options.questions and options.corpus != "mscc":
        raise InputError(f"--questions: the corpus mscc is required, but came {options.corpus}")
    questions = read_questions(str(options.questions)) if options.questions else []
    return questions, right_letters(questions, str(options.answers)) if options.answers else []


def _make_questions(
    questions: list[Question],
    right: list[str],
    settings: argparse.Namespace,
    scratch: Path,
    made: TrainingText,
) -> None:
    """Binarise the questions with the dictionary of the result.

    Question q (from 0) has lines 5 q to 5 q + 4, a line for each choice. answers.txt has the right
    choice of each question, from 0 to 4.
    """
    folder, result = scratch / "questions", scratch / "result"
    folder.mkdir()
    text = folder / "candidates.txt"
    sentences = [novel_words(sentence) for question in questions for sentence in question.sentences]
    text.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    asked = text_options.build_settings(
        tokenized=True,
        test=[str(text)],
        dict=result / ("text" if settings.text_only else "bin") / "dict.txt",
        out=folder,
        workers=1,
        text_only=settings.text_only,
    )
    prepare(asked, folder, made)
    (folder / "result").rename(result / "questions")
    if right:
        answers = "".join(f"{LETTERS.index(letter)}\n" for letter in right)
        (result / "questions" / "answers.txt").write_text(answers, encoding="utf-8")
