"""Adding a language model's features to lists, in bounded memory."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional

from fairseq_bnce.rescoring import prefixes
from fairseq_bnce.rescoring.lists import NBest, check_new
from fairseq_bnce.text.lines import readable

WINDOW = 2048  # hypotheses that are scored together: among so many there are batches of a length


class Added(NamedTuple):
    """What is added to each hypothesis, by the features' names.

    Attributes:
        scorers: log-probabilities, nats, ``</s>`` included.
        words: the feature that counts words, ``</s>`` not counted; None for none.
        oov: the feature that counts words which the model does not know; None for none.
        count_sign: 1, or -1 where a feature is a negative cost.
        make_words: the model's words for a hypothesis, separated by spaces.
        tell: is told how many words each distinct text had, and how many of them are unknown.
    """

    scorers: Mapping[str, Any]
    words: Optional[str] = None
    oov: Optional[str] = None
    count_sign: int = 1
    make_words: Callable[[str], str] = str
    tell: Callable[[int, int], None] = lambda words, oov: None

    def names(self) -> List[str]:
        """Of the features, in the order they are added in."""
        return [*self.scorers, *(name for name in (self.words, self.oov) if name)]


def add_features(lists: Iterable[NBest], added: Added, window: int = WINDOW) -> Iterator[NBest]:
    """The same lists, whose hypotheses have the features; some are read ahead.

    Args:
        lists: in any number; each distinct hypothesis of neighbouring ones is scored once.
        added: the features.
        window: hypotheses read before they are scored; at least one list.

    Raises:
        InputError: for a hypothesis that has one of the features already.
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
        check_new(hypothesis, added.names())
    texts = {hypothesis.words: "" for hypothesis in hypotheses}
    for words in texts:
        texts[words] = added.make_words(readable(words))
    features = _features(list(dict.fromkeys(texts.values())), added)
    for hypothesis in hypotheses:
        hypothesis.added.update(features[texts[hypothesis.words]])


def _features(texts: List[str], added: Added) -> Dict[str, Dict[str, float]]:
    """Of each distinct text, rounded as they are written, so that a second call would read them."""
    found: Dict[str, Dict[str, float]] = {text: {} for text in texts}
    for name, scorer in added.scorers.items():
        scored = prefixes.score(scorer, texts)
        for text, score in zip(texts, scored):
            found[text][name] = round(score.total, 6)
    for text, score in zip(texts, scored):
        added.tell(score.words, score.oov)
        for feature, count in ((added.words, score.words), (added.oov, score.oov)):
            if feature:
                found[text][feature] = float(added.count_sign * count)
    return found
