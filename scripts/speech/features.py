"""Log-mel features of spoken sentences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Iterable, List, NamedTuple, Tuple

import numpy as np
import torch

RATE = 16_000  # samples a second
HOP, WINDOW, BINS = 160, 400, 512  # 10 ms, 25 ms; of the Fourier transform
MELS, LOWEST = 80, 60.0  # bands; Hz, below which the lowest bands would hold no bin


class Speech(NamedTuple):
    """Spoken sentences.

    Attributes:
        frames: (T, MELS) log-mel features of all, one after the other.
        lengths: (n,) frames of each.
        words: of each.
    """

    frames: np.ndarray
    lengths: np.ndarray
    words: List[str]

    @property
    def seconds(self) -> float:
        return float(self.lengths.sum()) * HOP / RATE

    def features(self) -> List[np.ndarray]:
        """Return the features (T_i, MELS) of each sentence."""
        return np.split(self.frames, self.lengths.cumsum()[:-1])


def mel_filters() -> torch.Tensor:
    """Return filters (MELS, BINS / 2 + 1): triangles of equal width on the mel scale."""
    top = _mel(RATE / 2)
    places = torch.linspace(_mel(LOWEST), top, MELS + 2)
    bins = torch.tensor([_mel(k * RATE / BINS) for k in range(BINS // 2 + 1)])
    width = places[1] - places[0]
    return (1 - (bins - places[1:-1, None]).abs() / width).clamp(min=0)


def _mel(frequency: float) -> float:
    return 1127 * math.log1p(frequency / 700)


_FILTERS = mel_filters()


def log_mels(samples: bytes) -> np.ndarray:
    """Return features (T, MELS) float16 of 16-bit samples; every band has mean 0 and variance 1."""
    sound = torch.from_numpy(np.frombuffer(samples, dtype="<i2").astype(np.float32) / 2**15)
    window = torch.hann_window(WINDOW)
    bins = torch.stft(sound, BINS, HOP, WINDOW, window, pad_mode="constant", return_complex=True)
    found = (_FILTERS @ bins.abs().square() + 1e-8).log()
    found = (found - found.mean(1, keepdim=True)) / (found.std(1, keepdim=True) + 1e-3)
    return found.T.numpy().astype(np.float16)


def save(path: Path, spoken: Iterable[Tuple[bytes, str]]) -> None:
    """Write features of samples, with their words."""
    pairs = [(log_mels(samples), words) for samples, words in spoken]
    features, words = zip(*pairs)
    lengths = np.array([len(one) for one in features])
    np.savez(path, frames=np.concatenate(features), lengths=lengths, words=np.array(words))


def load(path: Path) -> Speech:
    with np.load(path) as stored:
        return Speech(stored["frames"], stored["lengths"], stored["words"].tolist())
