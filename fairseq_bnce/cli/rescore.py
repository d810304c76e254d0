"""Add a language model's scores to n-best lists; tune weights on them; apply weights.

Moses: "id ||| hypothesis ||| features ||| score" (more fields may follow) gets a feature more,
"BNCE= -12.3": the log-probability, nats. Kaldi: "utterance-n word word ..." gives a file of costs,
"utterance-n 12.3": the negative log-probability.

With --weights or --tune the lists are sorted by the weighted sum of their features, best first;
"score" is the total that a Moses list came with.

  fairseq-bnce rescore --path CKPT --tune dev.ref --weights-out w dev.nbest
  fairseq-bnce rescore --path CKPT --weights w --best test.best test.nbest
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import tempfile
from contextlib import ExitStack
from typing import IO, Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli.common import (
    add_model_options,
    add_text_options,
    load_scorer,
    note,
    note_unknown,
    progress_bar,
    refuse_empty,
)
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.bootstrap import Comparison, compare
from fairseq_bnce.rescoring.kaldi import KaldiFormat
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.line_search import Lists
from fairseq_bnce.rescoring.lists import NBest, each_once, group
from fairseq_bnce.rescoring.measures import Bleu, WordErrorRate, distinct_counts
from fairseq_bnce.rescoring.moses import MosesFormat
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
from fairseq_bnce.text.numerals import at_least
from fairseq_bnce.text.output import Output, is_special, part_of, write_error
from fairseq_bnce.text.stream import word_maker

FEATURE_NAME = re.compile(r"[\w.+-]+")
_REPLACED = ("NBEST", "--weights")  # what is read, and may be written anew
# What else is added by flags: the ends of the features' names.
_SUFFIXES = {"both": "Exact", "count_words": "Words", "count_oov": "OOV"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fairseq-bnce rescore``."""
    add_model_options(parser, required=False)  # lists may have their scores already
    add_text_options(parser)
    _add_list_options(parser)
    _add_feature_options(parser.add_argument_group("features"))
    _add_weight_options(parser.add_argument_group("weights"))
    _add_output_options(parser.add_argument_group("output"))


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "list",
        nargs="?",
        default=STDIN,
        metavar="NBEST",
        help="n-best lists, also gzipped (*.gz); standard input by default, and for -",
    )
    parser.add_argument(
        "--format", choices=("moses", "kaldi"), default="moses", help="of NBEST (default: moses)"
    )
    parser.add_argument(
        "--cost",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="Kaldi: costs of the same hypotheses in the same order ('utterance-n cost'), as a "
        "feature of this name; may be given again",
    )


def _add_feature_options(group: Any) -> None:
    add = group.add_argument
    add("--feature", default="BNCE", metavar="NAME", help="of the added score (default: BNCE)")
    add(
        "--both",
        action="store_true",
        help="the softmax's log-probabilities as a feature NAMEExact, besides unnormalised ones",
    )
    add(
        "--count-words",
        action="store_true",
        help="a feature NAMEWords: words of the hypothesis",
    )
    add(
        "--count-oov",
        action="store_true",
        help="a feature NAMEOOV: words that the model does not know",
    )


def _add_weight_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--weights",
        metavar="FILE|NAME=V,...",
        help="'name= value ...' lines, or 'name=value ...,name=value': a weight for each of a "
        "feature's values. With --tune: where the search starts",
    )
    add(
        "--tune",
        action="append",
        metavar="REF",
        help="fit weights to references: line i (from 0) is of list i; for Kaldi a text "
        "('utterance word word ...'). Given again: more references for BLEU",
    )
    add("--ref", action="append", metavar="REF", help="references to measure --weights by")
    add(
        "--tune-features",
        metavar="NAME,...",
        help="the features that get weights (default: score, or the costs of a Kaldi list; those "
        "added; those of --weights)",
    )
    add("--weights-out", metavar="FILE", help="where tuned weights are written for --weights")
    add("--metric", choices=("bleu", "wer"), help="default: bleu; for Kaldi wer")
    add(
        "--bleu-tokenize",
        default="none",
        metavar="NAME",
        help="tokeniser of sacrebleu's (default: none; lists and references are taken to be "
        "tokenised alike)",
    )
    some = at_least(0, 10_000)
    add("--restarts", type=some, default=10, metavar="N", help="random starts (default: 10)")
    many = at_least(1, 1_000_000)
    add(
        "--resamples", type=many, default=1000, metavar="N", help="of the bootstrap (default: 1000)"
    )
    seed = "of random starts and resamples (default: 1)"
    add("--seed", type=at_least(0), default=1, metavar="N", help=seed)


