"""What a beam search has read so far, and the scores of the words that may come next.

A decoder makes thousands of hypotheses and goes on with a few. So a history is a small thing, a
word and the history before it, and nothing is read until a word is scored after it; then others
that wait are read along, in one batch. What reading gives, a model's context and the features that
score words, is kept for the histories that were used last. Others are read again, should they be
asked for.
"""

from __future__ import annotations

import collections
import threading
import uuid
import weakref
from typing import (
    Any,
    Deque,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    OrderedDict,
    Sequence,
    Tuple,
    Union,
)

import numpy as np

from fairseq_bnce.errors import ScoringError, require
from fairseq_bnce.scoring import Scorer
from fairseq_bnce.scoring.host import HostScores
from fairseq_bnce.scoring.incremental import State

_WAITING = 128  # histories from among which some are read along
_ROOM = 128  # histories kept for each that is read along, and may never be asked for
# Nats, by which a history's last word has to be likelier than another's to make up for each history
# that was made between: a beam goes on with what is as old, and likely.
_FAR = 0.1


class History:
    """The words of a hypothesis; made by :class:`Histories`, and never changed by its users.

    Attributes:
        parent: the history without the last word; None where there is no word.
        word: id of the last one.
        log_prob: of the last word, nats, where it was scored; else 0.
        length: how many words.
        owner: the key of the :class:`Histories` that made it, which copies of these have too.
    """

    __slots__ = ("__weakref__", "_batch", "_row", "length", "log_prob", "owner", "parent", "word")

    def __init__(self, owner: str, parent: Optional[History], word: int, log_prob: float):
        self.owner, self.parent, self.word, self.log_prob = owner, parent, word, log_prob
        self.length: int = 0 if parent is None else parent.length + 1
        self._batch: Any = _nothing
        self._row = 0

    def words(self) -> Tuple[int, ...]:
        """Ids of all words."""
        found: List[int] = []
        history = self
        while history.parent is not None:
            found.append(history.word)
            history = history.parent
        return tuple(reversed(found))

    def __deepcopy__(self, memo: Any) -> History:
        return self

    def __reduce__(self) -> Any:
        """Pickle the words, which are read again where they are scored."""
        words, history = [], self
        while history.parent is not None:
            words.append((history.word, history.log_prob))
            history = history.parent
        return _history, (self.owner, history.word, words[::-1])


def _history(owner: str, start: int, words: Sequence[Tuple[int, float]]) -> History:
    history = History(owner, None, start, 0.0)
    for word, log_prob in words:
        history = History(owner, history, word, log_prob)
    return history


class _Batch:
    """Histories that were read together: a row of each array is one of them's."""

    def __init__(self, scorer: Scorer, raw: HostScores, state: State):
        self.state = state
        self.inputs = raw.inputs(state.features)
        self.normalisers: List[float] = scorer.normalisers(state).tolist()


class Counts(NamedTuple):
    """What was done: words scored, histories read, and the batches that it took."""

    words: int
    contexts: int
    batches: int


