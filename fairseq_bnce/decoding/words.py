"""A decoder's words, and their ids in the model."""

from __future__ import annotations

import logging
import math
from typing import Iterable, List, Sequence

import numpy as np

from fairseq_bnce.errors import ScoringError, require
from fairseq_bnce.scoring import Scorer

logger = logging.getLogger(__name__)

MAX_OOV = 0.5  # of a decoder's words
# Nats, instead of minus infinity: flashlight's tries turn that into NaN, and ESPnet may multiply
# it by 0.
FORBIDDEN = -1e10


class DecoderWords:
    """The model's ids of a decoder's words, in the decoder's order.

    Args:
        scorer: of the model.
        words: of the decoder.
        max_oov: the largest share of the words that the model may lack.

    Attributes:
        ids: word ids.
        is_oov: whether words are scored as ``<unk>``.

    Raises:
        ScoringError: if the model lacks more words.
    """

    def __init__(self, scorer: Scorer, words: Iterable[str], max_oov: float = MAX_OOV):
        words = as_words("words", words)
        self.ids: List[int] = scorer.ids(words)
        self.is_oov: List[bool] = scorer.is_oov(self.ids).tolist()
        unk = scorer.dictionary.unk_word
        lacking = [w for w, is_oov in zip(words, self.is_oov) if is_oov and w != unk]
        if lacking:
            self._report(lacking, words, unk, max_oov)

    def offsets(self, unk_score_offset: float) -> np.ndarray:
        """Return (n,) float64: the offset for words that are scored as ``<unk>``, else 0."""
        return np.where(self.is_oov, checked_offset(unk_score_offset), 0.0)

    def _report(
        self, lacking: Sequence[str], words: Sequence[str], unk: str, max_oov: float
    ) -> None:
        share, some = len(lacking) / len(words), ", ".join(map(repr, lacking[:3]))
        found = f"{len(lacking):,} of {len(words):,} ({share:.1%}): {some}, ..."
        if share > max_oov:
            raise ScoringError(
                f"words: required a model with {1 - max_oov:.0%} of the decoder's words (max_oov), "
                f"got a model that lacks {found}"
            )
        logger.warning("words of the decoder that the model lacks, scored as %s: %s", unk, found)


def checked_offset(value: float) -> float:
    """Return an offset of unknown words' scores; raise ValueError for NaN and infinity."""
    require("unk_score_offset", "a finite number or -inf", value, value < math.inf)
    return float(value)


def unigram_log_probs(counts: Sequence[float]) -> np.ndarray:
    """Return log-probabilities (n,) of words by their counts plus one, in nats."""
    ones_more = np.array(counts, dtype=np.float64) + 1
    return np.log(ones_more / ones_more.sum())


def as_words(name: str, words: Iterable[str]) -> List[str]:
    """Return the words as a list; raise ScoringError for a single string."""
    found = list(words)
    if isinstance(words, (str, bytes)) or not all(isinstance(word, str) for word in found):
        raise ScoringError(f"{name}: required a list of strings, got {type(words).__name__}")
    return found
