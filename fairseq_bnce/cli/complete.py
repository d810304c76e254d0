"""Sentence completion: the choice that makes the likeliest sentence fills the gap.

Questions are those of the Microsoft Research Sentence Completion Challenge: a table (CSV) with the
columns id, question (with _____ for the gap) and a) to e), or lines of its machine format,
"1a) I am [walking] alone.". Sentences are cut into words and lower-cased as the checkpoint says
that the training text was, or as "fairseq-bnce get-data mscc" does it.

Both scores are taken, unnormalised and exact, unless --exact asks for the latter alone. With
--answers it prints how many choices are right, with a 95 % interval (Wilson). Of several models,
--path A:B as for fairseq's ensembles, the log-probabilities are added up.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence

import numpy as np

from fairseq_bnce.cli.common import (
    add_model_options,
    load_scorer,
    model_files,
    progress_bar,
    refuse_overwriting,
)
from fairseq_bnce.cli.words import ModelWords, add_tokenize, check_text_options
from fairseq_bnce.data.completion import (
    LETTERS,
    Question,
    accuracy,
    chosen,
    read_questions,
    right_letters,
)
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.training_text import NONE, PENN, TrainingText
from fairseq_bnce.text.writing import Output

if TYPE_CHECKING:
    from fairseq_bnce.scoring import Scorer

Scores = Dict[str, np.ndarray]  # by "unnormalized" and "exact": (questions, 5) nats


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fairseq-bnce complete``."""
    add_model_options(parser)
    parser.add_argument("questions", metavar="QUESTIONS", help="CSV, or the machine format")
    parser.add_argument("--answers", metavar="FILE", help="CSV (id, answer), or the machine format")
    words = parser.add_mutually_exclusive_group()
    words.add_argument(
        "--tokenized",
        action="store_true",
        help="the sentences are words separated by spaces already, as the model has them: "
        "--tokenize none",
    )
    add_tokenize(words, usual="words and lower case as get-data mscc makes them of the novels")
    parser.add_argument(
        "--lowercase",
        action="store_true",
        help="lower-case everything, with --tokenize or --tokenized",
    )
    parser.add_argument(
        "--json", action="store_true", help="what --answers prints as one JSON object"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="a table (CSV) of each question's choices and scores, nats; without --answers it "
        "goes to standard output by default",
    )


def run(options: argparse.Namespace) -> int:
    """Answer the questions."""
    if options.json and not options.answers:
        raise InputError("--json: required --answers, got none")
    if options.tokenized:
        options.tokenize = NONE
    check_text_options(options)
    read = [("QUESTIONS", options.questions), ("--answers", options.answers)]
    for path in _paths(options.path):
        read += model_files(path, options.data)
    refuse_overwriting({"--out": options.out}, read)
    questions = read_questions(options.questions)
    right = right_letters(questions, options.answers) if options.answers else None
    with Output(options.out) as out:
        scores = _scores(questions, options)
        if options.out or right is None:
            for line in _table(questions, scores, right):
                out.write(line)
    if right is not None:
        found = _accuracies(scores, right)
        out = Output(None)
        out.write(json.dumps({"path": options.path, **found}) if options.json else _as_text(found))
        out.flush()
    return 0


def _scores(questions: Sequence[Question], options: argparse.Namespace) -> Scores:
    from fairseq_bnce.scoring import Scorer  # and with it fairseq

    models = [
        load_scorer(Scorer, argparse.Namespace(**{**vars(options), "path": path}))
        for path in _paths(options.path)
    ]
    found: Dict[str, List[np.ndarray]] = {} if options.exact else {"unnormalized": []}
    found["exact"] = []
    for model in models:
        words = ModelWords(options, model, _novels(options), least=0)
        sentences = [words(text) for question in questions for text in question.sentences]
        for name, scores in found.items():
            scorer = model.with_exact(True) if name == "exact" else model
            scores.append(_scored(scorer, sentences, name, words))
    return {name: np.sum(scores, axis=0) for name, scores in found.items()}


def _novels(options: argparse.Namespace) -> Optional[TrainingText]:
    """Return how the challenge's novels are cut, unless the options say how to cut sentences."""
    return None if options.tokenize else TrainingText(PENN, lowercase=True)


def _paths(given: str) -> List[str]:
    """Return the models of --path; a file whose name has the separator is one model."""
    return [given] if os.path.isfile(given) else given.split(os.pathsep)


def _scored(scorer: Scorer, sentences: Sequence[str], name: str, words: ModelWords) -> np.ndarray:
    """Return log-probabilities (questions, 5)."""
    bar = progress_bar(
        iterable=scorer.score_stream(sentences), total=len(sentences), desc=name, unit=" sentences"
    )
    found = list(bar)
    if name == "exact":
        words.count(sum(len(score.words) - 1 for score in found), sum(one.oov for one in found))
        words.end()
    return np.array([score.total for score in found]).reshape(-1, len(LETTERS))


def _table(
    questions: Sequence[Question], scores: Scores, right: Optional[Sequence[str]]
) -> List[str]:
    """Return lines of CSV: choices first, then scores."""
    columns: Dict[str, Sequence[str]] = {"id": [question.name for question in questions]}
    if right is not None:
        columns["answer"] = list(right)
    columns.update({name: chosen(values) for name, values in scores.items()})
    for name, values in scores.items():
        for letter, column in zip(LETTERS, values.T):
            columns[f"{name}_{letter}"] = [f"{value:.6f}" for value in column]
    return [_csv_line(columns), *map(_csv_line, zip(*columns.values()))]


def _csv_line(values: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _accuracies(scores: Scores, right: Sequence[str]) -> Dict[str, Dict[str, Any]]:
    """Return each way's share of right choices with its interval, and how often ways differ."""
    letters = {name: chosen(values) for name, values in scores.items()}
    found: Dict[str, Dict[str, Any]] = {}
    for name, ones in letters.items():
        one = accuracy(ones, right)
        low, high = one.interval()
        found[name] = {**one._asdict(), "share": one.share, "low": low, "high": high}
    if len(letters) == 2:
        differing = sum(one != other for one, other in zip(*letters.values()))
        share = differing / len(right)
        found["differ"] = {"count": differing, "asked": len(right), "share": share}
    return found


def _as_text(found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        f"{name}: {one['right']} of {one['asked']} right, {100 * one['share']:.1f} % "
        f"[{100 * one['low']:.1f}, {100 * one['high']:.1f}]"
        for name, one in found.items()
        if name != "differ"
    ]
    if "differ" in found:
        one = found["differ"]
        shown = f"{one['count']} of {one['asked']}, {100 * one['share']:.1f} %"
        lines.append(f"choices that differ: {shown}")
    return "\n".join(lines)
