"""Add a language model's scores to n-best lists; tune weights; apply weights.

Moses lists, "id ||| hypothesis ||| features ||| score" (more fields may
follow), get one more feature, "BNCE= -12.3": the log-probability in nats.
Kaldi lists, "utterance-n word word ...", give a file of costs, "utterance-n
12.3": negative log-probabilities.

With --weights or --tune the lists are sorted by the weighted sum of their
features, best first. The feature "score" is the total of a Moses list. Weights
are a file of lines "name= value ...", or NAME=VALUE with spaces or commas
between several: one value for each of a feature's values.

Line i (from 0) of a reference belongs to list i; a Kaldi reference is a text,
"utterance word word ...". Give --tune or --ref again for more references.

  fairseq-bnce rescore --path CKPT --tune dev.ref --weights-out w dev.nbest
  fairseq-bnce rescore --path CKPT --weights w --best test.best test.nbest
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import re
import tempfile
from contextlib import ExitStack
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.kaldi import KaldiFormat
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.lists import NBest, group, unique_lists
from fairseq_bnce.rescoring.measures import Bleu, WordErrorRate, compare, distinct_counts
from fairseq_bnce.rescoring.moses import MosesFormat
from fairseq_bnce.rescoring.tuning import Lists, tune
from fairseq_bnce.rescoring.weights import Space, Weights, ranking, read_weights, weight_lines
from fairseq_bnce.text.numerals import at_least, decimal
from fairseq_bnce.text.reading import STDIN, LineSource, readable
from fairseq_bnce.text.writing import Output

logger = logging.getLogger(__name__)
# The flags that add features, and the ends of the features' names.
_SUFFIXES = {"path": "", "both": "Exact", "count_words": "Words", "count_oov": "OOV"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce rescore``."""
    common.add_model_flags(parser, is_required=False)  # lists may have their scores already
    common.add_text_flags(parser.add_argument_group("words"))
    _add_list_flags(parser)
    _add_weight_flags(parser)
    add = common.flag_adder(parser.add_argument_group("output"))
    text = "appears when it is complete, FILE.part until then (default: standard output, also -)"
    add("--out", text, metavar="FILE")
    add("--best", "write the first hypotheses, with --weights or --tune", metavar="FILE")


def _add_list_flags(parser: argparse.ArgumentParser) -> None:
    add = common.flag_adder(parser)
    text = "n-best lists, also gzip, bzip2 or xz; standard input by default, and for -"
    add("list", text, metavar="NBEST", nargs="?", default=STDIN)
    add("--format", "of NBEST (default: moses)", choices=("moses", "kaldi"), default="moses")
    text = "costs of a Kaldi list, 'utterance-n cost' in the list's order, as the feature NAME"
    add("--cost", text, metavar="NAME=FILE", type=_cost, action="append", default=[])
    add = common.flag_adder(parser.add_argument_group("features"))
    text = "name of the added score (default: BNCE)"
    add("--feature", text, metavar="NAME", type=_feature_name, default="BNCE")
    add("--both", "add unnormalised scores, and those of the softmax as NAMEExact")
    add("--count-words", "add the number of the hypothesis' words as NAMEWords")
    add("--count-oov", "add the number of words that the model does not know as NAMEOOV")


def _add_weight_flags(parser: argparse.ArgumentParser) -> None:
    add = common.flag_adder(parser.add_argument_group("weights"))
    text = "weights to sort the lists by; with --tune, the start of the search"
    add("--weights", text, metavar=("FILE|NAME=V", "NAME=V"), nargs="+")
    add("--tune", "fit the weights to these references", metavar="REF", action="append")
    add("--ref", "measure --weights by these references", metavar="REF", action="append")
    text = "features that get weights (default: score, or --cost; the added ones; --weights)"
    add("--tune-features", text, metavar="NAME,...")
    add("--weights-out", "write the tuned weights, for --weights", metavar="FILE")
    add("--metric", "default: bleu; for Kaldi lists wer", choices=("bleu", "wer"))
    text = "sacrebleu's tokeniser (default: none; lists and references are cut alike)"
    add("--bleu-tokenize", text, metavar="NAME", default="none")
    count: Dict[str, Any] = {"metavar": "N", "type": at_least(0)}
    add("--restarts", "number of random starts (default: 10)", default=10, **count)
    text = "number of resamples of the bootstrap (default: 1000)"
    add("--resamples", text, metavar="N", type=at_least(1), default=1000)
    add("--seed", "of random starts and resamples (default: 1)", default=1, **count)


