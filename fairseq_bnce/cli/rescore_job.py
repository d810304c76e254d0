"""The work of ``fairseq-bnce rescore``: lists in, features and weights, lists and a report out."""

from __future__ import annotations

import argparse
import os
import re
from contextlib import ExitStack
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli.common import load_scorer, note, progress_bar
from fairseq_bnce.cli.words import ModelWords, check_text_options
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.bootstrap import Comparison, compare
from fairseq_bnce.rescoring.kaldi import KaldiFormat
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.line_search import Lists
from fairseq_bnce.rescoring.lists import NBest, each_once, group
from fairseq_bnce.rescoring.measures import Bleu, WordErrorRate, distinct_counts
from fairseq_bnce.rescoring.moses import MosesFormat
from fairseq_bnce.rescoring.spool import Spool
from fairseq_bnce.rescoring.tuning import tune
from fairseq_bnce.rescoring.weights import (
    COMMENT,
    Space,
    Weights,
    ranking,
    read_weights,
    weight_lines,
)
from fairseq_bnce.text.lines import STDIN, LineSource, readable
from fairseq_bnce.text.output import Output

FEATURE_NAME = re.compile(r"[\w.+-]+")
# What else is added by flags: the ends of the features' names.
_SUFFIXES = {"both": "Exact", "count_words": "Words", "count_oov": "OOV"}


