"""Scores of single words, on the host: what a decoder asks for thousands of times a second.

A call of torch takes longer than the dot product that it makes here, and a GPU would be waited for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.losses.squashing import SQUASHED_LIMIT, SQUASHED_SCALE
from fairseq_bnce.output_layer.layer import OutputLayer


class HostScores:
    """m(w, c) for features on the host.

    Args:
        layer: the output layer. Tables in float32 on a CPU are shared; of others a copy is made in
            float32, once.
        squash: whether scores are those of :func:`fairseq_bnce.losses.squashed`.
        unk: the word that is scored in the place of those that are not predicted.
        words: how many words the dictionary has; their ids are below this number.
    """

    def __init__(self, layer: OutputLayer, squash: bool, unk: int, words: int):
        self._layer, self._size = layer, len(layer)
        tables = layer.tables()
        self._tables = [table._replace(weight=on_host(table.weight)) for table in tables]
        self._firsts = [table.first for table in tables]
        self._bias: Optional[np.ndarray] = None if layer.bias is None else on_host(layer.bias)
        self._squash, self._unk, self._words = squash, unk, words

    def inputs(self, features: Tensor) -> np.ndarray:
        """What is scored with, (n, D'), after features (n, D): all work on them, done once."""
        with torch.no_grad():
            return on_host(self._layer.inputs(features))

    def score(self, inputs: np.ndarray, word: int) -> float:
        """Nats, of a word after a context, a row (D',) of :meth:`inputs`.

        Raises:
            ScoringError: for an id that no word has; where the model's numbers overflow.
        """
        self.check(word)
        row = word if word < self._size else self._unk
        first, weight, columns, offset = self._tables[bisect_right(self._firsts, row) - 1]
        score = float(inputs[columns].dot(weight[row - first]))
        if offset is not None:
            score += float(inputs[offset])
        if self._bias is not None:
            score += float(self._bias[row])
        if self._squash:
            score = SQUASHED_LIMIT * math.tanh(score / SQUASHED_SCALE)
        if not math.isfinite(score):
            checked(np.array(score))
        return score

    def scores(self, inputs: np.ndarray, words: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """(n,) float32 nats, of n words after a context, a row (D',) of :meth:`inputs`."""
        ids = np.asarray(words, dtype=np.int64)
        if ids.size:
            self.check(int(ids.min()))
            self.check(int(ids.max()))
        rows = np.where(ids < self._size, ids, self._unk)
        if len(self._tables) == 1:
            found = _products(self._tables[0], inputs, rows)
        else:
            found = np.empty(len(rows), dtype=np.float32)
            number = np.searchsorted(self._firsts, rows, side="right") - 1
            for own, table in enumerate(self._tables):
                is_own = number == own
                found[is_own] = _products(table, inputs, rows[is_own])
        found = found if self._bias is None else found + self._bias[rows]
        if self._squash:
            found = SQUASHED_LIMIT * np.tanh(found / SQUASHED_SCALE)
        return checked(found)

    def check(self, word: int) -> None:
        """Raise ScoringError for an id that no word has: numpy would read -1 as the last word."""
        if not 0 <= word < self._words:
            raise ScoringError(f"word: required an id from 0 to {self._words - 1}, got {word}")


def _products(table: Any, inputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n,), of words of one table, without their bias."""
    first, weight, columns, offset = table
    # Of many rows a copy would be made: to multiply all takes less.
    if 2 * len(rows) > len(weight):
        found = (weight @ inputs[columns])[rows - first]
    else:
        found = weight[rows - first] @ inputs[columns]
    return found if offset is None else found + inputs[offset]


def on_host(numbers: Tensor) -> np.ndarray:
    """float32, sharing the memory of what is float32 on a CPU."""
    return numbers.detach().to(device="cpu", dtype=torch.float32).numpy()


def checked(scores: np.ndarray) -> np.ndarray:
    """``scores``, if they are finite.

    Raises:
        ScoringError: for others: parameters may be finite and too large for their dtype.
    """
    if not np.isfinite(scores).all():
        bad = scores[~np.isfinite(scores)]
        raise ScoringError(
            f"scores: required finite numbers, got {bad[0]} for {bad.size:,} of {scores.size:,}: "
            "the model's numbers overflow"
        )
    return scores
