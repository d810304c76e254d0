"""A decoder's words, and their ids in the model."""

import logging
from typing import Iterable

import numpy as np

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.language_model import LanguageModel

logger = logging.getLogger(__name__)

MAX_OOV = 0.5  # the share of a decoder's words
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
        words: the words.
        ids: word ids.
        is_oov: whether words are scored as ``<unk>``.

    Raises:
        ScoringError: if the model lacks more words.
    """

    def __init__(self, scorer: LanguageModel, words: Iterable[str], max_oov: float):
        self.words = list(words)
        self.ids = scorer.ids(self.words)
        self.is_oov = scorer.is_oov(self.ids).tolist()
        unk = scorer.dictionary.unk_word
        lacking = [w for w, is_oov in zip(self.words, self.is_oov) if is_oov and w != unk]
        if not lacking:
            return
        share, some = len(lacking) / len(self.words), ", ".join(map(repr, lacking[:3]))
        found = f"{len(lacking):,} of {len(self.words):,} ({share:.1%}): {some}, ..."
        if share > max_oov:
            required = f"a model with {1 - max_oov:.0%} of the decoder's words (max_oov)"
            raise ScoringError("words", required, f"a model that lacks {found}")
        logger.warning("words of the decoder that the model lacks, scored as %s: %s", unk, found)

    def offsets(self, unk_score_offset: float) -> np.ndarray:
        """Return (n,) float64: the offset for words that are scored as ``<unk>``, else 0."""
        return np.where(self.is_oov, unk_score_offset, 0.0)
