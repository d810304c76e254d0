"""Scoring many similar hypotheses: every distinct beginning of them once.

The hypotheses of a list differ in a few words. Read word by word, side by side, those that begin
alike are one until they part.
"""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Sequence

import numpy as np

# Words for each distinct prefix. Measured with exact scores: below, whole sentences are as fast.
# Unnormalised scores cost too little to gain from it.
LEAST_GAIN = 1.5


class Scored(NamedTuple):
    """Of one sentence: log-probability (nats, ``</s>`` included), words, words not known."""

    total: float
    words: int
    oov: int


def score(scorer: Any, texts: Sequence[str]) -> List[Scored]:
    """Score sentences by their prefixes where that is faster, or each for itself.

    Args:
        scorer: a :class:`fairseq_bnce.Scorer`.
        texts: sentences, best each distinct one once.
    """
    if not (scorer.exact and pays(texts) and scorer.is_causal):
        stream = scorer.score_stream(texts)
        return [Scored(found.total, len(found.words) - 1, found.oov) for found in stream]
    ids = [scorer.ids(text.split()) for text in texts]
    totals = np.concatenate([totals_by_prefixes(scorer, some) for some in _groups(scorer, ids)])
    return [
        Scored(float(total), len(some), int(scorer.is_oov(some).sum()))
        for total, some in zip(totals, ids)
    ]


def pays(texts: Sequence[str]) -> bool:
    """Whether the sentences share enough of their beginnings."""
    prefixes, words = set(), 0
    for text in texts:
        prefix = 0
        for word in (*text.split(), "</s>"):
            prefix = hash((prefix, word))
            prefixes.add(prefix)
            words += 1
    return words >= LEAST_GAIN * max(1, len(prefixes))


def totals_by_prefixes(scorer: Any, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Log-probabilities (n,) of n sentences of word ids, ``</s>`` included: float64, nats."""
    totals, nodes = np.zeros(len(sentences)), np.zeros(len(sentences), dtype=np.int64)
    lengths = np.array([len(ids) for ids in sentences])
    state, depth, alive = scorer.start(1), 0, np.arange(len(sentences))
    while len(alive):
        ends = alive[lengths[alive] == depth]
        totals[ends] += _end_log_probs(scorer, state, nodes[ends])
        alive = alive[lengths[alive] > depth]
        if len(alive):
            words = [sentences[number][depth] for number in alive.tolist()]
            pairs, places = np.unique(
                np.stack([nodes[alive], words], axis=1), axis=0, return_inverse=True
            )
            places = places.reshape(-1)  # numpy 2.0 alone gives it another shape
            state, log_probs = scorer.extend(state.select(pairs[:, 0]), pairs[:, 1])
            totals[alive] += log_probs[places]
            nodes[alive] = places
        depth += 1
    return totals


def _end_log_probs(scorer: Any, state: Any, nodes: np.ndarray) -> np.ndarray:
    """Of ``</s>`` after these hypotheses of the state."""
    if not len(nodes):
        return np.zeros(0)
    distinct, places = np.unique(nodes, return_inverse=True)
    ends = np.full(len(distinct), scorer.dictionary.eos())
    return scorer.next_log_probs(state.select(distinct), ends)[places]


def _groups(scorer: Any, sentences: List[List[int]]) -> Iterator[List[List[int]]]:
    """In order, at most four batches of words each: a transformer's states hold every word."""
    start, longest = 0, 0
    for number, ids in enumerate(sentences):
        longest = max(longest, len(ids) + 1)
        if number > start and (number + 1 - start) * longest > 4 * scorer.batch_tokens:
            yield sentences[start:number]
            start, longest = number, len(ids) + 1
    yield sentences[start:]