class Job:
    """Everything that can be refused is, before the model is loaded.

    Args:
        options: of ``fairseq-bnce rescore``, which make sense together.

    Raises:
        InputError: for weights, references, lists or words that can't be used.
    """

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.format = _format(options)
        self.weights: Optional[Weights] = read_weights(options.weights) if options.weights else None
        names = options.tune or options.ref
        self.measure = _measure(options, names) if names else None
        self.references = self._references(names) if names else {}
        self.source = LineSource(options.list)
        check_text_options(options)
        self.tuned = self._tuned_names() if options.tune else []
        self._check_is_used()
        self.weights_out: Optional[Output] = None
        self.words: Optional[ModelWords] = None  # counts each distinct hypothesis once

    def _references(self, names: List[str]) -> Dict[str, List[str]]:
        try:
            return self.format.references(names)
        except InputError as error:
            raise InputError(f"{'--tune' if self.options.tune else '--ref'}: {error}") from None

    def run(self) -> None:
        """Read, score, tune and write, as the options say."""
        with ExitStack() as stack:
            out = stack.enter_context(Output(self.options.out))
            best, self.weights_out = (
                stack.enter_context(Output(name)) if name else None
                for name in (self.options.best, self.options.weights_out)
            )
            spool = stack.enter_context(Spool())
            self._check_lists()
            self._write(self._lists(), out, best, spool)
        if self.words is not None:
            self.words.end()
        self.source.warn_of_bad_lines()

    def _check_lists(self) -> None:
        """Read them once without the model, where that is possible, if they need references.

        A list that has none, or a line that can't be read, would else end hours of scoring.
        """
        files = [self.options.list, *cost_files(self.options)]
        can_be_read_again = all(name != STDIN and os.path.isfile(name) for name in files)
        if self.measure is None or self.options.path is None or not can_be_read_again:
            return
        lists = group(_format(self.options).hypotheses(LineSource(self.options.list)))
        for nbest in each_once(lists):
            self._reference(nbest)

    def _lists(self) -> Iterator[NBest]:
        lists = group(self.format.hypotheses(self.source))
        if self.weights or self.options.tune:
            lists = each_once(lists)
        if self.options.path is not None:
            lists = add_features(lists, self._added())
        return iter(progress_bar(iterable=lists, unit=" lists"))

    def _added(self) -> Added:
        from fairseq_bnce.scoring import Scorer  # and with it fairseq

        options = self.options
        exact, words, oov = (_name(options, flag) for flag in _SUFFIXES)
        scorer = load_scorer(Scorer, options)
        self.words = ModelWords(options, scorer, least=0)
        scorers = {options.feature: scorer}
        if exact is not None:
            scorers[exact] = scorer.with_exact(True)
        return Added(
            scorers,
            words,
            oov,
            -1 if self.format.name == "kaldi" else 1,
            self.words,
            self.words.count,
        )

    def _write(
        self, lists: Iterator[NBest], out: Output, best: Optional[Output], spool: Spool
    ) -> None:
        if self.options.tune:
            lists = self._tune(lists, spool)
        if self.weights is None:
            for nbest in lists:
                _write_lines(out, map(self.format.annotated, nbest.hypotheses))
        else:
            self._write_ranked(lists, self.weights, out, best)

    def _tune(self, lists: Iterator[NBest], spool: Spool) -> Iterator[NBest]:
        """Fit the weights; the lists wait in a file meanwhile."""
        features: List[np.ndarray] = []
        counts: List[np.ndarray] = []
        for space, nbest in _in_space(self.tuned, lists, self.weights):
            features.append(space.matrix(nbest))
            words = [readable(hypothesis.words) for hypothesis in nbest.hypotheses]
            counts.append(distinct_counts(self.measure, words, self._reference(nbest)))
            spool.add(nbest)
        if not features:
            raise InputError(f"{self.source.name}: required n-best lists, got nothing")
        joined = Lists.of(features, counts)
        del features, counts  # as large once more
        space.check_met()
        self.weights = self._fit(space, joined)
        return iter(spool)

    def _fit(self, space: Space, lists: Lists) -> Weights:
        options = self.options
        start = space.vector(self.weights or self._default_weights())
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
        """A better score then ranks a hypothesis lower; counts may have either sign."""
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
        for name in names:
            if name.startswith(COMMENT):
                raise InputError(
                    f"--tune: required names without {COMMENT} before them, which makes a comment "
                    f"of a line of --weights-out, got {quoted(name)}"
                )
        if len(names) < 2:
            raise InputError(
                f"--tune: required at least two features (--path, --tune-features), got {names}"
            )
        return names

    def _check_is_used(self) -> None:
        """Whether what the model adds has a weight where lists are ranked, before it is scored."""
        added, weighted = _added_names(self.options), self.tuned or list(self.weights or {})
        if not added or not weighted or not set(added).isdisjoint(weighted):
            return
        if self.format.name == "kaldi":
            flag = "--tune-features" if self.tuned else "--weights"
            raise InputError(
                f"{flag}: required a weight of {' or '.join(added)}, which --path adds, got none: "
                "Kaldi lists that are ranked are written without it"
            )
        names = ", ".join(added)
        note(f"no weight is one of {names}, which --path adds: lists are ranked without it")

    def _own_names(self) -> List[str]:
        """The features that stand for what the list's own system thought."""
        return [self.format.total] if self.format.total else list(self.format.costs)

    def _default_weights(self) -> Weights:
        return dict.fromkeys(self._own_names(), (1.0,))

    def _reference(self, nbest: NBest) -> List[str]:
        try:
            return self.references[nbest.list_id]
        except KeyError:
            raise nbest.hypotheses[0].line.error(
                f"a list that has a reference (there are {len(self.references)})",
                quoted(nbest.list_id),
            ) from None

    def _write_ranked(
        self, lists: Iterable[NBest], weights: Weights, out: Output, best: Optional[Output]
    ) -> None:
        counts: List[np.ndarray] = []
        vector, in_order = None, True  # in_order: the lines of --best, by the lists' numbers
        for line, (space, nbest) in enumerate(_in_space(list(weights), lists, weights)):
            vector = space.vector(weights) if vector is None else vector
            order, totals = ranking(space.matrix(nbest), vector)
            ranked = [nbest.hypotheses[number] for number in order]
            _write_lines(out, map(self.format.rescored, ranked, totals[order]))
            if best is not None:
                _write_lines(best, [self.format.best(ranked[0])])
                in_order = in_order and self._is_in_order(nbest, line)
            if self.measure is not None:
                pair = [readable(nbest.hypotheses[0].words), readable(ranked[0].words)]
                counts.append(distinct_counts(self.measure, pair, self._reference(nbest)))
        if vector is not None and space.unmet():  # as sparse features may be of another text alone
            unmet = ", ".join(map(quoted, space.unmet()))
            if len(space.unmet()) == len(weights):
                raise InputError(f"--weights: required a feature of the lists, got {unmet}")
            note(f"no list has a feature {unmet}, which has a weight")
        if counts:
            before, after = np.array(counts).swapaxes(0, 1)
            self._report(before, after)

    def _is_in_order(self, nbest: NBest, line: int) -> bool:
        """Whether a line of --best, from 0, is that of a reference text; told of if not."""
        is_there = self.format.name != "moses" or nbest.list_id == str(line)
        if not is_there:
            note(
                f"--best: line {line + 1} is of list {quoted(nbest.list_id)}: the lines are in the "
                "order of the lists, and not of their numbers"
            )
        return is_there

    def _report(self, before: np.ndarray, after: np.ndarray) -> None:
        options = self.options
        found = compare(before, after, self.measure, resamples=options.resamples, seed=options.seed)
        note(_sentence(found, self.measure, options))
        if len(before) < len(self.references):
            note(f"{len(before):,} of {len(self.references):,} references have a list")


def _format(options: argparse.Namespace) -> Any:
    if options.format == "moses":
        return MosesFormat()
    costs: Dict[str, str] = {}
    for given in options.cost:
        name, sign, file = given.partition("=")
        if not sign or not FEATURE_NAME.fullmatch(name) or not file or name in costs:
            raise InputError(
                "--cost: required NAME=FILE, every name once and of letters, digits and _ . + -, "
                f"got {quoted(given)}"
            )
        costs[name] = file
    return KaldiFormat(costs)


def cost_files(options: argparse.Namespace) -> List[str]:
    """The files of ``--cost NAME=FILE``."""
    return [given.partition("=")[2] for given in options.cost]


def _name(options: argparse.Namespace, flag: str) -> Optional[str]:
    """Of the feature that a flag adds; None if it is not given."""
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
    """Each list, with the space that the first one makes."""
    space: Optional[Space] = None
    for nbest in lists:
        space = space or _space(names, nbest, weights)
        yield space, nbest


def _space(names: List[str], first: NBest, weights: Optional[Weights]) -> Space:
    """Of what may be misspelt this tells now."""
    space = Space(names, first, weights)
    if space.unmet():
        note(f"the first list has no feature {', '.join(map(quoted, space.unmet()))}")
    return space


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
