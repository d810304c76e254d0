"""Complete sentences: the choice that makes the likeliest sentence fills the gap.

Questions come as in the Microsoft Research Sentence Completion Challenge: in a
table (CSV) with the columns id, question (with _____ for a gap), a), b) and so
on; as lines "1a) I am [walking] alone."; or as lines "1) I am _____ alone.",
"a) walking". A choice for two gaps is "one / two" or "one .. two". Sentences
are cut into words and lower-cased as the checkpoint's training text was, or
else as "fairseq-bnce get-data mscc" does.

The command uses unnormalised and exact scores; with --exact only the latter.
With --answers it prints how many choices are right, with a 95 % interval
(Wilson). It adds the log-probabilities of several models, --path A:B as for
fairseq's ensembles.
"""

import argparse
import csv
import json
import operator
import os
from itertools import zip_longest
from typing import Dict, List, Mapping, Sequence

import numpy as np

from fairseq_bnce.cli import common
from fairseq_bnce.data import completion
from fairseq_bnce.data.completion import Question
from fairseq_bnce.text.training_text import NONE, PENN, TrainingText
from fairseq_bnce.text.writing import Output

Scores = Dict[str, List[np.ndarray]]  # by "unnormalized" and "exact": each question's, in nats


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce complete``."""
    common.add_model_flags(parser)
    add = common.flag_adder(parser)
    add("questions", "CSV, or one of the texts above", metavar="QUESTIONS")
    add("--answers", "CSV (id, answer), or lines '1b) ...' or '1) [b]'", metavar="FILE")
    common.add_text_flags(parser, "as get-data mscc cuts the novels, in lower case")
    add("--tokenized", "same as --tokenize none", action="store_const", dest="tokenize", const=NONE)
    add("--json", "print what --answers prints as one JSON object")
    text = "write a table (CSV) of each question's choices and scores (nats); without --answers "
    text += "the table goes to standard output by default"
    add("--out", text, metavar="FILE")


def run(options: argparse.Namespace) -> None:
    """Answer the questions."""
    # A file whose name has the separator is one model.
    paths = [options.path] if os.path.isfile(options.path) else options.path.split(os.pathsep)
    inputs = [name for path in paths for name in common.model_files(path, options.data)]
    inputs += [options.questions, options.answers]
    common.check_files(options, {"--out": options.out}, inputs)
    questions = completion.read_questions(options.questions)
    right = completion.right_letters(questions, options.answers) if options.answers else []
    with Output(options.out) as out:
        scores = _scores(options, paths, questions)
        if options.out or not right:
            _write_table(out, [question.name for question in questions], scores, right)
    if right:
        found = _accuracies(scores, right)
        print(json.dumps({"path": options.path, **found}) if options.json else _as_text(found))


def _scores(options: argparse.Namespace, paths: List[str], questions: List[Question]) -> Scores:
    """Return the sums of all models' scores."""
    names = ["exact"] if options.exact else ["unnormalized", "exact"]
    sizes = [len(question.sentences) for question in questions]
    totals = dict.fromkeys(names, np.zeros(sum(sizes)))
    novels = None if options.tokenize else TrainingText(PENN, lowercase=True)
    of_paths = [argparse.Namespace(**{**vars(options), "path": path}) for path in paths]
    for model, words in [common.load_model(own, novels) for own in of_paths]:
        texts = [words(text) for question in questions for text in question.sentences]
        for name in names:
            scorer = model.with_exact(True) if name == "exact" else model
            windows = words.counting(scorer.score_windows(texts, tokenized=True))
            windows = common.shown(windows, options, total=len(texts), desc=name, unit=" sentences")
            totals[name] = totals[name] + [score.total for window in windows for score in window]
    return {name: np.split(values, np.cumsum(sizes)[:-1]) for name, values in totals.items()}


def _write_table(out: Output, names: List[str], scores: Scores, right: List[str]) -> None:
    """Write lines of CSV: choices first, then scores."""
    columns: Dict[str, Sequence[str]] = {"id": names}
    if right:
        columns["answer"] = right
    columns.update({name: completion.chosen(values) for name, values in scores.items()})
    for name, values in scores.items():
        for letter, column in zip(completion.LETTERS, zip_longest(*values)):
            cells = ["" if value is None else f"{value:.6f}" for value in column]
            columns[f"{name}_{letter}"] = cells
    csv.writer(out, lineterminator="").writerows([columns, *zip(*columns.values())])


def _accuracies(scores: Scores, right: Sequence[str]) -> Dict[str, Dict[str, float]]:
    """Return each score's share of right choices with its interval, and how often they differ."""
    letters = {name: completion.chosen(values) for name, values in scores.items()}
    rights = {name: sum(map(operator.eq, one, right)) for name, one in letters.items()}
    found = {name: completion.accuracy(count, len(right)) for name, count in rights.items()}
    if len(letters) == 2:
        count = sum(map(operator.ne, *letters.values()))
        found["differ"] = {"count": count, "asked": len(right), "share": count / len(right)}
    return found


def _as_text(found: Mapping[str, Mapping[str, float]]) -> str:
    right = "{name}: {right} of {asked} right, {share:.1f} % [{low:.1f}, {high:.1f}]"
    differ = "choices that differ: {count} of {asked}, {share:.1f} %"
    lines = []
    for name, one in found.items():
        shares = {key: 100 * one[key] for key in ("share", "low", "high") if key in one}
        form = differ if name == "differ" else right
        lines.append(form.format_map({"name": name, **one, **shares}))
    return "\n".join(lines)
