"""A small model of letters in speech: log-mel features, and connectionist temporal classification.

CTC is by Graves et al. (2006).
"""

import itertools
import math
import string
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from decoders import BLANK
from torch import Tensor, nn

from fairseq_bnce.rescoring.measures import WordErrorRate

from .errors import counts

RATE = 16_000  # samples a second
HOP, WINDOW, BINS = 160, 400, 512  # 10 ms, 25 ms; of the Fourier transform
MELS, LOWEST = 80, 60.0  # bands; Hz, below which the lowest bands would hold no bin
SUBSAMPLING = 3  # frames that become one emission, 30 ms
TOKENS = ["-", "|", "'", *string.ascii_lowercase]  # blank, the end of a word
PEAK, WARM = 2e-3, 0.1  # of the learning rate; the part of all updates in which it rises
BATCH = 16  # sentences
NORM = 5.0  # of the gradient, at most
SHOWN = 200  # updates between two lines of the log


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


def mel_filters() -> Tensor:
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


def save_speech(path: Path, spoken: Iterable[Tuple[bytes, str]]) -> None:
    """Write features of samples, with their words."""
    pairs = [(log_mels(samples), words) for samples, words in spoken]
    features, words = zip(*pairs)
    lengths = np.array([len(one) for one in features])
    np.savez(path, frames=np.concatenate(features), lengths=lengths, words=np.array(words))


def load_speech(path: Path) -> Speech:
    with np.load(path) as stored:
        return Speech(stored["frames"], stored["lengths"], stored["words"].tolist())


# ---------------------------------------------------------------- the model


def spell(words: str) -> List[int]:
    """Return token ids, a boundary behind every word."""
    return [TOKENS.index(letter) for letter in words.replace(" ", "|") + "|"]


def greedy(log_probs: np.ndarray) -> str:
    """Return the words of the likeliest token of every frame, (T, tokens), as CTC reads them."""
    best = log_probs.argmax(1)
    changed = np.flatnonzero(np.diff(best, prepend=BLANK))
    text = "".join(TOKENS[token] for token in best[changed] if token != BLANK)
    return " ".join(text.replace("|", " ").split())


class CharacterModel(nn.Module):
    """A convolution that takes every third frame, and LSTMs in both directions.

    Sentences of a batch should be about as long: what stands behind the shorter ones is read, too.
    Packed sequences would leave it out, and take three times as long on a CPU.
    """

    def __init__(self, size: int = 256):
        super().__init__()
        self.convolution = nn.Conv1d(MELS, size, 9, SUBSAMPLING, padding=4)
        self.norm = nn.LayerNorm(size)
        self.lstm = nn.LSTM(size, size, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.out = nn.Linear(2 * size, len(TOKENS))

    def forward(self, features: Sequence[np.ndarray]) -> Tuple[Tensor, Tensor]:
        """Return log-probabilities (B, T', tokens) of sentences (T, MELS), and lengths (B,)."""
        tensors = [torch.from_numpy(one).float() for one in features]
        frames = nn.utils.rnn.pad_sequence(tensors, batch_first=True)
        hidden = self.norm(self.convolution(frames.transpose(1, 2)).transpose(1, 2)).relu()
        states, _ = self.lstm(hidden)
        lengths = torch.tensor([(len(one) - 1) // SUBSAMPLING + 1 for one in features])
        return self.out(states).log_softmax(-1), lengths

    @torch.no_grad()
    def emit(self, features: Iterable[np.ndarray]) -> List[np.ndarray]:
        """Return (T', tokens) float32 log-probabilities of each sentence."""
        return [self([one])[0][0].numpy() for one in features]


def letter_error_rate(emissions: Iterable[np.ndarray], words: Iterable[str]) -> float:
    """Return the per cent of letters that greedy reading gets wrong; a space is a letter."""
    spaced = [" ".join(text.replace(" ", "|")) for text in words]
    read = [" ".join(greedy(one).replace(" ", "|")) for one in emissions]
    return WordErrorRate().value(counts(read, spaced).sum(0))


def train(path: Path, speech: Speech, updates: int, say: Callable[[str], None]) -> None:
    """Train a model, with a line every 200 updates, and write it and its processor seconds."""
    torch.manual_seed(0)
    model, features = CharacterModel(), speech.features()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=0.01)
    losses: List[float] = []
    seconds = 0.0
    for update, batch in enumerate(itertools.islice(batches(speech.lengths), updates)):
        start = time.process_time()
        for group in optimizer.param_groups:  # the rate rises and falls in straight lines
            done = update / updates
            group["lr"] = PEAK * min(done / WARM, (1 - done) / (1 - WARM))
        loss = _loss(model, [features[i] for i in batch], [speech.words[i] for i in batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        losses.append(loss.item())
        seconds += time.process_time() - start
        if (update + 1) % SHOWN == 0 or update + 1 == updates:
            say(f"update {update + 1}: {np.mean(losses[-SHOWN:]):.3f} nats a letter")
    torch.save({"model": model.state_dict(), "update": updates, "seconds": seconds}, path)


def _loss(model: CharacterModel, features: Sequence[np.ndarray], words: Sequence[str]) -> Tensor:
    """Return nats a letter; a sentence that has too few frames for its letters does not count."""
    targets = [torch.tensor(spell(one)) for one in words]
    letters = torch.tensor(list(map(len, targets)))
    log_probs, lengths = model(features)
    total = nn.functional.ctc_loss(
        log_probs.transpose(0, 1), torch.cat(targets), lengths, letters, BLANK, "sum", True
    )
    return total / letters.sum()


def batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield sentences of about the same length, for ever; at first the shortest ones."""
    for epoch in itertools.count():
        random = np.random.default_rng(epoch)
        order = (lengths * random.uniform(0.9, 1.1, len(lengths))).argsort()
        found = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        for place in range(len(found)) if epoch == 0 else random.permutation(len(found)):
            yield found[place]


def read_model(path: Path) -> Tuple[CharacterModel, Dict[str, Any]]:
    """Return the model that a training left, and what is stored with its parameters."""
    stored = torch.load(path)  # torch 1.13 reads no numbers with weights_only
    model = CharacterModel()
    model.load_state_dict(stored["model"])
    return model.eval(), stored
