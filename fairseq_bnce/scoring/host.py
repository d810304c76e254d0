"""Scores of single words on the host, for decoders that ask thousands of times a second.

A call of torch takes longer than the dot product itself, and each call would wait for a GPU.
"""

import math
from bisect import bisect_right
from typing import Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.losses.squashing import SQUASHED_LIMIT, SQUASHED_SCALE
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring.incremental import Ids, as_ids, check_id
from fairseq_bnce.scoring.language_model import AnyState, NextWords
from fairseq_bnce.scoring.normalisation import finite


class HostScores:
    """Raw scores m(w, c) after features on the host.

    Args:
        layer: the output layer. Tables in float32 on a CPU are shared; others are copied once.
        unk: the word whose score stands for words that are not predicted.
        words: number of words in the dictionary; their ids are below it.
    """

    def __init__(self, layer: OutputLayer, unk: int, words: int):
        self.layer, self._size = layer, len(layer)
        self._tables = [t._replace(weight=_on_host(t.weight)) for t in layer.kind.tables()]
        self._firsts = [table.first for table in self._tables]
        self._bias: Optional[np.ndarray] = None if layer.bias is None else _on_host(layer.bias)
        self._squash, self._unk, self._words = layer.kind.is_squashed, unk, words

    def score(self, inputs: np.ndarray, word: int) -> float:
        """Return the score of one word after a context, in nats.

        Args:
            inputs: (D',) what the layer multiplies by the words' rows.
            word: its id.

        Raises:
            ScoringError: for an id that no word has; where the model's numbers overflow.
        """
        check_id(word, self._words)
        row = word if word < self._size else self._unk
        first, weight, columns, offset = self._tables[bisect_right(self._firsts, row) - 1]
        score = float(inputs[columns].dot(weight[row - first]))
        if offset is not None:
            score += float(inputs[offset])
        if self._bias is not None:
            score += float(self._bias[row])
        if self._squash:
            score = SQUASHED_LIMIT * math.tanh(score / SQUASHED_SCALE)
        return score if math.isfinite(score) else float(finite(np.array([score]))[0])

    def scores(self, inputs: np.ndarray, words: Ids) -> np.ndarray:
        """Return the scores (n,) of n words after a context: float32; see :meth:`score`."""
        ids = as_ids("word", words, None, self._words).numpy()
        rows = np.where(ids < self._size, ids, self._unk)
        if len(self._tables) == 1:
            found = _products(self._tables[0], inputs, rows)
        else:
            found = np.empty(len(rows), dtype=np.float32)
            number = np.searchsorted(self._firsts, rows, side="right") - 1
            for own, table in enumerate(self._tables):
                found[number == own] = _products(table, inputs, rows[number == own])
        found = found if self._bias is None else found + self._bias[rows]
        return finite(SQUASHED_LIMIT * np.tanh(found / SQUASHED_SCALE) if self._squash else found)


class HostWords(NextWords):
    """Log-probabilities of single words after n hypotheses, in nats.

    Args:
        raw: of the model.
        state: of the hypotheses.
        normalisers: (n,) what is subtracted from raw scores.
    """

    def __init__(self, raw: HostScores, state: AnyState, normalisers: np.ndarray):
        self.state, self._raw, self._normalisers = state, raw, normalisers.tolist()
        self.inputs = _on_host(raw.layer.kind.inputs(state.features))

    def score(self, row: int, word: int) -> float:
        return self._raw.score(self.inputs[row], word) - self._normalisers[row]

    def scores(self, row: int, words: Ids) -> np.ndarray:
        found = self._raw.scores(self.inputs[row], words).astype(np.float64)
        return found - self._normalisers[row]


def _products(table: Tuple, inputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return scores (n,) of words of one table, without their bias."""
    first, weight, columns, offset = table
    # A copy of many rows takes longer than the products with all rows.
    if 2 * len(rows) > len(weight):
        found = (weight @ inputs[columns])[rows - first]
    else:
        found = weight[rows - first] @ inputs[columns]
    return found if offset is None else found + inputs[offset]


def _on_host(numbers: Tensor) -> np.ndarray:
    """Return float32, in the same memory if that is float32 on a CPU."""
    return numbers.detach().to(device="cpu", dtype=torch.float32).numpy()
