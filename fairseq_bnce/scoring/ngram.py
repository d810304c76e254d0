"""N-gram models in ARPA files or KenLM's binary files, read by the package ``kenlm``."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring import incremental
from fairseq_bnce.scoring.incremental import Ids, State
from fairseq_bnce.scoring.language_model import LanguageModel, NextWords, ScoreLines, SentenceScore
from fairseq_bnce.text.reading import numbered_lines, readable

_LOG_10 = math.log(10)
_CHECKPOINTS = (b"PK\3\4", b"\x80")  # zip, and the pickles of torch before 1.6
_BINARY = b"mmap lm http://kheafield.com"
_COUNT = slice(108, 116)  # where a binary file has its number of words


def is_ngram_file(path: str) -> bool:
    """Return whether a file is not a checkpoint; :class:`NGramModel` reads other files."""
    with open(path, "rb") as file:
        return not file.read(4).startswith(_CHECKPOINTS)


class NGramModel(LanguageModel):
    """An n-gram model of KenLM's, used like a :class:`Scorer`. Needs the package ``kenlm``.

    ``</s>`` within a text begins a new sentence. Words that the model does not know, ``<s>`` and
    ``<pad>`` are scored as ``<unk>``. If the file has no ``<unk>``, its probability is 1e-100.

    Args:
        path: ARPA, compressed or not, or KenLM's binary file with its words.

    Raises:
        ScoringError: for a file that KenLM does not read, or a binary file without its words.
        ModuleNotFoundError: without ``kenlm``.
    """

    def __init__(self, path: str):
        try:
            import kenlm
        except ModuleNotFoundError as error:
            message = "n-gram models: required kenlm (pip install kenlm, or fairseq-bnce[kenlm])"
            raise ModuleNotFoundError(f"{message}, got none", name=error.name) from error
        config = kenlm.Config()
        config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
        self.key = self.path = os.path.abspath(path)
        try:
            self._model = kenlm.Model(self.path, config)
        except OSError as error:
            required = "a checkpoint, or an n-gram model (ARPA or KenLM's binary)"
            raise ScoringError("path", required, error, path) from None
        self._new_state, self.order = kenlm.State, self._model.order
        self._unused = kenlm.State()  # KenLM writes the state after a word
        self._set_training_text(None)
        self.dictionary = Dictionary()
        for word in filter(self._model.__contains__, _words(path)):
            self.dictionary.add_symbol(word)
        self._names = list(self.dictionary.symbols)
        self._is_oov = np.zeros(len(self._names), dtype=bool)
        for special in (self.dictionary.bos(), self.dictionary.pad(), self.dictionary.unk()):
            self._names[special], self._is_oov[special] = "<unk>", True

    def __reduce__(self) -> Tuple:
        return NGramModel, (self.path,)

    def with_exact(self, exact: bool) -> NGramModel:
        """Return the model itself, which is always normalised."""
        return self

    def unigram_log_probs(self) -> np.ndarray:
        """Return log-probabilities (V,) of all words without a context, in nats."""
        return self._log_probs([], range(len(self._names)))

    def start(self, n: int = 1) -> State:
        """Return the state of n hypotheses without words."""
        # The features are the last words; </s> stands for what is before a sentence.
        words = torch.full((n, self._model.order - 1), self.dictionary.eos())
        return incremental.of_words(self.key, words)

    def read_on(self, state: State, word_ids: Ids) -> State:
        """Return the state after one more word (n,) each."""
        ids = self._ids(state, word_ids)
        words = torch.cat([state.features, ids[:, None]], dim=1)
        return incremental.of_words(self.key, words[:, 1:])

    def next_log_probs(self, state: State, word_ids: Ids) -> np.ndarray:
        """Return float64 nats of next words, (n,) or (n, K)."""
        ids = self._ids(state, word_ids, dims=2)
        rows = zip(state.features.tolist(), ids.reshape(len(state), -1).tolist())
        found = [self._log_probs(context, words) for context, words in rows]
        return np.array(found, dtype=np.float64).reshape(ids.shape)

    def next_words(self) -> Callable[[State], NextWords]:
        """Return what makes :class:`NextWords` of a state."""
        return partial(_NGramWords, self)

    def _line_scorer(self, document: bool, context_window: Optional[int]) -> ScoreLines:
        """Return what scores lines; after ``</s>``, a line's context is that of a document."""
        return lambda window: list(map(self._sentence, window))

    def _sentence(self, words: List[str]) -> SentenceScore:
        ids = self.ids(words)
        found = self._read([self.dictionary.eos(), *ids])[1][1:]
        return SentenceScore(np.array(found), words, self.is_oov(ids))

    def _log_probs(self, context: Iterable[int], words: Iterable[int]) -> np.ndarray:
        state = self._read(context)[0]
        return np.array([self._log_prob(state, word) for word in words])

    def _log_prob(self, state: object, word: int) -> float:
        return self._model.BaseScore(state, self._names[word], self._unused) * _LOG_10

    def _read(self, words: Iterable[int]) -> Tuple[object, List[float]]:
        """Return KenLM's state after words, and their log-probabilities.

        ``</s>`` begins a sentence. Before the first word nothing is known.
        """
        state, found = self._new_state(), []
        self._model.NullContextWrite(state)
        for word in words:
            before, state = state, self._new_state()
            found.append(self._model.BaseScore(before, self._names[word], state) * _LOG_10)
            if word == self.dictionary.eos():
                self._model.BeginSentenceWrite(state)
        return state, found


class _NGramWords(NextWords):
    """KenLM reads a hypothesis once, for all words that are asked for."""

    def __init__(self, model: NGramModel, state: State):
        self._model, self.state = model, state
        self._states: Dict[int, object] = {}  # KenLM's, by row

    def score(self, row: int, word: int) -> float:
        incremental.check_id(word, len(self._model.dictionary))
        if row not in self._states:
            self._states[row] = self._model._read(self.state.features[row].tolist())[0]
        return self._model._log_prob(self._states[row], word)

    def scores(self, row: int, words: Ids) -> np.ndarray:
        return np.array([self.score(row, word) for word in words])


def _words(path: str) -> Iterator[str]:
    """Yield the words in a file of KenLM's."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        if whole[: len(_BINARY)] == _BINARY:
            # The words end the file, the first of them <unk>.
            words = whole[whole.rfind(b"<unk>\0") :].split(b"\0")
            if len(words) <= int.from_bytes(whole[_COUNT], "little"):
                raise ScoringError("path", "the model's words", "a file without", path)
            yield from (word.decode("utf-8", "replace") for word in words)
            return
    section = ""
    for line in numbered_lines(path):
        section = line.text if line.text.startswith("\\") else section
        if section.startswith("\\2-grams:"):
            break
        if section.startswith("\\1-grams:") and len(line.text.split()) > 1:
            yield readable(line.text).split()[1]
