"""Histories of a beam search, the scores of the words that may come next, and a decoder's words.

A decoder makes thousands of hypotheses and continues a few of them. A history is therefore small: a
word and the history before it. The model reads a history when a word after it is scored, in one
batch with other histories that wait. The model's state and features are kept for the histories used
last; other histories are read again when a decoder asks for them.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
import uuid
import weakref
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.language_model import LanguageModel, NextWords

logger = logging.getLogger(__name__)

MAX_OOV = 0.5  # the share of a decoder's words
# Nats, instead of minus infinity: flashlight's tries turn that into NaN, and ESPnet may multiply
# it by 0.
FORBIDDEN = -1e10
_WAITING = 128  # histories that wait to be read
_ROOM = 128  # histories in the cache for each history that is read ahead
# Nats that a history's last word must be likelier for each history made between it and the one
# asked for: a beam continues likely histories of the same age.
_FAR = 0.1


class History:
    """The words of a hypothesis; made by :class:`Histories`, and never changed by its users.

    Attributes:
        owner: the key of the :class:`Histories` that made it, and of their copies.
        parent: the history without the last word; None for a history without words.
        word: id of the last word.
        log_prob: of the last word, in nats, if it was scored; else 0.
        length: the number of words.
    """

    __slots__ = ("__weakref__", "_batch", "_row", "length", "log_prob", "owner", "parent", "word")

    def __init__(self, owner: str, parent: Any = None, word: int = -1, log_prob: float = 0.0):
        self.owner, self.parent, self.word, self.log_prob = owner, parent, word, log_prob
        self.length: int = 0 if parent is None else parent.length + 1
        self._batch: Any = _nothing  # a weak reference
        self._row = 0

    def words(self) -> Tuple[int, ...]:
        """Return the ids of all words."""
        found: List[int] = []
        history = self
        while history.parent is not None:
            found.append(history.word)
            history = history.parent
        return tuple(reversed(found))

    def __deepcopy__(self, memo: object) -> History:
        return self

    def __reduce__(self) -> Tuple:
        """Pickle the words only; the model reads them again."""
        return _history, (self.owner, self.words())


def _history(owner: str, words: Sequence[int]) -> History:
    return functools.reduce(functools.partial(History, owner), words, History(owner))


class Histories:
    """All histories of one scorer; threads may share it.

    Args:
        scorer: of the model.
        cached: number of histories, the ones used last, whose states are kept, also after the
            end of an utterance. An LSTM's state is small. A transformer's state has keys and values
            of all words: layers x 2 x D numbers a word.
        read_ahead: number of waiting histories that are read together with one asked for; fewer
            if ``cached`` is small.

    Attributes:
        counts: the numbers of words scored, of histories read, and of batches read.

    Raises:
        ScoringError: for a model that a decoder cannot use.
    """

    def __init__(
        self, scorer: LanguageModel, *, cached: int = 2048, read_ahead: int = 15, _key: str = ""
    ):
        check_scorer(scorer)
        self.scorer, self.cached, self.read_ahead = scorer, cached, read_ahead
        self._key = _key or uuid.uuid4().hex
        self._next_words = scorer.next_words()
        self._lock = threading.RLock()
        # Histories that were read together, a row each.
        self._batches: collections.OrderedDict[NextWords, None] = collections.OrderedDict()
        self._kept = 0
        self._waiting: collections.deque[weakref.ref[History]] = collections.deque(maxlen=_WAITING)
        self.counts = [0, 0, 0]
        # Always kept: all searches begin here.
        self._first = self._next_words(scorer.start(1))

    def start(self) -> History:
        """Return a history without words."""
        return History(self._key)

    def score(self, history: History, word: int) -> float:
        """Return the log-probability of a next word, in nats."""
        with self._lock:
            batch, row = self._read_now(history), history._row
            self.counts[0] += 1
            return batch.score(row, word)

    def end(self, history: History) -> float:
        """Return the log-probability of ``</s>``, in nats."""
        return self.score(history, self.scorer.dictionary.eos())

    def extend(self, history: History, word: int) -> Tuple[History, float]:
        """Return the history with one more word, and the word's log-probability."""
        log_prob = self.score(history, word)
        return self.after(history, word, log_prob), log_prob

    def after(self, history: History, word: int, log_prob: float = 0.0) -> History:
        """Return the history with one more word, which is not read yet."""
        new = History(self._key, self.check(history), word, log_prob)
        with self._lock:
            self._waiting.append(weakref.ref(new))
        return new

    def scores(self, history: History, words: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """Return the log-probabilities (n,) of n next words, float64, in nats."""
        with self._lock:
            batch, row = self._read_now(history), history._row
            self.counts[0] += len(words)
            return batch.scores(row, words)

    def read(self, histories: Iterable[History]) -> None:
        """Read histories that were not read yet, in as few batches as their lengths allow."""
        with self._lock:
            self._read(list(map(self.check, histories)))

    def check(self, history: object) -> History:
        """Return ``history``; raise ScoringError if it is not a history of this model."""
        if not isinstance(history, History) or history.owner != self._key:
            got = f"a {type(history).__name__}"
            raise ScoringError("state", "one that this language model gave", got)
        return history

    def __reduce__(self) -> Tuple:
        """Copy and pickle neither the lock nor the states."""
        kept: Dict[str, Any] = {"cached": self.cached, "read_ahead": self.read_ahead}
        return functools.partial(Histories, **kept, _key=self._key), (self.scorer,)

    def _read_now(self, history: History) -> NextWords:
        """Return the batch of a history, read if it was not; mark the batch as used last."""
        batch = self._batch_of(self.check(history))
        if batch is None:
            return self._read_asked(history)
        if batch in self._batches:
            self._batches.move_to_end(batch)
        return batch

    def _batch_of(self, history: History) -> Optional[NextWords]:
        """Return the batch that a history was read in; None if it was not read, or forgotten."""
        return self._first if history.parent is None else history._batch()

    def _read_asked(self, history: History) -> NextWords:
        """Read a history together with waiting ones that the decoder may continue."""
        waiting = self._unread(filter(None, (link() for link in self._waiting)))
        # If the parent was forgotten, all words would be read again.
        waiting = [h for h in waiting if h is history or self._batch_of(h.parent) is not None]
        here = waiting.index(history) if history in waiting else 0
        behind = {h: abs(place - here) * _FAR - h.log_prob for place, h in enumerate(waiting)}
        behind.pop(history, None)
        most = min(self.read_ahead, self.cached // _ROOM)
        self._read([history, *sorted(behind, key=behind.__getitem__)[:most]])
        return history._batch()

    def _read(self, histories: Iterable[History]) -> None:
        """Read histories and their unread parents, one batch a generation, the oldest first."""
        generations: List[List[History]] = []
        held: List[Optional[NextWords]] = []
        wanted = self._unread(histories)
        while wanted:
            generations.append(wanted)
            parents = [history.parent for history in wanted]
            held += map(self._batch_of, parents)  # reading must not evict them
            wanted = self._unread(parents)
        for generation in reversed(generations):
            held.append(self._read_on(generation))

    def _unread(self, histories: Iterable[History]) -> List[History]:
        """Return the histories that were not read, once each, in their order."""
        return [h for h in dict.fromkeys(histories) if self._batch_of(h) is None]

    def _read_on(self, histories: Sequence[History]) -> NextWords:
        """Read one batch of histories whose parents were read, and keep it.

        The batches used longest ago are forgotten if there are too many.
        """
        by_batch: Dict[Any, List[History]] = {}
        for history in histories:
            by_batch.setdefault(self._batch_of(history.parent), []).append(history)
        rows = {batch: [h.parent._row for h in some] for batch, some in by_batch.items()}
        states = [batch.state.select(own) for batch, own in rows.items()]
        together = [history for some in by_batch.values() for history in some]
        words = [history.word for history in together]
        batch = self._next_words(self.scorer.read_on(states[0].concatenate(states), words))
        link = weakref.ref(batch)
        for row, history in enumerate(together):
            history._batch, history._row = link, row
        self._batches[batch] = None
        self._kept += len(together)
        self.counts[1] += len(together)
        self.counts[2] += 1
        while self._kept > self.cached and len(self._batches) > 1:
            oldest, _ = self._batches.popitem(last=False)
            self._kept -= len(oldest.state)
        return batch


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


def check_scorer(scorer: LanguageModel) -> None:
    """Raise ScoringError if unnormalised scores would be compared from context to context."""
    if not scorer.exact and not scorer.is_self_normalised:
        model = "a model that was not trained to normalise itself (its checkpoint has no log Z)"
        raise ScoringError("exact", f"True for {model}", False)


def _nothing() -> None:
    """Return None, as a dead weak reference does, for a history that was not read."""
