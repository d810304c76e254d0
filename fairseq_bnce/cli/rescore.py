"""Add a language model's scores to n-best lists; tune weights; apply weights.

Moses lists, "id ||| hypothesis ||| features ||| score" (more fields may
follow), get one more feature, "BNCE= -12.3": the log-probability in nats. So
do Nematus' lists, "id ||| hypothesis ||| score", which thus become Moses'.
Kaldi lists, "utterance-n word word ...", give a file of costs, "utterance-n
12.3": negative log-probabilities. With --format fairseq, the output of
fairseq-generate --nbest N gets lines "F-i TAB BNCE= -12.3". With --format
jsonl, the hypotheses of {"id": 7, "nbest": [{"text": "a b", "score": -1.5}]}
get "BNCE": -12.3. With --format srilm, NBEST names the files of SRILM's lists,
"ascore lscore nwords word word ...", which get lines "file -12.3".

With --weights or --tune the lists are sorted by the weighted sum of their
features, best first. The feature "score" is the list's own score. Weights are
a file of lines "name= value ...", or NAME=VALUE with spaces or commas between
several: one value for each of a feature's values.

Line i (from 0) of a reference belongs to list i; a reference of Kaldi or SRILM
is a text, "utterance word word ...", and one of JSON lines {"id": 7, "text":
"a b"}; fairseq's T- lines, as in the list itself, are references, too. Give
--tune or --ref again for more references.

  fairseq-bnce rescore --path CKPT --tune dev.ref --weights-out w dev.nbest
  fairseq-bnce rescore --path CKPT --weights w --best test.best test.nbest
"""

import argparse
import logging
import os
import pickle
import tempfile
from contextlib import ExitStack
from typing import IO, Any, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, at_least, quoted
from fairseq_bnce.rescoring.formats import FORMATS
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.lists import NBest, unique_lists
from fairseq_bnce.rescoring.measures import Bleu, Measure, WordErrorRate, compare
from fairseq_bnce.rescoring.tuning import Lists, tune
from fairseq_bnce.rescoring.weights import Space, Weights, ranking, read_weights, weight_lines
from fairseq_bnce.text.reading import STDIN, numbered_lines, readable
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
    add("--format", "of NBEST (default: moses)", choices=tuple(FORMATS), default="moses")
    text = "costs of a Kaldi list, 'utterance-n cost' in the list's order, as the feature NAME"
    add("--cost", text, metavar="NAME=FILE", type=_cost, action="append", default=[])
    add = common.flag_adder(parser.add_argument_group("features"))
    text = "name of the added score (default: BNCE)"
    add("--feature", text, metavar="NAME", default="BNCE")
    add("--both", "add unnormalised scores, and those of the softmax as NAMEExact")
    add("--count-words", "add the number of the hypothesis' words as NAMEWords")
    add("--count-oov", "add the number of words that the model does not know as NAMEOOV")


def _cost(text: str) -> Tuple[str, str]:
    """Return NAME and FILE of ``NAME=FILE``: a type for argparse."""
    name, file = text.split("=", 1)
    return name, file


def _add_weight_flags(parser: argparse.ArgumentParser) -> None:
    add = common.flag_adder(parser.add_argument_group("weights"))
    text = "weights to sort the lists by; with --tune, the start of the search"
    add("--weights", text, metavar=("FILE|NAME=V", "NAME=V"), nargs="+", action="extend")
    references = {"metavar": "REF", "action": "append", "default": []}
    add("--tune", "fit the weights to these references", **references)
    add("--ref", "measure --weights by these references", **references)
    text = "features that get weights (default: the list's own; the added ones; --weights)"
    add("--tune-features", text, metavar="NAME,...")
    add("--weights-out", "write the tuned weights, for --weights", metavar="FILE")
    add("--metric", "default: bleu; for lists of Kaldi and SRILM wer", choices=("bleu", "wer"))
    text = "sacrebleu's tokeniser (default: none; lists and references are cut alike)"
    add("--bleu-tokenize", text, metavar="NAME", default="none")
    count = {"metavar": "N", "type": at_least(0)}
    add("--restarts", "number of random starts (default: 10)", default=10, **count)
    text = "number of resamples of the bootstrap (default: 1000)"
    add("--resamples", text, metavar="N", type=at_least(1), default=1000)
    add("--seed", "of random starts and resamples (default: 1)", default=1, **count)


