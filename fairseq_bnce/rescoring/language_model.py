"""Add a language model's features to lists, in bounded memory.

The hypotheses of a list differ in a few words. Exact scores are computed word by word for all
hypotheses side by side, and hypotheses that begin alike are one until they differ.
"""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
)

import numpy as np

from fairseq_bnce.rescoring.lists import NBest
from fairseq_bnce.text.reading import readable

WINDOW = 2048  # hypotheses scored together: enough for batches of similar lengths
# Words per distinct prefix. Below this, exact scores of whole sentences were measured to be as
# fast. Unnormalised scores cost too little to gain from prefixes.
LEAST_GAIN = 1.5


class Added(NamedTuple):
    """The features to add to each hypothesis.

    Attributes:
        scorers: by feature names; log-probabilities in nats, ``</s>`` included.
        words: name of the feature that counts words without ``</s>``; None for no such feature.
        oov: name of the feature that counts unknown words; None for no such feature.
        count_sign: 1, or -1 if features are negative costs.
        make_words: returns the model's words of a hypothesis, separated by spaces.
        on_counts: called with the words and unknown words of each distinct text.
    """

    scorers: Mapping[str, Any]
    words: Optional[str] = None
    oov: Optional[str] = None
    count_sign: int = 1
    make_words: Callable[[str], str] = str
    on_counts: Callable[[int, int], None] = lambda words, oov: None

    def names(self) -> List[str]:
        """Return the features' names, in the order in which they are added."""
        return [*self.scorers, *(name for name in (self.words, self.oov) if name)]


class Scored(NamedTuple):
    """A sentence's log-probability (nats, ``</s>`` included), words, and unknown words."""

    total: float
    words: int
    oov: int


def add_features(lists: Iterable[NBest], added: Added, window: int = WINDOW) -> Iterator[NBest]:
    """Add features to all hypotheses; each distinct hypothesis in a window is scored once.

    Args:
        lists: any number of lists.
        added: the features.
        window: number of hypotheses to read before they are scored; at least one list.

    Raises:
        InputError: for a hypothesis that already has one of the features.
    """
    for some in _windows(lists, window):
        _add(some, added)
        yield from some


def _windows(lists: Iterable[NBest], window: int) -> Iterator[List[NBest]]:
    waiting: List[NBest] = []
    size = 0
    for nbest in lists:
        waiting.append(nbest)
        size += len(nbest.hypotheses)
        if size >= window:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _add(lists: List[NBest], added: Added) -> None:
    hypotheses = [hypothesis for nbest in lists for hypothesis in nbest.hypotheses]
    for hypothesis in hypotheses:
        for name in hypothesis.features.keys() & set(added.names()):
            raise hypothesis.line.error(
                f"no feature {name!r} (or another --feature), since it would be added", "one"
            )
    distinct = dict.fromkeys(hypothesis.words for hypothesis in hypotheses)
    texts = {words: added.make_words(readable(words)) for words in distinct}
    features = _features(list(dict.fromkeys(texts.values())), added)
    for hypothesis in hypotheses:
        hypothesis.added.update(features[texts[hypothesis.words]])


def _features(texts: List[str], added: Added) -> Dict[str, Dict[str, float]]:
    """Return the features of distinct texts, rounded as they are written."""
    found: Dict[str, Dict[str, float]] = {text: {} for text in texts}
    for name, scorer in added.scorers.items():
        scored = score(scorer, texts)
        for text, one in zip(texts, scored):
            found[text][name] = round(one.total, 6)
    for text, one in zip(texts, scored):
        added.on_counts(one.words, one.oov)
        for feature, count in ((added.words, one.words), (added.oov, one.oov)):
            if feature:
                found[text][feature] = float(added.count_sign * count)
    return found


def score(scorer: Any, texts: Sequence[str]) -> List[Scored]:
    """Score distinct sentences, by their prefixes if that is faster.

    Args:
        scorer: a :class:`fairseq_bnce.Scorer`.
        texts: the sentences.
    """
    if not (scorer.exact and share_prefixes(texts) and scorer.is_causal):
        stream = scorer.score_stream(texts)
        return [Scored(found.total, len(found.words) - 1, found.oov) for found in stream]
    ids = [scorer.ids(text.split()) for text in texts]
    totals = np.concatenate([totals_by_prefixes(scorer, some) for some in _groups(scorer, ids)])
    return [
        Scored(float(total), len(some), int(scorer.is_oov(some).sum()))
        for total, some in zip(totals, ids)
    ]


def share_prefixes(texts: Sequence[str]) -> bool:
    """Return whether sentences begin alike enough for scores by prefixes to be faster."""
    prefixes, words = set(), 0
    for text in texts:
        prefix = 0
        for word in (*text.split(), "</s>"):
            prefix = hash((prefix, word))
            prefixes.add(prefix)
            words += 1
    return words >= LEAST_GAIN * max(1, len(prefixes))


def totals_by_prefixes(scorer: Any, sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return log-probabilities (n,) of n sentences of word ids, ``</s>`` included, in nats."""
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
            places = places.reshape(-1)  # numpy 2.0 returns another shape
            state, log_probs = scorer.extend(state.select(pairs[:, 0]), pairs[:, 1])
            totals[alive] += log_probs[places]
            nodes[alive] = places
        depth += 1
    return totals


def _end_log_probs(scorer: Any, state: Any, nodes: np.ndarray) -> np.ndarray:
    """Return the log-probability of ``</s>`` after each of these rows of a state."""
    if not len(nodes):
        return np.zeros(0)
    distinct, places = np.unique(nodes, return_inverse=True)
    ends = np.full(len(distinct), scorer.dictionary.eos())
    return scorer.next_log_probs(state.select(distinct), ends)[places]


def _groups(scorer: Any, sentences: List[List[int]]) -> Iterator[List[List[int]]]:
    """Yield at most four batches of words each: a transformer's states hold every word."""
    start, longest = 0, 0
    for number, ids in enumerate(sentences):
        longest = max(longest, len(ids) + 1)
        if number > start and (number + 1 - start) * longest > 4 * scorer.batch_tokens:
            yield sentences[start:number]
            start, longest = number, len(ids) + 1
    yield sentences[start:]
