"""For ESPnet's beam searches, ``BeamSearch`` and ``BatchBeamSearch``."""

from typing import Any, Iterable, List, Optional, Tuple

import numpy as np
import torch
from espnet.nets.scorer_interface import BatchPartialScorerInterface
from torch import Tensor

from fairseq_bnce.decoding.histories import FORBIDDEN, MAX_OOV, DecoderWords, Histories, History
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
        scores, (history,) = self.batch_score_partial(y[None], next_tokens[None], [state], x)
        return scores[0, next_tokens], history

    def batch_score_partial(
        self, ys: Tensor, next_tokens: Optional[Tensor], states: List[Optional[History]], xs: Tensor
    ) -> Tuple[Tensor, List[History]]:
        """Return the scores (B, V) after ys (B, T), in nats, and the states of ys.

        If ``next_tokens`` (B, n) is given, other tokens are ruled out, as ESPnet's own CTC scorer
        does it.
        """
        pairs = zip(states, self._ids[ys[:, -1].cpu().numpy()].tolist())
        start, after = self.histories.start, self.histories.after
        histories = [start() if state is None else after(state, last) for state, last in pairs]
        self.histories.read(histories)  # in one batch
        scores = torch.full((len(ys), len(self._ids)), FORBIDDEN)
        for row, history in enumerate(histories):
            tokens: Any = slice(None) if next_tokens is None else next_tokens[row].cpu().numpy()
            found = self.histories.scores(history, self._ids[tokens]) + self._offsets[tokens]
            scores[row, tokens] = torch.from_numpy(found).float()
        return scores.to(ys.device), histories
