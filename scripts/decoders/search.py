"""flashlight's beam search with words."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np
from flashlight.lib.text import decoder as flashlight

from fairseq_bnce.decoding.words import unigram_log_probs

from .made import BLANK, SILENCE
from .systems import System

TOKENS = 10  # that each hypothesis goes on with
THRESHOLD = 20.0  # nats below the best


def smeared_trie(
    spellings: Sequence[List[int]], counts: Sequence[float], tokens: int, system: System
) -> flashlight.Trie:
    """Return a trie of words, with the unigram distribution as look-ahead, for any system.

    Args:
        spellings: token ids of the words.
        counts: of each word; each is taken for one more.
        tokens: how many there are.
    """
    has_lm = not isinstance(system.lm, flashlight.ZeroLM)
    look_ahead = unigram_log_probs(counts) if has_lm else np.zeros(len(counts))
    trie = flashlight.Trie(tokens, SILENCE)
    for index, (spelling, score) in enumerate(zip(spellings, look_ahead / system.lm_weight)):
        trie.insert(spelling, index, score)
    trie.smear(flashlight.SmearingMode.MAX)
    return trie


def decoder(
    trie: Any, system: System, beam: int, lm_weight: float = 1.0, word_score: float = 0.0
) -> flashlight.LexiconDecoder:
    """Return a decoder that knows no words beside the trie's.

    Args:
        beam: hypotheses.
        lm_weight: of the system's log-probabilities, nats.
        word_score: added for every word.
    """
    options = flashlight.LexiconDecoderOptions(
        beam_size=beam,
        beam_size_token=TOKENS,
        beam_threshold=THRESHOLD,
        lm_weight=lm_weight * system.lm_weight,
        word_score=word_score,
        unk_score=-float("inf"),
        sil_score=0.0,
        log_add=False,
        criterion_type=flashlight.CriterionType.CTC,
    )
    return flashlight.LexiconDecoder(options, trie, system.lm, SILENCE, BLANK, -1, [], False)
