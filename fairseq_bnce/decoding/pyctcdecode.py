"""For pyctcdecode's ``BeamSearchDecoderCTC``."""

import math
import sys
from typing import Any, Iterable, Optional, Tuple

from pyctcdecode.constants import AVG_TOKEN_LEN
from pyctcdecode.language_model import AbstractLanguageModel

from fairseq_bnce.decoding.histories import MAX_OOV, DecoderWords, Histories, History
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.language_model import LanguageModel

_LANGUAGE_MODEL: Any = AbstractLanguageModel


class PyctcdecodeLM(_LANGUAGE_MODEL):
    """A language model over words: ``BeamSearchDecoderCTC(alphabet, lm)``.

    It replaces the library's n-gram class, ``LanguageModel``, with the same parameters, units and
    treatment of partial words.

    Args:
        scorer: a :class:`Scorer` of a self-normalised model, or an exact one; or a
            :class:`Mixture`.
        unigrams: words that may be recognised; by default all that the model knows.
        alpha: weight of the log-probabilities.
        beta: added for every word.
        unk_score_offset: added to log10 of the probability of a word that is not in ``unigrams``
            or that the model does not know, and to the score of a partial word that begins no word.
        score_boundary: whether ``</s>`` is scored.
        max_oov: the largest share of ``unigrams`` that the model may lack.
        **options: of :class:`Histories`.

    Raises:
        ScoringError: for a model or words that cannot be used.
    """

    def __init__(
        self,
        scorer: LanguageModel,
        unigrams: Optional[Iterable[str]] = None,
        alpha: float = 0.5,
        beta: float = 1.5,
        unk_score_offset: float = -10.0,
        score_boundary: bool = True,
        *,
        max_oov: float = MAX_OOV,
        **options: Any,
    ):
        self.alpha, self.beta, self.score_boundary = alpha, beta, score_boundary
        self.unk_score_offset = unk_score_offset
        self.scorer, self.histories = scorer, Histories(scorer, **options)
        if unigrams is None:
            unigrams, max_oov = scorer.dictionary.symbols[scorer.dictionary.nspecial :], 1.0
        known = DecoderWords(scorer, unigrams, max_oov)
        self._words = {word for word, is_oov in zip(known.words, known.is_oov) if not is_oov}
        self._beginnings = {word[:end] for word in self._words for end in range(len(word) + 1)}

    def reset_params(self, **params: object) -> None:
        """Set alpha, beta, unk_score_offset or score_boundary; None leaves a value unchanged."""
        self.__dict__.update({name: value for name, value in params.items() if value is not None})

    @property
    def order(self) -> int:
        """Return the number of words that the model sees, with the next word; huge if unlimited."""
        return self.scorer.order or sys.maxsize

    def get_start_state(self) -> History:
        """Return the state of a sentence's beginning."""
        return self.histories.start()

    def score_partial_token(self, partial_token: str) -> float:
        """Return 0 for the beginning of a word, else the offset, more for long partial words."""
        if partial_token in self._beginnings:
            return 0.0
        return self.unk_score_offset * max(len(partial_token), AVG_TOKEN_LEN) / AVG_TOKEN_LEN

    def score(
        self, prev_state: History, word: str, is_last_word: bool = False
    ) -> Tuple[float, History]:
        """Return alpha times the word's log-probability in nats, plus beta; and the next state.

        The decoder scores an empty word at the end of a text that ends with a space: its score is
        0, and the state stays.

        Raises:
            ScoringError: for a state of another model.
        """
        history, score = prev_state, 0.0
        if word:
            history, nats = self.histories.extend(history, self.scorer.ids([word])[0])
            if word not in self._words:
                nats += self.unk_score_offset * math.log(10)
            score = self.beta + (self.alpha * nats if self.alpha else 0.0)  # nats may be -inf
        if is_last_word and self.score_boundary:
            score += self.alpha * self.histories.end(history)
        return score, history

    def save_to_dir(self, filepath: str) -> None:
        """Raise ScoringError: pyctcdecode would load the saved folder as an n-gram model."""
        required = "a language model that pyctcdecode can load again"
        raise ScoringError("save_to_dir", required, "a checkpoint's, which stays where it is")