def run(options: argparse.Namespace) -> None:
    """Rescore the lists."""
    if options.weights:
        _separate_weights(options)
    _check_flags(options)
    _Rescoring(options).run()


def _separate_weights(options: argparse.Namespace) -> None:
    """Join the values of --weights into one text; an NBEST among them is not a weight."""
    first, *others = options.weights
    lists = [value for value in others if value == STDIN or os.path.exists(value)]
    if len(lists) + (options.list != STDIN) > 1:
        raise InputError(f"--weights: required weights and one NBEST, got {quoted(lists[0])} too")
    options.list = (lists or [options.list])[0]
    values = [value for value in others if value not in lists]
    options.weights = first + "".join(f"{',' if '=' in v else ' '}{v}" for v in values)


def _check_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored, and outputs that would replace an input."""
    has_weights = options.weights or options.tune
    if not (options.path or has_weights):
        raise InputError("--path: required a model, or --weights or --tune")
    common.check_needs(options, "path", "exact", "both", "count_words", "count_oov", "mix_with")
    common.check_needs(options, "tune", "tune_features", "weights_out")
    if options.cost and not FORMATS[options.format].has_costs:
        raise InputError(f"--cost: required --format kaldi, got {options.format}")
    if options.best and not has_weights:
        raise InputError("--best: required --weights or --tune")
    inputs = [options.list, options.weights, *options.tune, *options.ref]
    inputs += dict(options.cost).values()
    outputs = {"--out": options.out, "--best": options.best, "--weights-out": options.weights_out}
    common.check_files(options, outputs, inputs)


class _Rescoring:
    """Reads weights and references, so that mistakes are reported before the model is loaded.

    Args:
        options: of ``fairseq-bnce rescore``.

    Raises:
        InputError: for weights, references, lists or words that cannot be used.
    """

    def __init__(self, options: argparse.Namespace):
        self.options, self.costs = options, dict(options.cost)
        self.format = FORMATS[options.format]
        self.weights: Weights = read_weights(options.weights) if options.weights else {}
        names = options.tune or options.ref
        self.measure: Any = self._build_measure(names) if names else None
        self.references = self.format.references(names) if names else {}
        # The names of the added features, by flags.
        flags = [flag for flag in _SUFFIXES if getattr(options, flag)]
        self.added = {flag: options.feature + _SUFFIXES[flag] for flag in flags}
        self.own = [*self.costs, *self.format.own_features]
        self.tuned = self._tuned_names() if options.tune else []
        weighted = {*self.tuned, *self.weights}
        if self.added and weighted and weighted.isdisjoint(self.added.values()):
            names = ", ".join(self.added.values())
            logger.warning(f"{names}, from --path, has no weight: lists are ranked without it")

    def run(self) -> None:
        """Read, score, tune and write."""
        options = self.options
        with ExitStack() as stack:
            out = stack.enter_context(Output(options.out))
            best = stack.enter_context(Output(options.best)) if options.best else None
            self._check_lists()
            lists = self._scored_lists()
            if options.tune:
                lists = self._tune(lists, stack.enter_context(tempfile.TemporaryFile()))
            self._write(lists, out, best)

    def _build_measure(self, references: List[str]) -> Measure:
        if (self.options.metric or self.format.metric) == "bleu":
            return Bleu(self.options.bleu_tokenize)
        if len(references) > 1:
            raise InputError("--metric: required bleu with several references, got wer")
        return WordErrorRate()

    def _tuned_names(self) -> List[str]:
        chosen = self.options.tune_features
        names = chosen.split(",") if chosen else [*self.own, *self.added.values(), *self.weights]
        names = list(dict.fromkeys(map(str.strip, names)))
        if len(names) < 2:
            raise InputError(f"--tune: required two features (--tune-features), got {names}")
        return names

    def _lists(self) -> Iterator[NBest]:
        """Read the lists."""
        lists = self.format.read(numbered_lines(self.options.list), self.costs)
        return unique_lists(lists) if self.weights or self.options.tune else lists

    def _check_lists(self) -> None:
        """Read the lists, if they are files, before hours of scoring: references and features."""
        files = [self.options.list, *self.costs.values()]
        weighted = self.tuned or self.weights
        if self.added and weighted and all(map(os.path.isfile, files)):
            names = [name for name in weighted if name not in self.added.values()]
            for nbest, space in self._weighted(self._lists(), names):
                space.matrix(nbest)
                if self.measure is not None:
                    self._reference(nbest)

    def _weighted(self, lists: Iterable[NBest], names: List[str]) -> Iterator[Tuple[NBest, Space]]:
        """Yield lists and the space of these features; each has to occur in some list."""
        space: Optional[Space] = None
        for nbest in lists:
            space = space or Space(names, nbest, self.weights)
            yield nbest, space
        if space is not None:
            space.check_met()

    def _scored_lists(self) -> Iterator[NBest]:
        """Yield the lists with the model's features."""
        lists = self._lists()
        if not self.added:
            yield from lists
            return
        scorer, words = common.load_model(self.options)
        scorers = {self.options.feature: scorer}
        if "both" in self.added:
            scorers[self.added["both"]] = scorer.with_exact(True)
        counts = (self.added.get("count_words"), self.added.get("count_oov"))
        added = Added(scorers, *counts, self.format.count_sign, words)
        found, how = add_features(lists, added), self.options
        yield from common.shown(found, how, lambda nbest: (1, nbest.words()), unit=" lists")
        words.end()

    def _tune(self, lists: Iterator[NBest], scratch: IO[bytes]) -> Iterator[NBest]:
        """Fit the weights, with the lists in a temporary file; return the lists."""
        features: List[np.ndarray] = []
        counts: List[np.ndarray] = []
        for nbest, space in self._weighted(lists, self.tuned):
            features.append(space.matrix(nbest))
            words = [readable(hypothesis.words) for hypothesis in nbest.hypotheses]
            counts.append(self.measure.counts(words, self._reference(nbest)))
            pickle.dump(nbest, scratch)
        if not features:
            raise InputError(f"{self.options.list}: required n-best lists, got nothing")
        self._fit(space, Lists.join(features, counts))
        scratch.seek(0)
        return (pickle.load(scratch) for _ in range(len(features)))

    def _fit(self, space: Space, lists: Lists) -> None:
        options = self.options
        own = {name: (1.0,) * size for name, size in space.sizes.items() if name in self.own}
        start = space.vector(self.weights or own)
        with common.progress_bar(options, unit=" lines searched") as bar:
            found = tune(lists, start, self.measure, options.restarts, options.seed, bar.update)
        self.weights = space.weights(found)
        lines = weight_lines(self.weights)
        logger.warning("weights: " + ", ".join(lines))
        if options.weights_out:
            with Output(options.weights_out) as out:
                out.write("\n".join(lines))

    def _reference(self, nbest: NBest) -> List[str]:
        if nbest.list_id not in self.references:
            count = f"there are {len(self.references)}; add one, or leave the list out"
            required = f"a list that has a reference ({count})"
            raise nbest.hypotheses[0].line.error(required, quoted(nbest.list_id))
        return self.references[nbest.list_id]

    def _write(self, lists: Iterable[NBest], out: Output, best: Optional[Output]) -> None:
        """Write lists, sorted if there are weights: without, all totals are 0."""
        counts: List[np.ndarray] = []
        for nbest, space in self._weighted(lists, list(self.weights)):
            order, totals = ranking(space.matrix(nbest), space.vector(self.weights))
            ranked = [nbest.hypotheses[place] for place in order]
            shown = totals[order].tolist() if self.weights else ()
            out.write("\n".join(self.format.written(nbest._replace(hypotheses=ranked), shown)))
            out.flush()
            if best is not None:
                best.write(self.format.best(ranked[0], totals[order[0]]))
            if self.measure is not None and self.weights:
                pair = [readable(nbest.hypotheses[0].words), readable(ranked[0].words)]
                counts.append(self.measure.counts(pair, self._reference(nbest)))
        if counts:
            self._report(*np.array(counts).swapaxes(0, 1))

    def _report(self, before: np.ndarray, after: np.ndarray) -> None:
        """Log the measure of the lists' first entries and of the best ones."""
        options = self.options
        found = compare(before, after, self.measure, resamples=options.resamples, seed=options.seed)
        forms = *["{:.2f} [{:.2f}, {:.2f}]"] * 2, "{:+.2f} [{:+.2f}, {:+.2f}]"
        first, last, gain = (form.format(*row) for form, row in zip(forms, found))
        logger.warning(
            f"{self.measure.description}: before {first} (each list's first entry), after {last}, "
            f"difference {gain} (95 % intervals, paired bootstrap: {options.resamples:,} "
            f"resamples of {len(before):,} sentences, seed {options.seed})"
        )
        if len(before) < len(self.references):
            logger.warning(f"{len(before):,} of {len(self.references):,} references have a list")
