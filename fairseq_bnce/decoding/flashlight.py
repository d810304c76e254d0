"""For the decoders of flashlight-text, which torchaudio's ``ctc_decoder`` uses."""

from __future__ import annotations

import collections
import threading
from typing import Any, Deque, Dict, Iterable, List, NamedTuple, Optional, Tuple, Type

import numpy as np
from flashlight.lib.text.decoder import LM, LMState

from fairseq_bnce.decoding.histories import Histories, History
from fairseq_bnce.decoding.words import FORBIDDEN, MAX_OOV, DecoderWords, unigram_log_probs
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring import Scorer

_LM: Any = LM
_END = -1  # the index of the child state that finish returns


class _Reached(NamedTuple):
    """A state's words (None after finish), the score of its last word, and its search."""

    history: Optional[History]
    score: float
    search: List[Any]


class FlashlightLM(_LM):
    """A language model over words: ``LexiconDecoder(options, trie, lm, ..., is_token_lm=False)``.

    Scores are in nats; flashlight's own KenLM has log10. The decoder does not keep this object
    alive: keep a reference to it as long as the decoder is used.

    Args:
        scorer: of a self-normalised model, or an exact one.
        words: the decoder's words, in the order of their indices.
        unk_score_offset: nats, added to the score of words that are scored as ``<unk>``.
        max_oov: the largest share of ``words`` that the model may lack.
        searches: states of so many of the last calls of ``start`` can be used.
        **options: of :class:`Histories`.

    Raises:
        ScoringError: for a model or words that cannot be used.
    """

    def __init__(
        self,
        scorer: Scorer,
        words: Iterable[str],
        *,
        unk_score_offset: float = 0.0,
        max_oov: float = MAX_OOV,
        searches: int = 16,
        **options: Any,
    ):
        super().__init__()
        known = DecoderWords(scorer, words, max_oov)
        self.histories = Histories(scorer, **options)
        self._ids, self._is_oov = known.ids, known.is_oov
        offsets = np.maximum(known.offsets(unk_score_offset), FORBIDDEN)
        self._offsets: List[float] = offsets.tolist()
        self._most = searches
        self._forget()

    def _forget(self) -> None:
        self._reached: Dict[Any, _Reached] = {}  # by the decoder's states
        self._searches: Deque[List[Any]] = collections.deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """Copy and pickle all but the searches, whose states belong to the decoder."""
        left_out = ("_reached", "_searches", "_lock")
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return _copied, (type(self), kept)

    def start(self, start_with_nothing: bool) -> Any:
        """Return the state of a sentence's beginning, whatever the argument says."""
        state: Any = LMState()
        search: List[Any] = []
        self._reach(state, _Reached(self.histories.start(), 0.0, search))
        with self._lock:
            self._searches.append(search)
            if len(self._searches) > self._most:
                for old in self._searches.popleft():
                    del self._reached[old]
        return state

    def score(self, state: Any, usr_token_idx: int) -> Tuple[Any, float]:
        """Return the state after a word, and the word's log-probability in nats.

        Raises:
            ScoringError: for a state that is not of the last searches, or is after ``finish``.
        """
        if not 0 <= usr_token_idx < len(self._ids):  # a negative index would be another word
            raise ScoringError(
                f"usr_token_idx: required 0 to {len(self._ids) - 1}, got {usr_token_idx}"
            )
        before, search = self._open(state)
        after = state.child(usr_token_idx)
        known = self._reached.get(after)
        if known is None:
            history, log_prob = self.histories.extend(before, self._ids[usr_token_idx])
            score = log_prob + self._offsets[usr_token_idx]
            known = self._reach(after, _Reached(history, score, search))
        return after, known.score

    def finish(self, state: Any) -> Tuple[Any, float]:
        """Return a last state, and the log-probability of ``</s>`` in nats; see :meth:`score`."""
        before, search = self._open(state)
        after = state.child(_END)
        known = self._reached.get(after)
        if known is None:
            score = self.histories.end(before)
            known = self._reach(after, _Reached(None, score, search))
        return after, known.score

    def updateCache(self, states: Iterable[Any]) -> None:  # noqa: N802 - flashlight's name
        """Read all states of a beam in one batch.

        The decoders of flashlight-text 0.0.7 do not call this method: states are then read when
        a word is scored after one of them.
        """
        self.histories.read(self._open(state)[0] for state in states)

    def unigram_scores(self) -> np.ndarray:
        """Return log-probabilities (n,) of the words without contexts, in nats, to smear a trie.

        They are computed from the dictionary's counts plus one. Words that are scored as
        ``<unk>`` have its score at a sentence's beginning plus the offset.
        """
        dictionary = self.histories.scorer.dictionary
        found = unigram_log_probs(dictionary.count)[self._ids]
        unknown = self.histories.scores(self.histories.start(), [dictionary.unk()])
        return np.where(self._is_oov, unknown, found) + np.array(self._offsets)

    def _open(self, state: Any) -> Tuple[History, List[Any]]:
        """Return the history of a state, and its search."""
        known = self._reached.get(state)
        if known is None or known.history is None:
            got = "none of its last searches" if known is None else "one after finish"
            raise ScoringError(
                f"state: required one that this language model's start or score gave, in one of "
                f"its last {self._most} searches, got {got}"
            )
        return known.history, known.search

    def _reach(self, state: Any, reached: _Reached) -> _Reached:
        # While this object is alive, the decoder returns it and not another wrapper of its state.
        self._reached[state] = reached
        reached.search.append(state)
        return reached


def _copied(kind: Type[FlashlightLM], kept: Dict[str, Any]) -> FlashlightLM:
    copied = kind.__new__(kind)
    _LM.__init__(copied)
    copied.__dict__.update(kept)
    copied._forget()
    return copied