def _add_output_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--out",
        metavar="FILE",
        help="appears when it is whole, FILE.part until then (default: standard output, also -)",
    )
    add("--best", metavar="FILE", help="the first hypotheses, with --weights or --tune")


def run(options: argparse.Namespace) -> int:
    """Rescore the lists.

    Raises:
        InputError, ScoringError, UnsupportedModelError: for what the user has
            to mend.
    """
    _check(options)
    _check_names(options)
    _check_files(options)
    _Job(options).run()
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse what makes no sense together, before any work."""
    refuse_empty(options, "weights", "tune_features", "weights_out", "out", "best")
    has_weights = bool(options.weights or options.tune)
    for name in ("exact", "both", "count_words", "count_oov"):
        if getattr(options, name) and options.path is None:
            raise InputError(f"--{name.replace('_', '-')}: required --path beside it, got none")
    for is_wrong, flag, required in (
        (options.path is None and not has_weights, "--path", "it, or --weights or --tune"),
        (options.exact and options.both, "--both", "no --exact, which is one of the two"),
        (options.tune and options.ref, "--ref", "no --tune, which measures by its own references"),
        (options.ref and not has_weights, "--ref", "--weights, whose effect is measured"),
        (options.best and not has_weights, "--best", "--weights or --tune"),
        (options.weights_out and not options.tune, "--weights-out", "--tune"),
        (options.tune_features and not options.tune, "--tune-features", "--tune"),
        (options.cost and options.format != "kaldi", "--cost", "--format kaldi"),
    ):
        if is_wrong:
            raise InputError(f"{flag}: required {required}")


def _check_names(options: argparse.Namespace) -> None:
    """Names that are written into lists and weights are read from there again."""
    if not FEATURE_NAME.fullmatch(options.feature):
        raise InputError(
            "--feature: required a name of letters, digits and _ . + -, got "
            f"{quoted(options.feature)}"
        )


def _check_files(options: argparse.Namespace) -> None:
    """Each is read, or written, for one thing, but for what may be replaced."""
    read = {"NBEST": options.list, "--weights": options.weights, "--cost": _cost_files(options)}
    read.update({"--tune": options.tune, "--ref": options.ref})
    names = [(flag, name) for flag, given in read.items() for name in _as_list(given)]
    waiting = [flag for flag, name in names if name == STDIN]
    if len(waiting) > 1:
        raise InputError(
            f"standard input ({STDIN!r}): required once, got it for {' and '.join(waiting)}"
        )
    outputs = {"--out": options.out or STDIN, "--best": options.best}
    outputs["--weights-out"] = options.weights_out
    written: Dict[str, str] = {}
    for flag, name in outputs.items():
        if name is not None:
            place = STDIN if name == STDIN else os.path.realpath(name)
            other = written.setdefault(place, flag)
            if other != flag and (name == STDIN or not is_special(name)):
                raise InputError(f"{flag}: required another file than {other}, got {name}")
    _check_read(written, [(flag, name) for flag, name in names if name not in (None, STDIN)])


def _check_read(written: Dict[str, str], read: List[Tuple[str, str]]) -> None:
    """No output is a file that is read, nor is what it is called until it is whole."""
    used = {os.path.realpath(name): flag for flag, name in read}
    for place, flag in used.items():
        other = written.get(place)
        if other is not None and flag not in _REPLACED and not is_special(place):
            raise InputError(f"{other}: required another file than that of {flag}, got {place}")
    for place, flag in written.items():
        other = {**written, **used}.get(part_of(place))
        if other is not None and place != STDIN and not is_special(place):
            raise InputError(
                f"{other}: required another file than {part_of(place)}, which is that of {flag} "
                "until it is whole"
            )


def _cost_files(options: argparse.Namespace) -> List[str]:
    return [given.partition("=")[2] for given in options.cost]


def _as_list(given: Any) -> List[str]:
    return given if isinstance(given, list) else [given]


class _Job:
    """Everything that can be refused is, before the model is loaded."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.format = _format(options)
        self.weights: Optional[Weights] = read_weights(options.weights) if options.weights else None
        names = options.tune or options.ref
        self.measure = _measure(options, names) if names else None
        self.references = self._references(names) if names else {}
        self.source = LineSource(options.list)
        self.make_words = word_maker(options.tokenize, options.lowercase)
        self.tuned = self._tuned_names() if options.tune else []
        self.weights_out: Optional[Output] = None
        self.words = self.unknown = 0  # of what is scored, each distinct hypothesis once

    def _references(self, names: List[str]) -> Dict[str, List[str]]:
        try:
            return self.format.references(names)
        except InputError as error:
            raise InputError(f"{'--tune' if self.options.tune else '--ref'}: {error}") from None

    def run(self) -> None:
        with ExitStack() as stack:
            out = stack.enter_context(Output(self.options.out))
            best, self.weights_out = (
                stack.enter_context(Output(name)) if name else None
                for name in (self.options.best, self.options.weights_out)
            )
            spool = stack.enter_context(_spool())
            self._check_lists()
            self._write(self._lists(), out, best, spool)
        note_unknown(self.unknown, self.words)

    def _check_lists(self) -> None:
        """Read them once without the model, where that is possible, if they need references.

        A list that has none, or a line that can't be read, would else end hours of scoring.
        """
        files = [self.options.list, *_cost_files(self.options)]
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
        scorers = {options.feature: scorer}
        if exact is not None:
            scorers[exact] = scorer.with_exact(True)
        return Added(
            scorers,
            words,
            oov,
            -1 if self.format.name == "kaldi" else 1,
            self.make_words,
            self._count_words,
        )

    def _count_words(self, words: int, unknown: int) -> None:
        self.words, self.unknown = self.words + words, self.unknown + unknown

    def _write(
        self, lists: Iterator[NBest], out: Output, best: Optional[Output], spool: IO[bytes]
    ) -> None:
        if self.options.tune:
            lists = self._tune(lists, spool)
        if self.weights is None:
            for nbest in lists:
                _write_lines(out, map(self.format.annotated, nbest.hypotheses))
        else:
            self._write_ranked(lists, self.weights, out, best)

    def _tune(self, lists: Iterator[NBest], spool: IO[bytes]) -> Iterator[NBest]:
        """Fit the weights; the lists wait in a file meanwhile."""
        features: List[np.ndarray] = []
        counts: List[np.ndarray] = []
        for space, nbest in _in_space(self.tuned, lists, self.weights):
            features.append(space.matrix(nbest))
            words = [readable(hypothesis.words) for hypothesis in nbest.hypotheses]
            counts.append(distinct_counts(self.measure, words, self._reference(nbest)))
            _to_spool(nbest, spool)
        if not features:
            raise InputError(f"{self.source.name}: required n-best lists, got nothing")
        count, joined = len(features), Lists.of(features, counts)
        del features, counts  # as large once more
        space.check_met()
        self.weights = self._fit(space, joined)
        return _from_spool(spool, count)

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
        if self.weights_out is not None:
            _write_lines(self.weights_out, weight_lines(weights))
        return weights

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


def _spool() -> IO[bytes]:
    """A file for the lists that wait while weights are tuned on them."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise write_error("temporary file", error) from error


def _to_spool(nbest: NBest, spool: IO[bytes]) -> None:
    try:
        pickle.dump(nbest, spool)
        spool.flush()
    except OSError as error:
        raise write_error(f"temporary file in {tempfile.gettempdir()}", error) from error


def _from_spool(spool: IO[bytes], count: int) -> Iterator[NBest]:
    spool.seek(0)
    for _ in range(count):
        yield pickle.load(spool)  # this process's own


def _sentence(found: Comparison, measure: Any, options: argparse.Namespace) -> str:
    low, high = found.gain_interval
    (old_low, old_high), (new_low, new_high) = found.before_interval, found.after_interval
    return (
        f"{measure.description}: before {found.before:.2f} [{old_low:.2f}, {old_high:.2f}], "
        f"after {found.after:.2f} [{new_low:.2f}, {new_high:.2f}], "
        f"difference {found.after - found.before:+.2f} [{low:+.2f}, {high:+.2f}] "
        f"(95 % intervals, paired bootstrap: {options.resamples:,} resamples of "
        f"{found.sentences:,} sentences, seed {options.seed})"
    )
