"""From the original archive of a well-known corpus to the data that fairseq-train takes.

  fairseq-bnce get-data ptb --out data/ptb
  fairseq-bnce get-data obwb --source 1-billion-word-...tar.gz --out data/obwb
  fairseq-bnce get-data ltcb --out data/ltcb --vocab-size 40000

Without --source the archive is looked for in --cache, and downloaded to it if need be. The result
is that of fairseq-bnce prepare-text: text/, bin/ and report.json. docs/data.md says how each
corpus is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_bnce.data.corpora import fetch, recipe
from fairseq_bnce.data.corpora.table import CORPORA, Corpus
from fairseq_bnce.data.preparation import options as text_options
from fairseq_bnce.data.preparation.folder import (
    check_inputs,
    check_output,
    failures_named,
    install,
    staging_folder,
)
from fairseq_bnce.data.preparation.report import print_report
from fairseq_bnce.text.writing import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The corpus, its archive, the result, and prepare-text's choices."""
    parser.add_argument("corpus", choices=sorted(CORPORA), help="which corpus")
    text_options.add_result_options(parser.add_argument_group("result"))
    _add_sources(parser.add_argument_group("archive"))
    group = parser.add_argument_group(
        "words and vocabulary", "As of prepare-text; by default the recipe's (docs/data.md)."
    )
    text_options.add_split_options(group)
    text_options.add_line_options(group)
    text_options.add_vocabulary_options(group)
    parser.set_defaults(**dict.fromkeys(recipe.CHOICES))


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
    corpus = CORPORA[options.corpus]
    with failures_named():
        recipe.check_questions(options)
        report = _make(corpus, options)
    print_report(report, options.out)
    if options.questions:
        say(f"questions: {options.out / 'questions'}")
    for line in recipe.comparisons(corpus.published, report):
        say(recipe.verdict(*line))
    return 0


def _make(corpus: Corpus, options: argparse.Namespace) -> dict:
    out = options.out.resolve()
    check_output(out, options.overwrite, recipe.RESULTS)
    # What is wrong with the options is found before a long download.
    recipe.text_settings(corpus, options, Path())
    source = fetch.locate(corpus.archive, options.source, options.cache)
    others = filter(None, (options.questions, options.answers, options.dict))
    check_inputs(out, [source, *others], recipe.RESULTS)
    say(f"{corpus.title}: {source}")
    with staging_folder(out) as scratch:
        report = recipe.make(corpus, source, options, scratch)
        check_output(out, options.overwrite, recipe.RESULTS)
        install(scratch / "result", out, scratch, recipe.RESULTS)
    return report
