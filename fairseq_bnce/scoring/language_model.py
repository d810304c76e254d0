"""What decoders, rescoring and the commands ask of a language model."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_bnce import threads
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.incremental import Ids, as_ids
from fairseq_bnce.text.training_text import ModelWords, TrainingText

AnyState = Any  # a State, or a MixtureState
# Batches in a window of lines: enough lines for batches of similar lengths.
_WINDOW = 8


class SentenceScore(NamedTuple):
    """The scores of one line.

    Attributes:
        log_probs: (T,) float64, nats, of every word and of ``</s>``.
        words: the T words, as the line was cut, and ``</s>``.
        is_oov: (T,) bool, which of the words were scored as ``<unk>``.
        in_blocks: whether the line is longer than the model reads at once. Its words are then
            scored after some of the words before them, not after all.
    """

    log_probs: np.ndarray
    words: List[str]
    is_oov: np.ndarray
    in_blocks: bool = False

    @property
    def total(self) -> float:
        """Return the line's log-probability, nats."""
        return float(self.log_probs.sum())

    @property
    def oov(self) -> int:
        """Return the number of words that were scored as ``<unk>``."""
        return int(self.is_oov.sum())


# Scores the words, with </s>, of some lines.
ScoreLines = Callable[[List[List[str]]], List[SentenceScore]]


class NextWords:
    """Log-probabilities of single words after n hypotheses, in nats.

    Attributes:
        state: of the hypotheses.
        score: returns the log-probability of a word after a hypothesis, of two numbers.
        scores: returns the log-probabilities (K,) of K words after a hypothesis, float64.
    """

    state: AnyState
    score: Callable[[int, int], float]
    scores: Callable[[int, Ids], np.ndarray]


