"""A mixture of language models, word by word."""

from __future__ import annotations

import copy
import json
import logging
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, List, Optional, Union

import numpy as np

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.incremental import Ids, State, as_ids, check_id
from fairseq_bnce.scoring.language_model import LanguageModel, NextWords, ScoreLines, SentenceScore
from fairseq_bnce.text.training_text import NONE
from fairseq_bnce.text.writing import Output

logger = logging.getLogger(__name__)
Weights = Union[None, str, Sequence[float], np.ndarray]

_FEW = 0.5  # a smaller share of common words: the models read different text
_LEAST = 1e-6  # the least fitted weight
_ROUNDS = 100  # rounds of EM


class MixtureState:
    """The states of each model, of the same n hypotheses; see :class:`incremental.State`."""

    def __init__(self, parts: Sequence[State]):
        self.parts, self.key = parts, tuple(part.key for part in parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def select(self, indices: Ids) -> MixtureState:
        """Return the state of some hypotheses, in any order."""
        return MixtureState([part.select(indices) for part in self.parts])

    @staticmethod
    def concatenate(states: Sequence[MixtureState]) -> MixtureState:
        """Return one state of all hypotheses, those of the first state first."""
        parts = zip(*(state.parts for state in states))
        return MixtureState([some[0].concatenate(some) for some in parts])


class Mixture(LanguageModel):
    """Several models whose probabilities mix word by word, used like a :class:`Scorer`.

    Its words are those of all models. A word's probability is the sum of weight x probability over
    the models that know it, so that the probabilities of all words sum to one; ``<unk>`` stands
    for the words that no model knows. Case matters.

    Example:
        >>> mixture = Mixture([Scorer.from_checkpoint("lm.pt"), NGramModel("kn.arpa")])
        >>> mixture.fit(open("valid.txt"))
        >>> mixture.score(["the cat sat on the mat"])
        array([-38.2])

    Args:
        models: two or more of :class:`Scorer` and :class:`NGramModel`.
        weights: a number above 0 for each model; their sum is one. Or the name of a file of
            :meth:`save`. By default equal weights.

    Attributes:
        models: see above.
        weights: (M,) float64 of the models.

    Raises:
        ScoringError: for fewer than two models, other weights, or a model that reads words on
            both sides.
    """

    _is_apart = False  # whether scores of lines are (M, T), of each model

    def __init__(self, models: Iterable[LanguageModel], weights: Weights = None):
        models = list(models)
        if len(models) < 2:
            raise ScoringError("models", "several scorers or n-gram models", models)
        if not all(model.is_causal for model in models):
            got = "one with --bidirectional-context"
            raise ScoringError("models", "models of past words to mix", got)
        self.weights = _weights(weights, len(models))
        self.dictionary = copy.deepcopy(models[0].dictionary)
        for model in models[1:]:
            for word in model.dictionary.symbols:
                self.dictionary.add_symbol(word, n=0)
        # (M, V) of each model: its ids of all words, and whether it knows them.
        symbols = self.dictionary.symbols
        self._own = np.array([list(map(model.dictionary.index, symbols)) for model in models])
        knows = np.array([~model.is_oov(own) for model, own in zip(models, self._own)])
        self._is_oov = np.asarray(~knows.any(0))
        self._zero = np.where(knows | self._is_oov, 0.0, -np.inf)
        _warn_of_differences(models, knows)
        self.batch_tokens = max(model.batch_tokens for model in models)
        orders = [model.order for model in models]
        self.order = None if None in orders else max(orders)  # type: ignore[type-var]
        self._set_training_text(next(filter(None, (m.training_text for m in models)), None))
        self._set_models(models)

    def save(self, path: str) -> None:
        """Write the weights to a JSON file, for ``Mixture(models, weights=path)``."""
        with Output(path) as out:
            out.write(json.dumps({"weights": self.weights.tolist()}))

    def fit(self, lines: Iterable[str], **options: Any) -> None:
        """Set the weights that give lines the highest probability, by EM.

        Args:
            lines: of a text that no model was trained on.
            **options: of :meth:`score_windows`.
        """
        apart = copy.copy(self)
        apart._is_apart = True
        parts = [line.log_probs for line in apart.score_stream(lines, **options)]
        known = np.concatenate([np.zeros((len(self.models), 1)), *parts], axis=1)
        for _ in range(_ROUNDS):
            joint = np.log(self.weights)[:, None] + known
            shares = np.exp(joint - np.logaddexp.reduce(joint)).mean(1).clip(_LEAST)
            self.weights = shares / shares.sum()

    def with_exact(self, exact: bool) -> Mixture:
        """Return a mixture that shares the models, with exact or unnormalised scores of each."""
        other = copy.copy(self)
        other._set_models([model.with_exact(exact) for model in self.models])
        return other

    def unigram_log_probs(self) -> np.ndarray:
        """Return estimated log-probabilities (V,) of all words without a context, in nats."""
        found = [model.unigram_log_probs()[own] for model, own in zip(self.models, self._own)]
        return self._mixed(found)

    def start(self, n: int = 1) -> MixtureState:
        """Return the state of n hypotheses without words."""
        return MixtureState([model.start(n) for model in self.models])

    def read_on(self, state: MixtureState, word_ids: Ids) -> MixtureState:
        """Return the state after one more word (n,) each."""
        own = self._own[:, self._ids(state, word_ids).numpy()]
        found = zip(self.models, state.parts, own)
        return MixtureState([model.read_on(part, ids) for model, part, ids in found])

    def next_log_probs(self, state: MixtureState, word_ids: Ids) -> np.ndarray:
        """Return float64 nats of next words, (n,) or (n, K)."""
        ids = self._ids(state, word_ids, dims=2).numpy()
        found = zip(self.models, state.parts, self._own[:, ids])
        return self._mixed([model.next_log_probs(part, own) for model, part, own in found], ids)

    def next_words(self) -> Callable[[MixtureState], NextWords]:
        """Return what makes :class:`NextWords` of a state."""
        return partial(_MixedWords, self, [model.next_words() for model in self.models])

    def _set_models(self, models: List[LanguageModel]) -> None:
        self.models, self.key = models, tuple(model.key for model in models)
        self.exact = all(model.exact for model in models)
        self.is_self_normalised = all(model.exact or model.is_self_normalised for model in models)

    def _mixed(self, log_probs: Sequence[np.ndarray], ids: Any = slice(None)) -> np.ndarray:
        """Return mixed log-probabilities of those of each model, of all words or of these."""
        found = np.array(log_probs) + self._zero[:, ids]
        if self._is_apart:
            return found
        weights = np.log(self.weights).reshape(-1, *[1] * (found.ndim - 1))
        return np.logaddexp.reduce(found + weights)

    def _line_scorer(self, document: bool, context_window: Optional[int]) -> ScoreLines:
        each = [model._line_scorer(document, context_window) for model in self.models]
        return lambda window: list(map(self._line, zip(*(score(window) for score in each))))

    def _line(self, scores: Sequence[SentenceScore]) -> SentenceScore:
        words, ids = scores[0].words, self.ids(scores[0].words)
        found = self._mixed([score.log_probs for score in scores], ids)
        return SentenceScore(found, words, self.is_oov(ids), any(one.in_blocks for one in scores))


class _MixedWords(NextWords):
    def __init__(self, mixture: Mixture, makers: Sequence[Callable], state: MixtureState):
        self._mixture, self.state = mixture, state
        self._parts = [make(part) for make, part in zip(makers, state.parts)]

    def score(self, row: int, word: int) -> float:
        # Without numpy, whose calls take longer than a lookup of KenLM's.
        check_id(word, len(self._mixture.dictionary))
        own, zeros = self._mixture._own[:, word].tolist(), self._mixture._zero[:, word].tolist()
        weights = self._mixture.weights.tolist()  # read here: they may be fitted meanwhile
        terms = [
            math.log(weight) + part.score(row, own_word)
            for weight, part, own_word, zero in zip(weights, self._parts, own, zeros)
            if zero == 0  # the model knows the word, or none does
        ]
        greatest = max(terms)
        return greatest + math.log(sum(math.exp(term - greatest) for term in terms))

    def scores(self, row: int, words: Ids) -> np.ndarray:
        ids = as_ids("word", words, None, len(self._mixture.dictionary)).numpy()
        found = zip(self._parts, self._mixture._own[:, ids])
        return self._mixture._mixed([part.scores(row, own) for part, own in found], ids)


def _weights(given: Weights, count: int) -> np.ndarray:
    """Return weights (M,); raise ScoringError for others."""
    try:
        found = json.loads(Path(given).read_text())["weights"] if isinstance(given, str) else given
        found = np.full(count, 1 / count) if given is None else np.array(found, dtype=np.float64)
        if found.shape == (count,) and (found > 0).all() and abs(found.sum() - 1) < _LEAST:
            return found
    except (KeyError, OSError, TypeError, ValueError):  # another kind of file, or no file
        found = given
    required = f"{count} numbers above 0 whose sum is one, or a file of them"
    raise ScoringError("weights", required, found)


def _warn_of_differences(models: Sequence[LanguageModel], knows: np.ndarray) -> None:
    """Log whether models read other words than the first: their vocabularies are (M, V)."""
    for number, known in enumerate(knows[1:], 2):
        shared, least = (knows[0] & known).sum(), min(knows[0].sum(), known.sum())
        if shared < _FEW * least:
            found = f"models 1 and {number} of the mixture share {shared:,} of {least:,} words"
            logger.warning(f"{found}: are their words cut and cased alike?")
    texts = filter(None, (model.training_text for model in models))
    cut = dict.fromkeys(str(text) for text in texts if text.tokenizer != NONE)
    if len(cut) > 1:
        logger.warning(f"models of the mixture read differing words: {'; '.join(cut)}")
