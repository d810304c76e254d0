"""Add a language model's features to lists, in bounded memory.

The hypotheses of a list differ in a few words. Exact scores are computed word by word for all
hypotheses side by side, and hypotheses that begin alike are one until they differ.
"""

import itertools
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

import numpy as np

from fairseq_bnce.rescoring.lists import NBest
from fairseq_bnce.text.reading import readable
from fairseq_bnce.text.training_text import ModelWords

Model = Any  # a LanguageModel of scoring/, whose modules need fairseq
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
        model_words: cuts hypotheses, and warns of unknown words.
    """

    scorers: Dict[str, Model]
    words: Optional[str]
    oov: Optional[str]
    count_sign: int
    model_words: ModelWords

    def names(self) -> List[str]:
        """Return the features' names, in the order in which they are added."""
        return [*self.scorers, *(name for name in (self.words, self.oov) if name)]


def add_features(lists: Iterable[NBest], added: Added) -> Iterator[NBest]:
    """Add features to all hypotheses; each distinct hypothesis in a window is scored once.

    Args:
        lists: any number of lists.
        added: the features.

    Raises:
        InputError: for a hypothesis that already has one of the features.
    """
    waiting: List[NBest] = []
    size = 0
    for nbest in lists:
        waiting.append(nbest)
        size += len(nbest.hypotheses)
        if size >= WINDOW:
            yield from _added(waiting, added)
            waiting, size = [], 0
    yield from _added(waiting, added)


def _added(lists: List[NBest], added: Added) -> List[NBest]:
    hypotheses = [hypothesis for nbest in lists for hypothesis in nbest.hypotheses]
    for hypothesis in hypotheses:
        for name in filter(hypothesis.has, added.names()):
            required = f"a list without {name!r}, which is to be added (or another --feature)"
            raise hypothesis.line.error(required, "a list that has it")
    distinct = dict.fromkeys(hypothesis.words for hypothesis in hypotheses)
    texts = {words: added.model_words(readable(words)) for words in distinct}
    features = _features(list(dict.fromkeys(texts.values())), added)
    for hypothesis in hypotheses:
        hypothesis.added.update(features[texts[hypothesis.words]])
    return lists


def _features(texts: List[str], added: Added) -> Dict[str, Dict[str, float]]:
    """Return the features of distinct texts, rounded as they are written."""
    found: Dict[str, Dict[str, float]] = {text: {} for text in texts}
    for name, scorer in added.scorers.items():
        for text, total in zip(texts, totals(scorer, texts).tolist()):
            found[text][name] = round(total, 6)
    for text in texts:
        words = text.split()
        counts = len(words), int(scorer.is_oov(scorer.ids(words)).sum())
        added.model_words.count(*counts)
        for feature, count in zip((added.words, added.oov), counts):
            if feature:
                found[text][feature] = float(added.count_sign * count)
    return found


def totals(scorer: Model, texts: List[str]) -> np.ndarray:
    """Return log-probabilities (n,) of n distinct sentences, by prefixes if that is faster.

    Args:
        scorer: a :class:`fairseq_bnce.Scorer`.
        texts: the sentences, words separated by spaces.
    """
    if not (scorer.exact and share_prefixes(texts) and scorer.is_causal):
        return scorer.score(texts, tokenized=True)
    ids = [scorer.ids(text.split()) for text in texts]
    # A transformer's states hold every word, so no more than four batches of words at once.
    size = max(1, 4 * scorer.batch_tokens // (1 + max(map(len, ids))))
    groups = [ids[start : start + size] for start in range(0, len(ids), size)]
    return np.concatenate([totals_by_prefixes(scorer, some) for some in groups])


def share_prefixes(texts: List[str]) -> bool:
    """Return whether sentences begin alike enough for scores by prefixes to be faster."""
    found: List[object] = []
    for text in texts:
        found += itertools.accumulate([*text.split(), "</s>"], lambda *pair: hash(pair))
    return len(found) >= LEAST_GAIN * max(1, len(set(found)))


def totals_by_prefixes(scorer: Model, sentences: List[List[int]]) -> np.ndarray:
    """Return log-probabilities (n,) of n sentences of word ids, ``</s>`` included, in nats."""
    ids = [[*sentence, scorer.dictionary.eos()] for sentence in sentences]
    lengths = np.array([len(some) for some in ids])
    totals, nodes = np.zeros(len(ids)), np.zeros(len(ids), dtype=np.int64)
    state, alive = scorer.start(1), np.arange(len(ids))
    for depth in range(lengths.max()):
        words = [ids[number][depth] for number in alive.tolist()]
        steps = np.stack([nodes[alive], words], axis=1)
        steps, places = np.unique(steps, axis=0, return_inverse=True)
        places = places.reshape(-1)  # numpy 2.0 returns another shape
        state = state.select(steps[:, 0])
        totals[alive] += scorer.next_log_probs(state, steps[:, 1])[places]
        goes_on = lengths[alive] > depth + 1
        alive = alive[goes_on]
        kept, nodes[alive] = np.unique(places[goes_on], return_inverse=True)
        if len(kept):
            state = scorer.read_on(state.select(kept), steps[kept, 1])
    return totals