class LanguageModel:
    """What decoders, rescoring and the commands ask of a model; the base of all models here.

    A model also has ``with_exact``, ``start``, ``read_on`` and ``next_log_probs``, as a
    :class:`Scorer` has them.

    Attributes:
        dictionary: fairseq's, of the words that the model reads.
        training_text: how the words of the training text were made; None if that is unknown.
        exact: whether scores are log-probabilities of a normalised distribution.
        is_self_normalised: whether other scores can be compared from context to context.
        is_causal: whether a score depends only on the words before, so that hypotheses can be
            extended.
        order: how many words a score of an n-gram model depends on, with its own word; else None.
        batch_tokens: number of words in a batch, with padding.
        unigram_log_probs: returns estimated log-probabilities (V,) of all words without a context,
            float64, in nats.
        next_words: returns what makes :class:`NextWords` of a state, for thousands of single words.
    """

    dictionary: Dictionary
    training_text: Optional[TrainingText] = None
    exact = is_self_normalised = is_causal = True
    order: Optional[int] = None
    batch_tokens = 4096
    with_exact: Callable[[bool], LanguageModel]
    start: Callable[..., AnyState]
    read_on: Callable[[AnyState, Ids], AnyState]
    next_log_probs: Callable[[AnyState, Ids], np.ndarray]
    unigram_log_probs: Callable[[], np.ndarray]
    next_words: Callable[[], Callable[[AnyState], NextWords]]
    key: object  # shared by copies of the model, also in other processes, and by their states
    device = torch.device("cpu")
    _is_oov: np.ndarray  # (V,)
    _line_scorer: Callable[[bool, Optional[int]], ScoreLines]

    def is_oov(self, ids: Ids) -> np.ndarray:
        """Return which of n word ids, see :meth:`ids`, are scored as ``<unk>``: (n,) bool."""
        return self._is_oov[np.asarray(ids, dtype=np.int64)]

    def score(self, sentences: Iterable[str], **options: Any) -> np.ndarray:
        """Return log-probabilities (n,) of n sentences with their ``</s>``: float64, nats.

        ``options`` are those of :meth:`score_windows`, as ``tokenized=True``.
        """
        totals = [found.total for found in self.score_stream(sentences, **options)]
        return np.array(totals, dtype=np.float64)

    def score_words(self, sentences: Iterable[str], **options: Any) -> List[np.ndarray]:
        """Return log-probabilities of each sentence's words and ``</s>``: n arrays of float64."""
        return [found.log_probs for found in self.score_stream(sentences, **options)]

    def perplexity(self, lines: Iterable[str], **options: Any) -> float:
        """Return the perplexity of a text, with unknown words and ``</s>``; NaN without a line.

        ``options`` are those of :meth:`score_windows`.
        """
        total, tokens = 0.0, 0
        for score in self.score_stream(lines, **options):
            total, tokens = total + score.total, tokens + len(score.words)
        return float(np.exp(-total / tokens)) if tokens else math.nan

    def score_stream(self, lines: Iterable[str], **options: Any) -> Iterator[SentenceScore]:
        """Score lines as they come, in bounded memory: see :meth:`score_windows`."""
        return itertools.chain.from_iterable(self.score_windows(lines, **options))

    def score_windows(
        self,
        lines: Iterable[str],
        *,
        document: bool = False,
        context_window: Optional[int] = None,
        is_ready: Optional[Callable[[], bool]] = None,
        tokenized: bool = False,
    ) -> Iterator[List[SentenceScore]]:
        """Score lines as they come, and yield those that are read together.

        Some lines are read ahead, so that batches have lines of similar lengths. A warning is
        logged once if more than a fifth of a text's words are unknown.

        Args:
            lines: text, which is cut into words as the training text was, unless a line is cut
                already; a byte order mark, and a line's own ``<s>`` and ``</s>`` at its ends, are
                dropped. An empty line is only a ``</s>``.
            document: whether the lines are one running text. Each line is then scored after all
                lines before it, as far as the model sees; else it is scored by itself.
            context_window: how many words of the text before a block sees, where a text is longer
                than the model reads at once; by default half of what the model reads. A model with
                positions reads as many words as in training; with a window of that many words or
                more it reads as many as it has positions for.
            is_ready: returns whether the next line is there; if not, the lines so far are scored.
            tokenized: whether lines are words separated by spaces, which are taken as they come
                and not checked.

        Raises:
            ScoringError: for lines that are no strings; for ``document`` with a model that reads
                words on both sides; for a context window that leaves no room.
        """
        if isinstance(lines, (str, bytes)):
            raise ScoringError("sentences", "an iterable of strings", "a single string")
        words = copy.copy(self._words)  # counts from 0
        windows = self._windows(lines, is_ready, str.split if tokenized else words.cut)
        scored = map(self._line_scorer(document, context_window), windows)
        yield from scored if tokenized else words.counting(scored)

    def ids(self, words: Sequence[str]) -> List[int]:
        """Return word ids; the id of ``<unk>`` for words that the model does not know.

        Raises:
            ScoringError: for a single string, whose characters are no words.
        """
        if isinstance(words, (str, bytes)):
            raise ScoringError("words", "several strings", "a single string")
        unk, pad = self.dictionary.unk(), self.dictionary.pad()
        ids = list(map(self.dictionary.indices.get, words, itertools.repeat(unk)))
        # The word <pad> in a text is an unknown word, and no padding.
        return ids if pad not in ids else [unk if word == pad else word for word in ids]

    def extend(self, state: AnyState, word_ids: Ids) -> Tuple[AnyState, np.ndarray]:
        """Extend each hypothesis by a word.

        Args:
            state: of n hypotheses; it does not change.
            word_ids: n integers; a sequence, an array or a tensor. See :meth:`ids`.

        Returns:
            The state after the words, and their log-probabilities (n,): float64, nats.

        Raises:
            ScoringError: for ids of a wrong shape, or that no word has; for a state of another
                model.
        """
        return self.read_on(state, word_ids), self.next_log_probs(state, word_ids)

    def _check(self, state: AnyState) -> None:
        """Raise ScoringError for a state of another model: scores would mix two models."""
        threads.use_one_after_a_fork()
        if getattr(state, "key", None) != self.key:
            raise ScoringError("state", "a state of this model", f"another {type(state).__name__}")

    def _ids(self, state: AnyState, word_ids: Ids, dims: int = 1) -> Tensor:
        """Return ids of words, (n,) or (n, K), after a state of n hypotheses."""
        self._check(state)
        return as_ids("word_ids", word_ids, len(state), len(self.dictionary), self.device, dims)

    def _set_training_text(self, text: Optional[TrainingText]) -> None:
        made, see = text or TrainingText(), "Scorer.score_windows"
        self.training_text = text
        self._words = ModelWords(made, text is not None, "tokenized=True", see)

    def _windows(self, lines: Iterable[str], is_ready: Any, cut: Any) -> Iterator[List[List[str]]]:
        """Yield the words of lines that are scored together; few at first, for an early score."""
        window: List[List[str]] = []
        words, most = 0, self.batch_tokens
        for line in lines:
            if not isinstance(line, str):  # no word of bytes would be known
                raise ScoringError("sentences", "strings", type(line).__name__)
            window.append([*cut(line), self.dictionary.eos_word])
            words += len(window[-1])
            if words >= most or (is_ready is not None and not is_ready()):
                yield window
                window, words, most = [], 0, min(2 * most, _WINDOW * self.batch_tokens)
        if window:
            yield window
