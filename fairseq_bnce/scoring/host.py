"""Scores of single words, on the host: what a decoder asks for thousands of times a second.

A call of torch takes longer than the dot product that it makes here, and a GPU would be waited for.
"""

from __future__ import annotations

import math
from typing import Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.losses.squashing import SQUASHED_LIMIT, SQUASHED_SCALE
from fairseq_bnce.output_layer.layer import OutputLayer


class HostScores:
    """m(w, c) for features on the host.

    Args:
        layer: the output projection (V, D). One in float32 on a CPU is shared; of others a copy is
            made in float32, once.
        squash: whether scores are those of :func:`fairseq_bnce.losses.squashed`.
        unk: the word that is scored in the place of those that are not predicted.
        words: how many words the dictionary has; their ids are below this number.
    """

    def __init__(self, layer: OutputLayer, squash: bool, unk: int, words: int):
        weight, bias = layer.full()
        self._weight: np.ndarray = on_host(weight)
        self._bias: Optional[np.ndarray] = None if bias is None else on_host(bias)
        self._squash, self._unk, self._words = squash, unk, words

    def score(self, features: np.ndarray, word: int) -> float:
        """Nats, of a word after features (D,).

        Raises:
            ScoringError: for an id that no word has; where the model's numbers overflow.
        """
        self.check(word)
        row = word if word < len(self._weight) else self._unk
        score = float(features.dot(self._weight[row]))
        if self._bias is not None:
            score += float(self._bias[row])
        if self._squash:
            score = SQUASHED_LIMIT * math.tanh(score / SQUASHED_SCALE)
        if not math.isfinite(score):
            checked(np.array(score))
        return score

    def scores(self, features: np.ndarray, words: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """(n,) float32 nats, of n words after features (D,); errors as of :meth:`score`."""
        ids = np.asarray(words, dtype=np.int64)
        if ids.size:
            self.check(int(ids.min()))
            self.check(int(ids.max()))
        rows = np.where(ids < len(self._weight), ids, self._unk)
        # Of many rows a copy would be made: to multiply all takes less.
        is_most = 2 * len(rows) > len(self._weight)
        found = (self._weight @ features)[rows] if is_most else self._weight[rows] @ features
        found = found if self._bias is None else found + self._bias[rows]
        if self._squash:
            found = SQUASHED_LIMIT * np.tanh(found / SQUASHED_SCALE)
        return checked(found)

    def check(self, word: int) -> None:
        """Raise ScoringError for an id that no word has: numpy would read -1 as the last word."""
        if not 0 <= word < self._words:
            raise ScoringError(f"word: required an id from 0 to {self._words - 1}, got {word}")


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
