"""The work of ``fairseq-bnce rescore``: reads lists, adds features, weights them, writes lists."""

from __future__ import annotations

import argparse
import os
import pickle
import tempfile
from contextlib import ExitStack
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli.common import load_scorer, note, progress_bar
from fairseq_bnce.cli.words import ModelWords, check_text_options
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.kaldi import KaldiFormat
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.lists import NBest, group, unique_lists
from fairseq_bnce.rescoring.measures import (
    Bleu,
    Comparison,
    WordErrorRate,
    compare,
    distinct_counts,
)
from fairseq_bnce.rescoring.moses import MosesFormat
from fairseq_bnce.rescoring.tuning import Lists, tune
from fairseq_bnce.rescoring.weights import Space, Weights, ranking, read_weights, weight_lines
from fairseq_bnce.text.reading import LineSource, readable
from fairseq_bnce.text.writing import Output, write_errors

# Flags that add features, and the ends of the features' names.
_SUFFIXES = {"both": "Exact", "count_words": "Words", "count_oov": "OOV"}


class Job:
    """Reads weights and references, so that mistakes are reported before the model is loaded.

    Args:
        options: of ``fairseq-bnce rescore``.

    Raises:
        InputError: for weights, references, lists or words that cannot be used.
    """

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.format = _format(options)
        self.weights: Optional[Weights] = read_weights(options.weights) if options.weights else None
        names = options.tune or options.ref
        self.measure = _measure(options, names) if names else None
        self.references = self.format.references(names) if names else {}
        self.source = LineSource(options.list)
        check_text_options(options)
        self.tuned = self._tuned_names() if options.tune else []
        self._note_unused_feature()
        self.weights_out: Optional[Output] = None
        self.words: Optional[ModelWords] = None  # counts each distinct hypothesis once

    def run(self) -> None:
        """Read, score, tune and write."""
        with ExitStack() as stack:
            out = stack.enter_context(Output(self.options.out))
            best, self.weights_out = (
                stack.enter_context(Output(name)) if name else None
                for name in (self.options.best, self.options.weights_out)
            )
            self._check_lists()
            lists = self._lists()
            if self.options.tune:
                lists = self._tune(lists, stack.enter_context(tempfile.TemporaryFile()))
            if self.weights is None:
                for nbest in lists:
                    _write_lines(out, map(self.format.annotated, nbest.hypotheses))
            else:
                self._write_ranked(lists, self.weights, out, best)
        if self.words is not None:
            self.words.end()
        self.source.warn_of_bad_lines()

    def _check_lists(self) -> None:
        """Read lists without the model first, if they need references and are files.

        A list without a reference would otherwise end the command after hours of scoring.
        """
        files = [self.options.list, *(file for _, file in self.options.cost)]
        if self.measure is None or not self.options.path or not all(map(os.path.isfile, files)):
            return
        lists = group(_format(self.options).hypotheses(LineSource(self.options.list)))
        for nbest in unique_lists(lists):
            self._reference(nbest)

    def _lists(self) -> Iterator[NBest]:
        lists = group(self.format.hypotheses(self.source))
        if self.weights or self.options.tune:
            lists = unique_lists(lists)
        if self.options.path:
            lists = add_features(lists, self._added())
        return iter(progress_bar(iterable=lists, unit=" lists"))

    def _added(self) -> Added:
        from fairseq_bnce.scoring import Scorer  # imports fairseq

        options = self.options
        exact, words, oov = (_name(options, flag) for flag in _SUFFIXES)
        scorer = load_scorer(Scorer, options)
        self.words = ModelWords(options, scorer, least=0)
        scorers = {options.feature: scorer}
        if exact is not None:
            scorers[exact] = scorer.with_exact(True)
        sign = -1 if self.format.name == "kaldi" else 1
        return Added(scorers, words, oov, sign, self.words, self.words.count)

    def _tune(self, lists: Iterator[NBest], scratch: Any) -> Iterator[NBest]:
        """Fit the weights; meanwhile the lists are in a temporary file."""
        features: List[np.ndarray] = []
        counts: List[np.ndarray] = []
        for space, nbest in _in_space(self.tuned, lists, self.weights):
            features.append(space.matrix(nbest))
            words = [readable(hypothesis.words) for hypothesis in nbest.hypotheses]
            counts.append(distinct_counts(self.measure, words, self._reference(nbest)))
            with write_errors("temporary file"):
                pickle.dump(nbest, scratch)
        if not features:
            raise InputError(f"{self.source.name}: required n-best lists, got nothing")
        joined, number = Lists.join(features, counts), len(features)
        del features, counts  # they take as much memory again
        space.check_met()
        self.weights = self._fit(space, joined)
        with write_errors("temporary file"):
            scratch.seek(0)
        return (pickle.load(scratch) for _ in range(number))

    def _fit(self, space: Space, lists: Lists) -> Weights:
        options = self.options
        start = space.vector(self.weights or dict.fromkeys(self._own_names(), (1.0,)))
        with progress_bar(unit=" lines searched") as bar:
            tuned = tune(
                lists,
                start,
                self.measure,
                restarts=options.restarts,
                seed=options.seed,
                on_line=bar.update,
            )
        weights = space.weights(tuned.weights)
        note("weights: " + ", ".join(weight_lines(weights)))
        self._note_negative(weights)
        if self.weights_out is not None:
            _write_lines(self.weights_out, weight_lines(weights))
        return weights

    def _note_negative(self, weights: Weights) -> None:
        """Report features whose better score ranks lower; counts may have either sign."""
        counts = (_name(self.options, "count_words"), _name(self.options, "count_oov"))
        names = [name for name in weights if name not in counts and min(weights[name]) < 0]
        if names:
            note(
                f"negative weight of {', '.join(map(quoted, names))}: a hypothesis that it scores "
                "better ranks lower, often by chance; tune on more sentences, or on fewer features "
                "(--tune-features)"
            )

    def _tuned_names(self) -> List[str]:
        if self.options.tune_features:
            names = [name.strip() for name in self.options.tune_features.split(",")]
        else:
            names = [*self._own_names(), *_added_names(self.options), *(self.weights or {})]
        names = list(dict.fromkeys(names))
        if len(names) < 2:
            raise InputError(
                f"--tune: required at least two features (--path, --tune-features), got {names}"
            )
        return names

    def _note_unused_feature(self) -> None:
        """Report, before the scoring, that ranks do not depend on the model."""
        added, weighted = _added_names(self.options), self.tuned or list(self.weights or {})
        if added and weighted and set(added).isdisjoint(weighted):
            names = ", ".join(added)
            note(f"no weight is one of {names}, which --path adds: lists are ranked without it")

    def _own_names(self) -> List[str]:
        """Return the features with the scores of the system that made the lists."""
        return [self.format.total] if self.format.total else list(self.format.costs)

    def _reference(self, nbest: NBest) -> List[str]:
        if nbest.list_id not in self.references:
            raise nbest.hypotheses[0].line.error(
                f"a list that has a reference (there are {len(self.references)})",
                quoted(nbest.list_id),
            )
        return self.references[nbest.list_id]

    def _write_ranked(
        self, lists: Iterable[NBest], weights: Weights, out: Output, best: Optional[Output]
    ) -> None:
        counts: List[np.ndarray] = []
        is_in_order = True  # whether line i of --best is of list i
        space: Optional[Space] = None
        for number, (space, nbest) in enumerate(_in_space(list(weights), lists, weights)):
            order, totals = ranking(space.matrix(nbest), space.vector(weights))
            ranked = [nbest.hypotheses[place] for place in order]
            _write_lines(out, map(self.format.rescored, ranked, totals[order]))
            if best is not None:
                _write_lines(best, [self.format.best(ranked[0])])
                is_in_order = is_in_order and self._note_order(nbest, number)
            if self.measure is not None:
                pair = [readable(nbest.hypotheses[0].words), readable(ranked[0].words)]
                counts.append(distinct_counts(self.measure, pair, self._reference(nbest)))
        if space is not None and space.unmet():
            unmet = ", ".join(map(quoted, space.unmet()))
            if len(space.unmet()) == len(weights):
                raise InputError(f"--weights: required a feature of the lists, got {unmet}")
            note(f"no list has a feature {unmet}, which has a weight")
        if counts:
            before, after = np.array(counts).swapaxes(0, 1)
            self._report(before, after)

    def _note_order(self, nbest: NBest, number: int) -> bool:
        """Return whether a Moses list has this number; report it if not."""
        is_same = self.format.name != "moses" or nbest.list_id == str(number)
        if not is_same:
            note(
                f"--best: line {number + 1} is of list {quoted(nbest.list_id)}: the lines are in "
                "the order of the lists, and not of their numbers"
            )
        return is_same

    def _report(self, before: np.ndarray, after: np.ndarray) -> None:
        options = self.options
        found = compare(before, after, self.measure, resamples=options.resamples, seed=options.seed)
        note(_sentence(found, self.measure, options))
        if len(before) < len(self.references):
            note(f"{len(before):,} of {len(self.references):,} references have a list")


