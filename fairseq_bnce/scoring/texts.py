"""Texts of any length, in parts that a model can read at once.

Words are predicted from those before them: what is read is the text shifted by one, with </s> in
front, as fairseq's own data sets have it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, NamedTuple, Sequence

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.scoring.host import checked
from fairseq_bnce.scoring.readers import Reader


class Piece(NamedTuple):
    """Words read at once; after each of the last ones, a target is scored.

    Attributes:
        inputs: (T,) int64.
        targets: (S,) int64, S <= T.
    """

    inputs: np.ndarray
    targets: np.ndarray


class Batch(NamedTuple):
    """Pieces side by side: inputs (B, T), padded on the right, and where targets (N,) come from."""

    tokens: Tensor
    lengths: Tensor
    is_scored: Tensor
    targets: Tensor

    @classmethod
    def of(cls, pieces: Sequence[Piece], pad: int, device: torch.device) -> Batch:
        lengths = np.array([len(piece.inputs) for piece in pieces])
        tokens = np.full((len(pieces), lengths.max()), pad)
        is_scored = np.zeros(tokens.shape, dtype=bool)
        for row, (inputs, targets) in enumerate(pieces):
            tokens[row, : len(inputs)] = inputs
            is_scored[row, len(inputs) - len(targets) : len(inputs)] = True
        targets = np.concatenate([piece.targets for piece in pieces])
        parts = (torch.from_numpy(part) for part in (tokens, lengths, is_scored, targets))
        return cls(*(part.to(device) for part in parts))


class Blocks:
    """A running text for models that read ``longest`` words at once.

    Each block sees ``context`` words of those before it; the first one has none, and scores
    ``first`` words. A block need not be full to be scored: its rest is read after it again.

    Args:
        start: the word before the text.
        prefix: words in front of every block.
        longest: words that a block has, without the prefix.
        context: how many of them come from the block before.
        first: how many the first block has.
    """

    def __init__(self, start: int, prefix: Sequence[int], longest: int, context: int, first: int):
        self.prefix = np.array(prefix, dtype=np.int64)
        self.longest, self.context = longest, context
        self.room = first  # how many words more the block can score
        self._read = np.zeros(0, dtype=np.int64)  # what of the text the block has so far
        self._last = np.array([start])  # the word that is to be read next

    def pieces(self, words: np.ndarray) -> Iterator[Piece]:
        """What has to be read to score the next words (S,) of the text."""
        while len(words):
            if self.room == 0:
                self._read = self._read[max(0, len(self._read) - self.context) :]
                self.room = self.longest - self.context
            targets, words = words[: self.room], words[self.room :]
            self._read = np.concatenate([self._read, self._last, targets[:-1]])
            self._last = targets[-1:]
            self.room -= len(targets)
            yield Piece(np.concatenate([self.prefix, self._read]), targets)


def batches(pieces: Sequence[Piece], most: int) -> List[List[int]]:
    """Numbers of pieces that go together, short ones first.

    Args:
        pieces: in any order.
        most: words of a batch, padding counted in; a longer piece is a batch of its own.
    """
    order = sorted(range(len(pieces)), key=lambda number: len(pieces[number].inputs))
    found: List[List[int]] = []
    for number in order:
        size = len(pieces[number].inputs)
        if not found or (len(found[-1]) + 1) * size > most:
            found.append([])
        found[-1].append(number)
    return found


class CarriedText:
    """A running text for models whose context carries over from part to part.

    Args:
        reader: of the model.
        score: log-probabilities (N,) of words (N,) after features (N, D).
        first: the words before the text.
        device: of the model.
        most: words read at once.
    """

    def __init__(
        self,
        reader: Reader,
        score: Callable[[Tensor, Tensor], Tensor],
        first: Sequence[int],
        device: torch.device,
        most: int,
    ):
        self.reader, self.score, self.device, self.most = reader, score, device, most
        self._context: Any = reader.start(1, device)
        *before, last = first
        for word in before:
            self._read(np.array([word]))
        self._last = np.array([last])

    def log_probs(self, words: np.ndarray) -> np.ndarray:
        """(S,) float32 nats, of the next words (S,) of the text."""
        parts = [
            self._part(words[start : start + self.most])
            for start in range(0, len(words), self.most)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)

    @torch.no_grad()
    def _part(self, targets: np.ndarray) -> np.ndarray:
        features = self._read(np.concatenate([self._last, targets[:-1]]))
        self._last = targets[-1:]
        scores = self.score(features, torch.from_numpy(targets).to(self.device))
        return checked(scores.cpu().numpy())

    @torch.no_grad()
    def _read(self, words: np.ndarray) -> Tensor:
        """(T, D)"""
        tokens = torch.from_numpy(words).to(self.device)[None]
        features, self._context = self.reader.read_on(self._context, tokens)
        return features[0]