def _feature_name(text: str) -> str:
    """Return a name that lists and weights can hold: a type for argparse."""
    if not re.fullmatch(r"[\w.+-]+", text):
        required = "a name of letters, digits and _ . + -"
        raise argparse.ArgumentTypeError(f"required {required}, got {quoted(text)}")
    return text


def _cost(text: str) -> Tuple[str, str]:
    """Return (name, file): a type for argparse."""
    name, file = text.split("=", 1)
    return _feature_name(name), file


def run(options: argparse.Namespace) -> None:
    """Rescore the lists."""
    if options.weights:
        _separate_weights(options)
    _check_flags(options)
    _check_files(options)
    _Rescoring(options).run()


def _separate_weights(options: argparse.Namespace) -> None:
    """Join the values of --weights into one text; an NBEST among them is not a weight."""
    weights, *others = options.weights
    lists = [] if options.list == STDIN else [options.list]
    for value in others:
        is_number = decimal(value) is not None
        if os.path.exists(value) or not (is_number or "=" in value):
            lists.append(value)
        else:
            weights += f"{' ' if is_number else ','}{value}"
    if len(lists) > 1:
        raise InputError(f"--weights: required weights and one NBEST, got {quoted(lists[1])} too")
    options.weights, options.list = weights, (lists or [STDIN])[0]