def _format(options: argparse.Namespace) -> Any:
    return MosesFormat() if options.format == "moses" else KaldiFormat(dict(options.cost))


def _name(options: argparse.Namespace, flag: str) -> Optional[str]:
    """Return the name of the feature that a flag adds; None if the flag is not given."""
    return options.feature + _SUFFIXES[flag] if getattr(options, flag) else None


def _added_names(options: argparse.Namespace) -> List[str]:
    others = (_name(options, flag) for flag in _SUFFIXES)
    return [options.feature, *filter(None, others)] if options.path else []


def _measure(options: argparse.Namespace, references: List[str]) -> Any:
    metric = options.metric or ("wer" if options.format == "kaldi" else "bleu")
    if metric == "wer" and len(references) > 1:
        flag = "--tune" if options.tune else "--ref"
        raise InputError(f"{flag}: required once with --metric wer, got {len(references)} of them")
    return WordErrorRate() if metric == "wer" else Bleu(options.bleu_tokenize)


def _in_space(
    names: List[str], lists: Iterable[NBest], weights: Optional[Weights]
) -> Iterator[Tuple[Space, NBest]]:
    """Yield each list with the space of the first one."""
    space: Optional[Space] = None
    for nbest in lists:
        if space is None:
            space = Space(names, nbest, weights)
            if space.unmet():
                note(f"the first list has no feature {', '.join(map(quoted, space.unmet()))}")
        yield space, nbest


def _write_lines(out: Output, lines: Iterable[str]) -> None:
    for line in lines:
        out.write(line)
    out.flush()


def _sentence(found: Comparison, measure: Any, options: argparse.Namespace) -> str:
    low, high = found.gain_interval
    (old_low, old_high), (new_low, new_high) = found.before_interval, found.after_interval
    return (
        f"{measure.description}: before {found.before:.2f} [{old_low:.2f}, {old_high:.2f}] (each "
        f"list's first entry), after {found.after:.2f} [{new_low:.2f}, {new_high:.2f}], "
        f"difference {found.after - found.before:+.2f} [{low:+.2f}, {high:+.2f}] "
        f"(95 % intervals, paired bootstrap: {options.resamples:,} resamples of "
        f"{found.sentences:,} sentences, seed {options.seed})"
    )