class Histories:
    """All histories of one scorer; threads may share it.

    Args:
        scorer: of the model.
        cached: of how many histories, the ones used last, the context is kept, also after an
            utterance has ended. An LSTM's is small, but a transformer's has keys and values of all
            its words: layers x 2 x D numbers a word.
        read_ahead: how many waiting histories are read along with one that is asked for; fewer
            where ``cached`` is small.

    Raises:
        ScoringError: for a model that cannot be used in a decoder.
    """

    def __init__(self, scorer: Scorer, *, cached: int = 2048, read_ahead: int = 15):
        require("cached", "at least 1", cached, cached >= 1)
        require("read_ahead", "at least 0", read_ahead, read_ahead >= 0)
        check_scorer(scorer)
        self.scorer, self.cached, self.read_ahead = scorer, cached, read_ahead
        self._key = uuid.uuid4().hex
        self._raw = scorer.host_scores()
        self._eos = scorer.dictionary.eos()
        self._lock = threading.RLock()
        self._batches: OrderedDict[_Batch, None] = collections.OrderedDict()
        self._kept = 0
        self._waiting: Deque[Any] = collections.deque(maxlen=_WAITING)
        self._counts = [0, 0, 0]
        self._first = _Batch(
            scorer, self._raw, scorer.start(1)
        )  # stays, for all searches begin there

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        return Counts(*self._counts)

    def start(self) -> History:
        """A history without a word."""
        history = History(self._key, None, self._eos, 0.0)
        history._batch = weakref.ref(self._first)
        return history

    def score(self, history: History, word: int) -> float:
        """Log-probability of a word that may come next, nats."""
        with self._lock:
            batch, row = self._batch_of(history), history._row
            self._counts[0] += 1
            return self._raw.score(batch.inputs[row], word) - batch.normalisers[row]

    def end(self, history: History) -> float:
        """Log-probability of ``</s>``, nats."""
        return self.score(history, self._eos)

    def extend(self, history: History, word: int) -> Tuple[History, float]:
        """The history with a word more, which is not read yet, and the word's log-probability."""
        log_prob = self.score(history, word)
        return self.after(history, word, log_prob), log_prob

    def after(self, history: History, word: int, log_prob: float = 0.0) -> History:
        """The history with a word more, which is not read yet."""
        self._raw.check(word)
        new = History(self._key, self.check(history), word, log_prob)
        with self._lock:
            self._waiting.append(weakref.ref(new))
        return new

    def scores(self, history: History, words: Union[Sequence[int], np.ndarray]) -> np.ndarray:
        """(n,) float64 nats, of n words that may come next."""
        with self._lock:
            batch, row = self._batch_of(history), history._row
            self._counts[0] += len(words)
            found = self._raw.scores(batch.inputs[row], words)
            return found.astype(np.float64) - batch.normalisers[row]

    def read(self, histories: Iterable[History]) -> None:
        """Read these in as few batches as their lengths allow; those that were read stay."""
        with self._lock:
            self._read(list(map(self.check, histories)))

    def check(self, history: Any) -> History:
        """``history``, if it is one of these.

        Raises:
            ScoringError: for another.
        """
        if not isinstance(history, History) or history.owner != self._key:
            what = "another model's" if isinstance(history, History) else type(history).__name__
            raise ScoringError(f"state: required one that this language model gave, got {what}")
        return history

    def __reduce__(self) -> Any:
        """Copy and pickle no lock, and nothing of what was read."""
        return _histories, (self.scorer, self.cached, self.read_ahead, self._key)

    def _batch_of(self, history: History) -> _Batch:
        """Reads what was not read yet; what is asked for is kept for longer."""
        batch = self.check(history)._batch()
        if batch is None:
            return self._read_asked(history)
        if batch in self._batches:  # not the first; nor one that another thread still holds
            self._batches.move_to_end(batch)
        return batch

    def _read_asked(self, history: History) -> _Batch:
        """Reads some of those that wait along: the decoder may well go on with them."""
        waiting = self._unread(link() for link in self._waiting)
        # Of one whose parent was forgotten, all words would have to be read again.
        waiting = [h for h in waiting if h is history or _parent(h)._batch() is not None]
        here = waiting.index(history) if history in waiting else 0
        behind = {h: abs(place - here) * _FAR - h.log_prob for place, h in enumerate(waiting)}
        behind.pop(history, None)
        most = min(self.read_ahead, self.cached // _ROOM)
        self._read([history, *sorted(behind, key=behind.__getitem__)[:most]])
        return history._batch()

    def _read(self, histories: Iterable[History]) -> None:
        """One batch for each generation of those that are to be read, the eldest first."""
        generations, held = [], []
        wanted = self._unread(histories)
        while wanted:
            generations.append(wanted)
            parents = list(map(_parent, wanted))
            held += [parent._batch() for parent in parents]  # which reading on must not evict
            wanted = self._unread(parents)
        for generation in reversed(generations):
            held.append(self._read_on(generation))

    def _unread(self, histories: Iterable[Optional[History]]) -> List[History]:
        """Those of them, once each, in this order."""
        found = [history for history in dict.fromkeys(histories) if history is not None]
        for history in found:
            if history.parent is None:  # which another copy of these may have made
                history._batch = weakref.ref(self._first)
        return [history for history in found if history._batch() is None]

    def _read_on(self, histories: Sequence[History]) -> _Batch:
        """One batch, of histories whose parents were read."""
        by_batch: Dict[_Batch, List[History]] = {}
        for history in histories:
            by_batch.setdefault(_parent(history)._batch(), []).append(history)
        states = [
            batch.state.select([_parent(history)._row for history in some])
            for batch, some in by_batch.items()
        ]
        together = [history for some in by_batch.values() for history in some]
        words = [history.word for history in together]
        read = self.scorer.read_on(State.concatenate(states), words)
        return self._keep(_Batch(self.scorer, self._raw, read), together)

    def _keep(self, batch: _Batch, histories: Sequence[History]) -> _Batch:
        """Forgets those that were used longest ago, where there are too many."""
        link = weakref.ref(batch)
        for row, history in enumerate(histories):
            history._batch, history._row = link, row
        self._batches[batch] = None
        self._kept += len(histories)
        self._counts[1] += len(histories)
        self._counts[2] += 1
        while self._kept > self.cached and len(self._batches) > 1:
            oldest, _ = self._batches.popitem(last=False)
            self._kept -= len(oldest.normalisers)
        return batch


def _histories(scorer: Scorer, cached: int, read_ahead: int, key: str) -> Histories:
    copied = Histories(scorer, cached=cached, read_ahead=read_ahead)
    copied._key = key
    return copied


def check_scorer(scorer: Scorer) -> None:
    """Raise ScoringError unless a decoder can use these scores."""
    if not scorer.exact and not scorer.is_self_normalised:
        raise ScoringError(
            "exact: required True for a model that was not trained to normalise itself (its "
            "checkpoint carries no log Z), got False: its unnormalised scores cannot be compared "
            "from context to context"
        )


def _parent(history: History) -> History:
    """Of one that was not read: the first one always is."""
    assert history.parent is not None
    return history.parent


def _nothing() -> None:
    """In the place of a reference to what was not read yet."""