def _check_flags(options: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, before any work."""
    has_weights = bool(options.weights or options.tune)
    names = [name for name, _ in options.cost]
    for is_wrong, flag, required in (
        *((not options.path, name, "--path") for name in ("exact", *_SUFFIXES) if name != "path"),
        (not options.path and not has_weights, "path", "a model, or --weights or --tune"),
        (options.exact, "both", "no --exact"),
        (options.tune or not has_weights, "ref", "--weights, and no --tune"),
        (not has_weights, "best", "--weights or --tune"),
        (not options.tune, "weights_out", "--tune"),
        (not options.tune, "tune_features", "--tune"),
        (options.format != "kaldi", "cost", "--format kaldi"),
        (len(set(names)) < len(names), "cost", "every name once"),
    ):
        if is_wrong and (flag == "path" or getattr(options, flag)):
            raise InputError(f"--{flag.replace('_', '-')}: required {required}")


def _check_files(options: argparse.Namespace) -> None:
    """Check that standard input is read once and that no output replaces an input."""
    given = {"NBEST": [options.list], "--weights": [options.weights], "--tune": options.tune}
    given.update({"--ref": options.ref, "--cost": [file for _, file in options.cost]})
    files = [(flag, name) for flag, names in given.items() for name in names or []]
    waiting = [flag for flag, name in files if name == STDIN]
    if len(waiting) > 1:
        raise InputError(f"standard input: required once, got it for {' and '.join(waiting)}")
    if options.path:
        files += common.model_files(options.path, options.data)
    outputs = [("--out", options.out or STDIN), ("--best", options.best)]
    common.check_outputs([*outputs, ("--weights-out", options.weights_out)], files)


class _Rescoring:
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
        self.measure: Any = _measure(options, names) if names else None
        self.references = self.format.references(names) if names else {}
        self.source = LineSource(options.list)
        # The names of the added features, by flags.
        added = {flag: end for flag, end in _SUFFIXES.items() if getattr(options, flag)}
        self.added = {flag: options.feature + end for flag, end in added.items()}
        # The features with the scores of the system that made the lists.
        self.own = [self.format.total] if self.format.total else list(self.format.costs)
        self.tuned = self._tuned_names() if options.tune else []
        weighted = {*self.tuned, *(self.weights or {})}
        if self.added and weighted and weighted.isdisjoint(self.added.values()):
            names = ", ".join(self.added.values())
            logger.warning(f"{names}, from --path, has no weight: lists are ranked without it")

    def run(self) -> None:
        """Read, score, tune and write."""
        options = self.options
        with ExitStack() as stack:
            out = stack.enter_context(Output(options.out))
            best, weights_out = (
                stack.enter_context(Output(name)) if name else None
                for name in (options.best, options.weights_out)
            )
            self._check_lists()
            words, lists = self._scored_lists()
            if options.tune:
                lists = self._tune(lists, stack.enter_context(tempfile.TemporaryFile()))
            if weights_out is not None:
                _write_lines(weights_out, weight_lines(self.weights or {}))
            if self.weights is None:
                for nbest in lists:
                    _write_lines(out, map(self.format.annotated, nbest.hypotheses))
            else:
                self._write_ranked(lists, self.weights, out, best)
        if words is not None:
            words.end()
        self.source.warn_of_bad_lines()

    def _tuned_names(self) -> List[str]:
        names = [*self.own, *self.added.values(), *(self.weights or {})]
        if self.options.tune_features:
            names = [name.strip() for name in self.options.tune_features.split(",")]
        names = list(dict.fromkeys(names))
        if len(names) < 2:
            raise InputError(
                f"--tune: required two features (--path, --tune-features), got {names}"
            )
        return names

    def _check_lists(self) -> None:
        """Read lists without the model first, if they need references and are files.

        A list without a reference would otherwise end the command after hours of scoring.
        """
        files = [self.options.list, *(file for _, file in self.options.cost)]
        if self.measure is not None and self.added and all(map(os.path.isfile, files)):
            hypotheses = _format(self.options).hypotheses(LineSource(self.options.list))
            for nbest in unique_lists(group(hypotheses)):
                self._reference(nbest)

    def _scored_lists(self) -> Tuple[Optional[common.ModelWords], Iterator[NBest]]:
        """Return the model's words, which count the unknown ones, and the lists with features."""
        words, lists = None, group(self.format.hypotheses(self.source))
        if self.weights or self.options.tune:
            lists = unique_lists(lists)
        if self.added:
            from fairseq_bnce.scoring import Scorer  # imports fairseq

            scorer = common.load_scorer(Scorer, self.options)
            words = common.ModelWords(self.options, scorer, least=0)
            scorers = {self.options.feature: scorer}
            if "both" in self.added:
                scorers[self.added["both"]] = scorer.with_exact(True)
            counts = (self.added.get("count_words"), self.added.get("count_oov"))
            sign = -1 if self.options.format == "kaldi" else 1
            lists = add_features(lists, Added(scorers, *counts, sign, words, words.count))
        return words, iter(common.progress_bar(iterable=lists, unit=" lists"))

    def _tune(self, lists: Iterator[NBest], scratch: Any) -> Iterator[NBest]:
        """Fit the weights, with the lists in a temporary file; return the lists."""
        features: List[np.ndarray] = []
        counts: List[np.ndarray] = []
        for space, nbest in _in_space(self.tuned, lists, self.weights):
            features.append(space.matrix(nbest))
            words = [readable(hypothesis.words) for hypothesis in nbest.hypotheses]
            counts.append(distinct_counts(self.measure, words, self._reference(nbest)))
            pickle.dump(nbest, scratch)
        if not features:
            raise InputError(f"{self.source.name}: required n-best lists, got nothing")
        space.check_met()
        self.weights = self._fit(space, Lists.join(features, counts))
        scratch.seek(0)
        return (pickle.load(scratch) for _ in range(len(features)))

    def _fit(self, space: Space, lists: Lists) -> Weights:
        options = self.options
        start = space.vector(self.weights or dict.fromkeys(self.own, (1.0,)))
        settings = {"restarts": options.restarts, "seed": options.seed}
        with common.progress_bar(unit=" lines searched") as bar:
            tuned = tune(lists, start, self.measure, on_line=bar.update, **settings)
        weights = space.weights(tuned.weights)
        logger.warning("weights: " + ", ".join(weight_lines(weights)))
        counts = (self.added.get("count_words"), self.added.get("count_oov"))  # of either sign
        names = [name for name in weights if name not in counts and min(weights[name]) < 0]
        if names:
            logger.warning(
                f"negative weight of {', '.join(map(quoted, names))}: a better score ranks lower, "
                "often by chance; tune on more sentences or fewer features (--tune-features)"
            )
        return weights

    def _reference(self, nbest: NBest) -> List[str]:
        if nbest.list_id not in self.references:
            required = f"a list that has a reference (there are {len(self.references)})"
            raise nbest.hypotheses[0].line.error(required, quoted(nbest.list_id))
        return self.references[nbest.list_id]

    def _write_ranked(
        self, lists: Iterable[NBest], weights: Weights, out: Output, best: Optional[Output]
    ) -> None:
        counts: List[np.ndarray] = []
        disordered: List[str] = []  # notes on lists whose line in --best is not their number
        space: Optional[Space] = None
        for number, (space, nbest) in enumerate(_in_space(list(weights), lists, weights)):
            order, totals = ranking(space.matrix(nbest), space.vector(weights))
            ranked = [nbest.hypotheses[place] for place in order]
            _write_lines(out, map(self.format.rescored, ranked, totals[order]))
            if best is not None:
                _write_lines(best, [self.format.best(ranked[0])])
                if self.options.format == "moses" and nbest.list_id != str(number):
                    disordered.append(f"line {number + 1} is of list {quoted(nbest.list_id)}")
            if self.measure is not None:
                pair = [readable(nbest.hypotheses[0].words), readable(ranked[0].words)]
                counts.append(distinct_counts(self.measure, pair, self._reference(nbest)))
        if disordered:
            logger.warning(f"--best: {disordered[0]}: lines are in the order of the lists")
        if space is not None and space.unmet():
            unmet = ", ".join(map(quoted, space.unmet()))
            if len(space.unmet()) == len(weights):
                raise InputError(f"--weights: required a feature of the lists, got {unmet}")
            logger.warning(f"no list has a feature {unmet}, which has a weight")
        if counts:
            self._report(*np.array(counts).swapaxes(0, 1))

    def _report(self, before: np.ndarray, after: np.ndarray) -> None:
        """Log the measure of the lists' first entries and of the best ones."""
        settings = {"resamples": self.options.resamples, "seed": self.options.seed}
        found = compare(before, after, self.measure, **settings)
        interval, signed = "{:.2f} [{:.2f}, {:.2f}]", "{:+.2f} [{:+.2f}, {:+.2f}]"
        first = interval.format(found.before, *found.before_interval)
        last = interval.format(found.after, *found.after_interval)
        gain = signed.format(found.after - found.before, *found.gain_interval)
        logger.warning(
            f"{self.measure.description}: before {first} (each list's first entry), after {last}, "
            f"difference {gain} (95 % intervals, paired bootstrap: {self.options.resamples:,} "
            f"resamples of {found.sentences:,} sentences, seed {self.options.seed})"
        )
        if len(before) < len(self.references):
            logger.warning(f"{len(before):,} of {len(self.references):,} references have a list")


def _format(options: argparse.Namespace) -> Any:
    return MosesFormat() if options.format == "moses" else KaldiFormat(dict(options.cost))


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
                missing = ", ".join(map(quoted, space.unmet()))
                logger.warning(f"the first list has no feature {missing}")
        yield space, nbest


def _write_lines(out: Output, lines: Iterable[str]) -> None:
    for line in lines:
        out.write(line)
    out.flush()
