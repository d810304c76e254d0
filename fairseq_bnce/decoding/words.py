"""A decoder's words, and what the model makes of them."""

from __future__ import annotations

import logging
import math
from typing import Iterable, List, Sequence

import numpy as np

from fairseq_bnce.errors import ScoringError, quoted, require
from fairseq_bnce.scoring import Scorer

logger = logging.getLogger(__name__)

MAX_OOV = 0.5  # of a decoder's words
# Nats, in the place of minus infinity where a library would calculate with it: flashlight's tries
# make NaN of it, and ESPnet may weigh it by 0.
FORBIDDEN = -1e10


class DecoderWords:
    """The model's ids of a decoder's words, by their indices.

    Args:
        scorer: of the model.
        words: of the decoder.
        max_oov: the largest share of them that the model may lack.

    Attributes:
        ids: word ids.
        is_oov: whether they are scored as ``<unk>``.

    Raises:
        ScoringError: where the model lacks more of them.
    """

    def __init__(self, scorer: Scorer, words: Iterable[str], max_oov: float = MAX_OOV):
        require("max_oov", "a share, 0 to 1", max_oov, 0 <= max_oov <= 1)
        words = as_words("words", words)
        self.ids: List[int] = scorer.ids(words)
        self.is_oov: List[bool] = scorer.is_oov(self.ids).tolist()
        self._check(words, scorer.dictionary.unk_word, max_oov)

    def offsets(self, unk_score_offset: float) -> np.ndarray:
        """(n,) float64: the offset for those that are scored as ``<unk>``."""
        return np.where(self.is_oov, checked_offset(unk_score_offset), 0.0)

    def _check(self, words: Sequence[str], unk: str, max_oov: float) -> None:
        lacking = [w for w, is_oov in zip(words, self.is_oov) if is_oov and w != unk]
        if not lacking:
            return
        some = ", ".join(map(repr, lacking[:3]))
        share = len(lacking) / len(words)
        told = f"{len(lacking):,} of {len(words):,} ({share:.1%}): {some}, ..."
        if share > max_oov:
            raise ScoringError(
                f"words: required that the model knows {1 - max_oov:.0%} of the decoder's words at "
                f"least (max_oov), got a model that lacks {told}"
            )
        logger.warning("words of the decoder that the model lacks, scored as %s: %s", unk, told)


def checked_offset(value: float) -> float:
    """What is added to unknown words' scores.

    Raises:
        ValueError: for what is neither a finite number nor -inf, which forbids such words.
    """
    is_number = isinstance(value, (int, float, np.number))
    fits = is_number and value < math.inf  # nan is not
    require("unk_score_offset", "a finite number or -inf", quoted(value), bool(fits))
    return float(value)


def unigram_log_probs(counts: Sequence[float]) -> np.ndarray:
    """Of words by their counts, of which each is taken for one more: (n,) float64 nats."""
    ones_more = np.array(counts, dtype=np.float64) + 1
    return np.log(ones_more / ones_more.sum())


def as_words(name: str, words: Iterable[str]) -> List[str]:
    """The words as a list.

    Raises:
        ScoringError: for a single string, or what is no string among them.
    """
    found = [words] if isinstance(words, (str, bytes)) else list(words)
    bad = [word for word in found if not isinstance(word, str)]
    if isinstance(words, (str, bytes)) or bad or not found:
        got = repr(bad[0]) if bad and bad[0] is not words else type(words).__name__
        raise ScoringError(f"{name}: required strings, at least one, got {got}")
    return found
