"""Running texts: texts of any length, in parts that a model can read at once.

The words that are read are the text shifted by one, with </s> in front, as fairseq's own data sets
have it.
"""

from typing import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.scoring.readers import Context, Piece, Reader

_MAX_WORDS = 1024  # words of a text that is carried over, read at once


class Blocks:
    """A running text for models that read ``longest`` words at once.

    Each block sees ``context`` words of the text before it. The first block has none, and scores
    ``room`` words. A block may be scored before it is full; its rest is then read after it again.

    Args:
        reader: of the model.
        longest: number of words in a block.
        context: number of them that come from before the block.
        room: number of words in the first block.
    """

    def __init__(self, reader: Reader, longest: int, context: int, room: int):
        self._reader, self._longest, self._context = reader, longest, context
        self._prefix, self._last = reader.first[:-1], reader.first[-1:]  # the last is read next
        self._room = room  # how many more words the block can score
        self._read = reader.first[:0]  # the block's words so far

    def pieces(self, words: np.ndarray) -> Iterator[Piece]:
        """Yield the next words (S,) of the text as what is read at once."""
        while len(words):
            if self._room == 0:
                self._reader.log_cut(self._longest)
                self._read = self._read[max(0, len(self._read) - self._context) :]
                self._room = self._longest - self._context
            targets, words = words[: self._room], words[self._room :]
            inputs = np.concatenate([self._prefix, self._read, self._last, targets[:-1]])
            self._read, self._last = inputs[len(self._prefix) :], targets[-1:]
            self._room -= len(targets)
            yield Piece(inputs, targets)


class CarriedText:
    """A running text for models whose context carries over from part to part.

    Args:
        reader: of the model.
        score: returns log-probabilities (N,) of words (N,) after features (N, D).
    """

    def __init__(self, reader: Reader, score: Callable[[Tensor, Tensor], np.ndarray]):
        self._reader, self._score = reader, score
        self._context: Context = reader.start(1)
        self._unread = reader.first

    def log_probs(self, words: np.ndarray) -> np.ndarray:
        """Return log-probabilities (S,) of the next words (S,) of the text, in nats."""
        parts = np.split(words, range(_MAX_WORDS, len(words), _MAX_WORDS))
        return np.concatenate([self._part(part) for part in parts])

    @torch.no_grad()
    def _part(self, targets: np.ndarray) -> np.ndarray:
        inputs = np.concatenate([self._unread, targets[:-1]])
        self._unread = targets[-1:]
        device = self._reader.layer.device
        tokens, words = (torch.from_numpy(ids).to(device) for ids in (inputs, targets))
        features, self._context = self._reader.read_on(self._context, tokens[None])
        return self._score(features[0, -len(words) :], words)
