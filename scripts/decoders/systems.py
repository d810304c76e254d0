"""Language models for flashlight's decoder: ours, one as fairseq's, and KenLM's.

fairseq has one in examples/speech_recognition. ``PrefixLM`` is made from its description: it keeps
for every state the words so far, and when a state is first asked for a word, it reads them all
again, takes the softmax over the vocabulary, and keeps that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from flashlight.lib.text.decoder import LM, LMState, ZeroLM

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.decoding import FlashlightLM


class System(NamedTuple):
    """A language model for the decoder.

    Attributes:
        lm: flashlight's.
        end_utterance: to be called after each.
        lm_weight: what makes its scores nats.
    """

    lm: LM
    end_utterance: Callable[[], None] = lambda: None
    lm_weight: float = 1.0


class PrefixLM(LM):
    """Reads all words of a state again, and keeps the softmax's V log-probabilities."""

    def __init__(self, model: Any, ids: Sequence[int], eos: int):
        super().__init__()
        self.model, self.ids, self.eos = model.eval(), ids, eos
        self.forget()

    def forget(self) -> None:
        """Forget all states."""
        self.prefixes: Dict[Any, List[int]] = {}
        self.log_probs: Dict[Any, np.ndarray] = {}

    def start(self, start_with_nothing: bool) -> LMState:
        state = LMState()
        self.prefixes[state] = [self.eos]
        return state

    def score(self, state: LMState, usr_token_idx: int) -> Tuple[LMState, float]:
        return self._score(state, usr_token_idx, self.ids[usr_token_idx])

    def finish(self, state: LMState) -> Tuple[LMState, float]:
        return self._score(state, -1, self.eos)

    def _score(self, state: LMState, index: int, word: int) -> Tuple[LMState, float]:
        if state not in self.log_probs:
            self._read(state)
        after = state.child(index)
        if after not in self.prefixes:
            self.prefixes[after] = [*self.prefixes[state], word]
        return after, float(self.log_probs[state][word])

    @torch.no_grad()
    def _read(self, state: LMState) -> None:
        output = self.model(torch.tensor([self.prefixes[state]]))
        log_probs = self.model.get_normalized_probs(output, log_probs=True, sample=None)
        self.log_probs[state] = log_probs[0, -1].numpy().copy()


def make(name: str, checkpoint: Path, words: Sequence[str], arpa: Path) -> System:
    """Return the system ``ours``, ``ours exact``, ``prefix``, ``kenlm`` or ``none``."""
    if name == "none":
        return System(ZeroLM())
    if name == "kenlm":
        from flashlight.lib.text.decoder.kenlm import KenLM
        from flashlight.lib.text.dictionary import Dictionary

        lm = KenLM(str(arpa), Dictionary(list(words)))
        return System(lm, lm_weight=float(np.log(10)))
    if name == "prefix":
        trained = checkpoints.load(str(checkpoint), None)
        ids = [trained.source.index(word) for word in words]
        prefix = PrefixLM(trained.model, ids, trained.source.eos())
        return System(prefix, prefix.forget)
    scorer = Scorer.from_checkpoint(str(checkpoint), exact=name == "ours exact")
    return System(FlashlightLM(scorer, words))
