"""For ESPnet's beam searches, ``BeamSearch`` and ``BatchBeamSearch``."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple, Union

import numpy as np
import torch
from espnet.nets.scorer_interface import BatchPartialScorerInterface
from torch import Tensor

from fairseq_bnce.decoding.histories import Histories, History
from fairseq_bnce.decoding.words import FORBIDDEN, MAX_OOV, DecoderWords
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.language_model import LanguageModel

_ENDS = ("<sos/eos>", "<eos>")  # ESPnet's names of </s>


class EspnetScorer(BatchPartialScorerInterface):
    """A partial scorer: scores the tokens that the other scorers of a beam search have picked.

    Args:
        scorer: a :class:`Scorer` of a self-normalised model, or an exact one; or a
            :class:`Mixture`.
        token_list: ESPnet's tokens, which are words of the model.
        unk_score_offset: nats, added to the score of tokens that are scored as ``<unk>``.
        max_oov: the largest share of ``token_list`` that the model may lack.
        **options: of :class:`Histories`.

    Raises:
        ScoringError: for a model or tokens that cannot be used.
    """

    def __init__(
        self,
        scorer: LanguageModel,
        token_list: Iterable[str],
        *,
        unk_score_offset: float = 0.0,
        max_oov: float = MAX_OOV,
        **options: Any,
    ):
        self.histories = Histories(scorer, **options)
        end = scorer.dictionary.eos_word
        tokens = [end if token in _ENDS else token for token in token_list]
        if end not in tokens:  # the end would be scored as <unk>
            raise ScoringError("token_list", " or ".join([*_ENDS, end]), "none")
        known = DecoderWords(scorer, tokens, max_oov)
        self._ids = np.array(known.ids)
        self._offsets = known.offsets(unk_score_offset)

    def init_state(self, x: Tensor) -> Optional[History]:
        """Return the state before anything was read."""
        return None

    def select_state(self, state: Any, i: int, new_id: Optional[int] = None) -> Optional[History]:
        """Return the state of hypothesis ``i`` of a batch."""
        return state[i] if isinstance(state, list) else state

    def score_partial(
        self, y: Tensor, next_tokens: Tensor, state: Optional[History], x: Tensor
    ) -> Tuple[Tensor, History]:
        """Return the scores (n,) of n tokens after y (T,), in nats, and the state of y."""
        (history,) = self._read(y[None], [state])
        return self._scores(history, next_tokens.cpu().numpy()).to(y.device), history

    def batch_score_partial(
        self, ys: Tensor, next_tokens: Optional[Tensor], states: List[Optional[History]], xs: Tensor
    ) -> Tuple[Tensor, List[History]]:
        """Return the scores (B, V) after ys (B, T), in nats, and the states of ys.

        If ``next_tokens`` (B, n) is given, other tokens are ruled out, as ESPnet's own CTC scorer
        does it.
        """
        histories = self._read(ys, states)
        scores = torch.full((len(ys), len(self._ids)), FORBIDDEN)
        for row, history in enumerate(histories):
            tokens = slice(None) if next_tokens is None else next_tokens[row].cpu().numpy()
            scores[row, tokens] = self._scores(history, tokens)
        return scores.to(ys.device), histories

    def _read(self, ys: Tensor, states: List[Optional[History]]) -> List[History]:
        """Return the histories of ys, read in one batch."""
        pairs = zip(states, self._ids[ys[:, -1].cpu().numpy()].tolist())
        start, after = self.histories.start, self.histories.after
        found = [start() if state is None else after(state, last) for state, last in pairs]
        self.histories.read(found)
        return found

    def _scores(self, history: History, tokens: Union[slice, np.ndarray]) -> Tensor:
        found = self.histories.scores(history, self._ids[tokens]) + self._offsets[tokens]
        return torch.from_numpy(found).float()
