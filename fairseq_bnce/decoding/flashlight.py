"""For the decoders of flashlight-text, which torchaudio's ``ctc_decoder`` uses."""

import collections
import functools
from typing import Any, Deque, Dict, Iterable, Tuple

import numpy as np
from flashlight.lib.text.decoder import LM, LMState

from fairseq_bnce.decoding.histories import FORBIDDEN, MAX_OOV, DecoderWords, Histories
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.language_model import LanguageModel

_END = -1  # the index of the child state that finish returns
# By the decoder's state: its words (None after finish), and the score of its last word.
_Search = Dict[LMState, Tuple[Any, float]]


class FlashlightLM(LM):
    """A language model over words: ``LexiconDecoder(options, trie, lm, ..., is_token_lm=False)``.

    Scores are in nats; flashlight's own KenLM has log10. The decoder does not keep this object
    alive: keep a reference to it as long as the decoder is used.

    Args:
        scorer: a :class:`Scorer` of a self-normalised model, or an exact one; or a
            :class:`Mixture`.
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
        scorer: LanguageModel,
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
        self._offsets = np.maximum(known.offsets(unk_score_offset), FORBIDDEN).tolist()
        # The newest first. While a search is here, the decoder returns the states in it, and not
        # other wrappers of its own states.
        self._searches: Deque[_Search] = collections.deque(maxlen=searches)
        options.update(unk_score_offset=unk_score_offset, max_oov=max_oov, searches=searches)
        self._copy = functools.partial(type(self), **options), (scorer, known.words)

    def __reduce__(self) -> Tuple:
        """Copy and pickle all but the searches, whose states belong to the decoder."""
        return self._copy

    def start(self, start_with_nothing: bool) -> LMState:
        """Return the state of a sentence's beginning, whatever the argument says."""
        state = LMState()
        self._searches.appendleft({state: (self.histories.start(), 0.0)})
        return state

    def score(self, state: LMState, usr_token_idx: int) -> Tuple[LMState, float]:
        """Return the state after a word, and the word's log-probability in nats.

        Raises:
            ScoringError: for a state that is not of the last searches, or is after ``finish``.
        """
        if usr_token_idx < 0:  # it would be another word
            raise ScoringError("usr_token_idx", "at least 0", usr_token_idx)
        search, after = self._search(state), state.child(usr_token_idx)
        if after not in search:
            new, log_prob = self.histories.extend(search[state][0], self._ids[usr_token_idx])
            search[after] = new, log_prob + self._offsets[usr_token_idx]
        return after, search[after][1]

    def finish(self, state: LMState) -> Tuple[LMState, float]:
        """Return a last state, and the log-probability of ``</s>`` in nats; see :meth:`score`."""
        search, after = self._search(state), state.child(_END)
        if after not in search:
            search[after] = None, self.histories.end(search[state][0])
        return after, search[after][1]

    def updateCache(self, states: Iterable[LMState]) -> None:  # noqa: N802 - flashlight's name
        """Read all states of a beam in one batch.

        The decoders of flashlight-text 0.0.7 do not call this method: states are then read when
        a word is scored after one of them.
        """
        self.histories.read(self._search(state)[state][0] for state in states)

    def unigram_scores(self) -> np.ndarray:
        """Return log-probabilities (n,) of the words without contexts, in nats, to smear a trie.

        A Scorer computes them from the dictionary's counts plus one. Words that are scored as
        ``<unk>`` have its score at a sentence's beginning plus the offset.
        """
        scorer = self.histories.scorer
        found = scorer.unigram_log_probs()[self._ids]
        unknown = self.histories.scores(self.histories.start(), [scorer.dictionary.unk()])
        return np.where(self._is_oov, unknown, found) + np.array(self._offsets)

    def _search(self, state: LMState) -> _Search:
        """Return the search of a state."""
        for search in tuple(self._searches):
            if state in search:
                return search
        required = "one that this language model's start or score gave, in one of its last"
        raise ScoringError("state", f"{required} {self._searches.maxlen} searches", "another")
