"""Prepare the data of a well-known corpus for fairseq-train, from its archive.

  fairseq-bnce get-data ptb --out data/ptb
  fairseq-bnce get-data obwb --source 1-billion-word-...gz --out data/obwb
  fairseq-bnce get-data ltcb --out data/ltcb --vocab-size 40000

Without --source, the command looks for the archive in --cache, and downloads
the archive if it is not there. The result is that of fairseq-bnce
prepare-text: text/, bin/ and report.json. docs/results/corpora.md says how
each corpus is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_bnce.cli import prepare_text as text_options
from fairseq_bnce.cli.common import flag_adder
from fairseq_bnce.data import results
from fairseq_bnce.data.completion import LETTERS, Question, read_questions, right_letters
from fairseq_bnce.data.corpora import CORPORA, WHOLE, Corpus, find_archive, write_texts
from fairseq_bnce.data.preparation import SPLITS, Settings, prepare
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.tokens import novel_words
from fairseq_bnce.text.writing import say

RESULTS = (*results.RESULTS, "questions")
VOCABULARY = ("vocab_size", "min_count", "dict", "padding_factor")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the corpus, its archive, the result, and options of prepare-text."""
    flag_adder(parser)("corpus", "which corpus", choices=sorted(CORPORA))
    text_options.add_result_options(parser.add_argument_group("result"))
    add = flag_adder(parser.add_argument_group("archive"))
    text = "local copy of the original archive, or a folder with it or with its files"
    add("--source", text, metavar="PATH", type=Path)
    text = "folder of downloaded archives (default: %(default)s)"
    add("--cache", text, metavar="FOLDER", type=Path, default=Path("downloads"))
    add("--questions", "questions of mscc, to prepare as well", metavar="CSV", type=Path)
    add("--answers", "answers to --questions", metavar="CSV", type=Path)
    group = parser.add_argument_group(
        "words and vocabulary",
        "As in prepare-text; the defaults are the recipe's (docs/results/corpora.md).",
    )
    text_options.add_split_options(group)
    text_options.add_line_options(group)
    text_options.add_vocabulary_options(group)


def run(options: argparse.Namespace) -> None:
    """Find the archive, make the result, move it to its place and report."""
    corpus, out = CORPORA[options.corpus], options.out.resolve()
    # Check everything before a long download.
    questions = read_questions(str(options.questions)) if options.questions else []
    right = right_letters(questions, str(options.answers)) if options.answers else []
    if WHOLE not in corpus.parts and (options.split or options.split_by):
        raise InputError(f"--split: required a corpus without splits, got {options.corpus}")
    recipe = dict(corpus.settings)
    if options.dict:  # it replaces the recipe's vocabulary
        recipe = {name: value for name, value in recipe.items() if name not in VOCABULARY}
    settings = Settings(**{**recipe, **text_options.given_settings(options), "tokenized": True})
    settings.check()
    results.check_output(out, options.overwrite, names=RESULTS)
    source = find_archive(corpus, options.source, options.cache)
    read = [source, *filter(None, (options.questions, options.answers, options.dict))]
    say(f"{corpus.title}: {source}")
    with results.replaced_result(out, options.overwrite, read, RESULTS) as scratch:
        report = _make_text(options, settings, source, scratch)
        if questions:
            _make_questions(options, scratch, questions)
        if right:
            answers = "".join(f"{LETTERS.index(letter)}\n" for letter in right)
            (scratch / "result" / "questions" / "answers.txt").write_text(answers, "utf-8")
    results.print_report(report, options.out)
    for what, published, found in map(dict.values, report["corpus"]["counts"]):
        differs = f"warning: {what}: {published:,} are published, but came {found:,}"
        say(f"{what}: {found:,}, as published" if published == found else differs)


def _make_text(
    options: argparse.Namespace, settings: Settings, source: Path, scratch: Path
) -> results.Report:
    """Make the result in ``scratch / "result"``; return the report."""
    corpus, raw = CORPORA[options.corpus], scratch / "raw"
    raw.mkdir()
    # An earlier result may be inside the source.
    write_texts(corpus, source, raw, [options.out.resolve() / name for name in RESULTS])
    for part in corpus.parts:
        setattr(settings, part, [str(raw / part)])
    made = corpus.made._replace(lowercase=corpus.made.lowercase or settings.lowercase)
    report = prepare(settings, scratch, made)
    for name in (*SPLITS, WHOLE):  # temporary files
        del report["settings"][name]
    about = {"name": options.corpus, "title": corpus.title, "source": source.name}
    report["corpus"] = {**about, "counts": _counts(corpus, report["splits"])}
    results.write_report(scratch / "result", report)
    return report


def _counts(corpus: Corpus, splits: dict[str, dict[str, int]]) -> list[dict[str, object]]:
    """Return each published count beside the count here."""
    train, words = splits["train"], sum(s["tokens"] - s["lines"] for s in splits.values())
    found = {"types": (corpus.types, train["types"] + corpus.markers)}
    found.update((f"{s} tokens", (n, splits[s]["tokens"])) for s, n in corpus.tokens.items())
    found["words in all splits"] = corpus.words, words
    each = [(what, *both) for what, both in found.items() if both[0] is not None]
    return [dict(zip(("what", "published", "here"), values)) for values in each]


def _make_questions(options: argparse.Namespace, scratch: Path, questions: list[Question]) -> None:
    """Binarise the questions of mscc with the dictionary of the result.

    Each choice has a line: question q (from 0) has lines 5 q to 5 q + 4 if all have five choices.
    answers.txt has the right choice of each question, from 0.
    """
    folder, result = scratch / "questions", scratch / "result"
    folder.mkdir()
    text = folder / "candidates.txt"
    sentences = [novel_words(sentence) for question in questions for sentence in question.sentences]
    text.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    words = result / ("text" if options.text_only else "bin") / "dict.txt"
    given = {"test": [str(text)], "dict": words, "text_only": options.text_only, "workers": 1}
    prepare(Settings(tokenized=True, out=folder, **given), folder, CORPORA["mscc"].made)
    (folder / "result").rename(result / "questions")
