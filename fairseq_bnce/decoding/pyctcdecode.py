"""For pyctcdecode's ``BeamSearchDecoderCTC``."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, Dict, Iterable, Optional, Tuple

from fairseq_bnce.decoding.extras import imported
from fairseq_bnce.decoding.histories import Histories, History
from fairseq_bnce.decoding.words import MAX_OOV, DecoderWords, as_words, checked_offset
from fairseq_bnce.errors import ScoringError, require
from fairseq_bnce.scoring import Scorer

_LANGUAGE_MODEL: Any = imported(
    "pyctcdecode.language_model", "pyctcdecode", "PyctcdecodeLM"
).AbstractLanguageModel
_LONG = imported("pyctcdecode.constants", "pyctcdecode", "PyctcdecodeLM").AVG_TOKEN_LEN
_DECODER: Any = imported("pyctcdecode.decoder", "pyctcdecode", "PyctcdecodeLM").BeamSearchDecoderCTC
_PARAMETERS = {"alpha": float, "beta": float, "unk_score_offset": float, "score_boundary": bool}


class PyctcdecodeLM(_LANGUAGE_MODEL):
    """A language model over words: ``BeamSearchDecoderCTC(alphabet, lm)``.

    It stands in the place of the library's n-gram class, ``LanguageModel``, and has its parameters,
    units and treatment of partial words.

    Args:
        scorer: of a self-normalised model, or an exact one.
        unigrams: words that may be recognised; by default all that the model knows.
        alpha: weight of the log-probabilities.
        beta: added for every word.
        unk_score_offset: added to log10 of the probability of a word that is none of ``unigrams``
            or that the model does not know, and to the score of a partial word that begins none.
        score_boundary: whether ``</s>`` is scored.
        max_oov: the largest share of ``unigrams`` that the model may lack.
        **options: of :class:`Histories`.

    Raises:
        ScoringError: for a model or words that can't be used.
    """

    def __init__(
        self,
        scorer: Scorer,
        unigrams: Optional[Iterable[str]] = None,
        alpha: float = 0.5,
        beta: float = 1.5,
        unk_score_offset: float = -10.0,
        score_boundary: bool = True,
        *,
        max_oov: float = MAX_OOV,
        **options: Any,
    ):
        self.alpha, self.beta = alpha, beta
        self.unk_score_offset = checked_offset(unk_score_offset)
        self.score_boundary = score_boundary
        self.scorer, self.histories = scorer, Histories(scorer, **options)
        self._ids = _known(scorer, unigrams, max_oov)
        self._beginnings = {word[:end] for word in self._ids for end in range(len(word) + 1)}

    def reset_params(self, **params: Any) -> None:
        """Set alpha, beta, unk_score_offset or score_boundary; None leaves one as it is.

        Raises:
            ValueError: for another name, or a value of another type.
        """
        for name, value in params.items():
            require("params", f"some of {', '.join(_PARAMETERS)}", name, name in _PARAMETERS)
            if value is not None:
                wanted = _PARAMETERS[name]
                got = type(value).__name__
                require(name, f"a {wanted.__name__}", got, isinstance(value, wanted))
                if name == "unk_score_offset":
                    checked_offset(value)
                setattr(self, name, value)

    @property
    def order(self) -> int:
        """How many words tell hypotheses apart: all, but for models that see only a few."""
        return self.scorer.order or sys.maxsize

    def get_start_state(self) -> History:
        """The state of a sentence's beginning, from which alone a neural model can start."""
        return self.histories.start()

    def score_partial_token(self, partial_token: str) -> float:
        """0 for the beginning of a word, else the offset, and more for what is long."""
        if partial_token in self._beginnings:
            return 0.0
        return self.unk_score_offset * max(len(partial_token), _LONG) / _LONG

    def score(
        self, prev_state: History, word: str, is_last_word: bool = False
    ) -> Tuple[float, History]:
        """alpha times the word's log-probability in nats, plus beta, and the state after it.

        The empty word, which the decoder has at the end of what ended with a space, is none: it
        leaves the state as it is, and costs nothing.

        Raises:
            ScoringError: for a state of another model.
        """
        history, score = self.histories.check(prev_state), 0.0
        if word:
            history, score = self._extended(history, word)
        if is_last_word and self.score_boundary:
            score += self.alpha * self.histories.end(history)
        return score, history

    def save_to_dir(self, filepath: str) -> None:
        """Refuse: pyctcdecode would load an n-gram model from what is saved.

        Raises:
            ScoringError: always, before the decoder writes anything.
        """
        raise ScoringError(
            f"save_to_dir: required a language model that pyctcdecode can load again, got a "
            f"{type(self).__name__}; nothing is written to {filepath}. Keep the checkpoint, and "
            "make the decoder anew: BeamSearchDecoderCTC(alphabet, language_model)"
        )

    def _extended(self, history: History, word: str) -> Tuple[History, float]:
        known = self._ids.get(word)
        after, nats = self.histories.extend(history, self.scorer.ids([word])[0])
        if known is None:
            nats += self.unk_score_offset * math.log(10)
        weighted = self.alpha * nats if self.alpha else 0.0  # the offset may be -inf
        return after, weighted + self.beta


def _known(scorer: Scorer, unigrams: Optional[Iterable[str]], max_oov: float) -> Dict[str, int]:
    """Ids of the unigrams that the model predicts."""
    if unigrams is None:
        special = scorer.dictionary.nspecial
        unigrams, max_oov = scorer.dictionary.symbols[special:], 1.0
    words = as_words("unigrams", unigrams)
    found = DecoderWords(scorer, words, max_oov)
    return {w: i for w, i, is_oov in zip(words, found.ids, found.is_oov) if not is_oov}


def _asking_first(save: Any) -> Any:
    """Wrap ``save_to_dir``, which writes the alphabet before it asks the language model."""

    @functools.wraps(save)
    def save_to_dir(decoder: Any, filepath: str) -> None:
        if isinstance(decoder._language_model, PyctcdecodeLM):
            decoder._language_model.save_to_dir(filepath)
        save(decoder, filepath)

    return save_to_dir


_DECODER.save_to_dir = _asking_first(_DECODER.save_to_dir)
