"""A small model of letters in speech, and what connectionist temporal classification (CTC, Graves
et al. 2006) makes of its emissions."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np
import torch
from decoders.made import BLANK, SILENCE
from torch import nn

from fairseq_bnce.rescoring.measures import WordErrorRate

from .features import MELS

SUBSAMPLING = 3  # frames that become one emission, 30 ms
TOKENS = ["-", "|", "'", *string.ascii_lowercase]  # blank, the end of a word
BOUNDARY = SILENCE  # as decoders/search.py has it


def spell(words: str) -> List[int]:
    """Token ids, a boundary behind every word."""
    return [TOKENS.index(letter) for letter in words.replace(" ", "|") + "|"]


def greedy(log_probs: np.ndarray) -> str:
    """The words of the likeliest token of every frame, (T, tokens), as CTC reads them."""
    best = log_probs.argmax(1)
    changed = np.flatnonzero(np.diff(best, prepend=BLANK))
    text = "".join(TOKENS[token] for token in best[changed] if token != BLANK)
    return " ".join(text.replace("|", " ").split())


class CharacterModel(nn.Module):
    """A convolution that takes every third frame, and LSTMs in both directions.

    Sentences of a batch should be about as long: what stands behind the shorter ones is read, too.
    Packed sequences would leave it out, and take three times as long on a CPU.
    """

    def __init__(self, size: int = 256, layers: int = 2, dropout: float = 0.1):
        super().__init__()
        self.convolution = nn.Conv1d(MELS, size, 9, SUBSAMPLING, padding=4)
        self.norm = nn.LayerNorm(size)
        self.lstm = nn.LSTM(
            size, size, layers, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.out = nn.Linear(2 * size, len(TOKENS))

    def forward(
        self, frames: torch.Tensor, lengths: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (B, T', tokens) of frames (B, T, MELS), zeros where one has ended.

        Returns:
            them, and how many are each one's (B,).
        """
        features = self.norm(self.convolution(frames.transpose(1, 2)).transpose(1, 2)).relu()
        lengths = (lengths - 1) // SUBSAMPLING + 1
        states, _ = self.lstm(features)
        return self.out(states).log_softmax(-1), lengths


def padded(features: Sequence[np.ndarray]) -> Tuple[torch.Tensor, torch.Tensor]:
    """(B, T, MELS) float32 with zeros behind, and lengths (B,)."""
    tensors = [torch.from_numpy(one).float() for one in features]
    lengths = torch.tensor([len(one) for one in features])
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True), lengths


def emit(model: CharacterModel, features: Sequence[np.ndarray]) -> List[np.ndarray]:
    """(T', tokens) float32 log-probabilities of each."""
    model.eval()
    with torch.no_grad():
        found = [model(*padded([one]))[0][0].numpy() for one in features]
    model.train()
    return found


def letter_error_rate(emissions: Iterable[np.ndarray], words: Iterable[str]) -> float:
    """Per cent, of what is read greedily; a space is a letter."""
    measure, sums = WordErrorRate(), np.zeros(2, np.int64)
    for log_probs, right in zip(emissions, words):
        read, spelled = (" ".join(text.replace(" ", "|")) for text in (greedy(log_probs), right))
        sums += measure.counts([read], [spelled])[0]
    return measure.value(sums)


def read(path: Path) -> CharacterModel:
    """The model that a training left."""
    model = CharacterModel()
    model.load_state_dict(stored(path)["model"])
    return model


def stored(path: Path) -> Dict[str, Any]:
    """What a training left: parameters, the optimiser's state, updates, processor seconds."""
    return torch.load(path, weights_only=True)
