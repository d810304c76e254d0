"""Training of the CTC model, which goes on where it was interrupted."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Callable, Iterator, List

import numpy as np
import torch
from torch import nn

from .acoustics import BLANK, CharacterModel, emit, letter_error_rate, padded, spell, stored
from .features import Speech

PEAK, WARM = 2e-3, 0.1  # of the learning rate; the part of all updates in which it rises
BATCH = 16  # sentences
NORM = 5.0  # of the gradient, at most
SAVED = 200  # updates between two writings of the file, and two lines of the log


class Training:
    """A model, and how far it has come.

    Args:
        path: of what was trained so far, if there is such a file, and of what will be.
        speech: what it learns from.
        updates: as many as there will be in all.
    """

    def __init__(self, path: Path, speech: Speech, updates: int):
        self.path, self.speech, self.updates = path, speech, updates
        torch.manual_seed(0)
        self.model = CharacterModel()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK, weight_decay=0.01)
        self.update, self.seconds = 0, 0.0
        self._features = speech.features()
        if path.exists():
            found = stored(path)
            self.model.load_state_dict(found["model"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.update, self.seconds = found["update"], found["seconds"]

    def run(self, held_out: Speech, say: Callable[[str], None]) -> None:
        """To the end, with a line every 200 updates; only those are timed."""
        losses: List[float] = []
        for batch in itertools.islice(batches(self.speech.lengths), self.update, self.updates):
            start = time.process_time()
            losses.append(self.step(batch))
            self.seconds += time.process_time() - start
            if self.update % SAVED == 0 or self.update == self.updates:
                self.save()
                errors = letter_error_rate(emit(self.model, held_out.features()), held_out.words)
                say(
                    f"update {self.update}: {np.mean(losses):.3f} nats a letter, {errors:.1f} % of "
                    f"held-out letters wrong, {self.seconds:.0f} s of processor time"
                )
                losses.clear()

    def step(self, batch: np.ndarray) -> float:
        """An update with these sentences; the loss before it, nats a letter."""
        torch.manual_seed(self.update)  # of dropout: an interruption changes nothing
        for group in self.optimizer.param_groups:
            group["lr"] = PEAK * rate(self.update / self.updates)
        targets = [torch.tensor(spell(self.speech.words[i])) for i in batch]
        letters = torch.tensor([len(target) for target in targets])
        log_probs, lengths = self.model(*padded([self._features[i] for i in batch]))
        # A sentence that has too few frames for its letters does not count.
        total = nn.functional.ctc_loss(
            log_probs.transpose(0, 1), torch.cat(targets), lengths, letters, BLANK, "sum", True
        )
        loss = total / letters.sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), NORM)
        self.optimizer.step()
        self.update += 1
        return loss.item()

    def save(self) -> None:
        part = self.path.with_name(f"part.{self.path.name}")
        parameters, state = self.model.state_dict(), self.optimizer.state_dict()
        found = {"update": self.update, "seconds": self.seconds}
        torch.save({"model": parameters, "optimizer": state, **found}, part)
        part.replace(self.path)


def rate(done: float) -> float:
    """Of the peak, after this part of all updates: it rises and falls in straight lines."""
    return min(done / WARM, (1 - done) / (1 - WARM))


def batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Sentences of about the same length, for ever; at first the shortest, then in any order."""
    for epoch in itertools.count():
        random = np.random.default_rng(epoch)
        order = (lengths * random.uniform(0.9, 1.1, len(lengths))).argsort()
        found = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        for place in range(len(found)) if epoch == 0 else random.permutation(len(found)):
            yield found[place]
