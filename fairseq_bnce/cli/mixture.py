"""A mixture of two models, for ``fairseq-bnce score``."""

from __future__ import annotations

import argparse
import collections
import functools
from typing import TYPE_CHECKING, Any, Deque, Iterable, Iterator, List

import numpy as np

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError, quoted
from fairseq_bnce.text.training_text import NONE

if TYPE_CHECKING:
    from fairseq_bnce.scoring import Scorer, SentenceScore


def add_mixture_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a second model."""
    add = common.flag_adder(parser.add_argument_group("mixture"))
    add("--mix-with", "second model: mix both probabilities of each word", metavar="CKPT")
    text = "weight of --path's probabilities, between 0 and 1 (default: 0.5)"
    add("--mix-weight", text, metavar="W", type=float, default=0.5)
    add("--mix-tune", "fit the weight to this text", metavar="TEXT")


class Mixture:
    """Two models whose probabilities mix, used like a :class:`Scorer`.

    The second model reads the words of the first, in lower case if its training text was.

    Args:
        first: scorer of the first model.
        options: of ``fairseq-bnce score``.

    Attributes:
        is_causal: whether both models are.
        weights: (2,) of the models.
    """

    def __init__(self, first: Scorer, options: argparse.Namespace):
        from fairseq_bnce.scoring import Scorer  # imports torch and fairseq

        own = {**vars(options), "path": options.mix_with, "data": None}
        own["tokenize"] = options.tokenize and NONE  # the words are cut by now
        second = argparse.Namespace(**own)
        self._first = first
        try:
            self._second = common.load_scorer(Scorer, second)
        except (ScoringError, UnsupportedModelError) as error:  # the command would say --path
            found = str(error).replace(f"path {options.mix_with}: ", "", 1)
            raise InputError(f"--mix-with {options.mix_with}: {found}") from None
        self._words = common.model_words(second, self._second)
        self.is_causal = first.is_causal and self._second.is_causal
        self.weights = np.array([options.mix_weight, 1 - options.mix_weight])
        if not 0 < options.mix_weight < 1:
            raise InputError(f"--mix-weight: required 0 < W < 1, got {options.mix_weight}")

    def score_windows(self, lines: Iterable[str], **settings: Any) -> Iterator[List[SentenceScore]]:
        """Score lines: see :meth:`Scorer.score_windows`."""
        weights = np.log(self.weights)[:, None]
        for window in self._pairs(lines, **settings):
            mixed = [np.logaddexp.reduce(weights + line.log_probs) for line in window]
            yield [line._replace(log_probs=found) for line, found in zip(window, mixed)]

    def fit(self, lines: Iterable[str], **settings: Any) -> None:
        """Set the weights that give these lines the highest probability, by EM."""
        pairs = self._pairs(lines, **settings)
        parts = [line.log_probs for window in pairs for line in window]
        known = np.concatenate([np.zeros((2, 1)), *parts], axis=1)  # of an empty text, too
        for _ in range(100):
            joint = np.log(self.weights)[:, None] + known
            shares = np.exp(joint - np.logaddexp.reduce(joint)).mean(1)
            self.weights = shares.clip(1e-6, 1 - 1e-6)

    def _pairs(self, lines: Iterable[str], **settings: Any) -> Iterator[List[SentenceScore]]:
        """Yield lines whose log_probs are (2, T), by both models."""
        unread: Deque[str] = collections.deque()
        words = map(self._words, iter(unread.popleft, None))
        own = {**settings, "tokenized": True, "is_ready": functools.partial(bool, unread)}
        others = self._second.score_stream(words, **own)
        for window in self._first.score_windows(lines, **settings):
            unread.extend(" ".join(score.words[:-1]) for score in window)
            yield [self._pair(*scores) for scores in zip(window, others)]
        self._words.end()

    def _pair(self, first: SentenceScore, second: SentenceScore) -> SentenceScore:
        self._words.count(len(second.words) - 1, second.oov)  # </s> left out
        words, others = (" ".join(score.words) for score in (first, second))
        if words.lower() != others.lower():
            got = f"{quoted(words)} and {quoted(others)}: see --tokenize"
            raise InputError(f"--mix-with: required the same words for both models, got {got}")
        # Each <unk> stands for the words that neither model knows: the mixture sums to one.
        neither = first.is_oov & second.is_oov
        is_zero = [first.is_oov > neither, second.is_oov > neither]
        known = np.where(is_zero, -np.inf, [first.log_probs, second.log_probs])
        in_blocks = first.in_blocks or second.in_blocks
        return first._replace(log_probs=known, is_oov=neither, in_blocks=in_blocks)
