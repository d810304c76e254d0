"""A spelled lexicon and emissions, made from a seed: the same for every language model."""

from __future__ import annotations

import string
from typing import Dict, List, Sequence, Tuple

import numpy as np
from experiments.measures.data import probabilities

TOKENS = ["-", "|", *string.ascii_lowercase]  # blank and silence first
BLANK, SILENCE = 0, 1
_LETTERS = len(string.ascii_lowercase)
_LONGEST = 12  # letters of a word
Spellings = List[List[int]]
_NOISE = 2.0  # standard deviation of what is added to emissions


def make(
    words: int, utterances: int, length: int
) -> Tuple[Spellings, List[np.ndarray], np.ndarray]:
    """Make emissions of ``utterances`` sentences of ``length`` Zipf-distributed words.

    Args:
        words: of the lexicon.

    Returns:
        the token ids of each word of the lexicon, silence last; the emissions (T, tokens) of each
        utterance, float32 log-probabilities; and the counts of each word in a million.
    """
    rng = np.random.default_rng(1)
    spellings = spell(words, rng)
    p = probabilities(words)
    chosen = rng.choice(words, size=(utterances, length), p=p)
    emissions = [emit([spellings[word] for word in sentence], rng) for sentence in chosen]
    return spellings, emissions, 1e6 * p


def spell(count: int, rng: np.random.Generator) -> Spellings:
    """Return distinct spellings, silence last; with common letters, many words begin alike."""
    p = 1 / (np.arange(_LETTERS) + 3.0)
    found: Dict[Tuple[int, ...], None] = {}
    while len(found) < count:
        letters = SILENCE + 1 + rng.choice(_LETTERS, size=(count, _LONGEST), p=p / p.sum())
        lengths = np.clip(2 + rng.poisson(4, size=count), 2, _LONGEST)
        found.update((tuple(row[:n]), None) for row, n in zip(letters.tolist(), lengths.tolist()))
    return [[*spelling, SILENCE] for spelling in list(found)[:count]]


def emit(spellings: Sequence[Sequence[int]], rng: np.random.Generator) -> np.ndarray:
    """Return noisy log-probabilities (T, tokens): two frames a token, the second a blank."""
    tokens = [token for spelling in spellings for token in spelling]
    scores = rng.normal(scale=_NOISE, size=(2 * len(tokens), len(TOKENS)))
    scores[np.arange(0, 2 * len(tokens), 2), tokens] += 6
    scores[1::2, BLANK] += 6
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores.astype(np.float32)
