"""Contexts that grow word by word, for decoders of speech and translation.

A decoder keeps hypotheses of any lengths in one :class:`State`, selects those that it continues,
in any order and number, and extends each by a word.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring.readers import Context, Reader

Ids = Union[Sequence[int], np.ndarray, Tensor]


class _Group(NamedTuple):
    """Hypotheses that are read on together.

    Attributes:
        rows: (n,) their numbers in the state.
        length: equal for all of them, see :meth:`Reader.length`.
        context: of n texts.
    """

    rows: Tensor
    length: int
    context: Context


class State:
    """The contexts of n hypotheses. Nothing changes a state, so it may be extended repeatedly.

    States come from :meth:`Scorer.start` and :meth:`Scorer.extend`.
    """

    def __init__(self, key: object, features: Tensor, groups: Sequence[_Group]):
        self.key = key  # identifies the model
        self.features = features  # (n, D), which score the next words
        self._groups = groups

    def __len__(self) -> int:
        return len(self.features)

    def select(self, indices: Ids) -> State:
        """Return the state of some hypotheses, in any order; one may be chosen several times.

        Args:
            indices: numbers from 0 to n - 1; a sequence, an array or a tensor.

        Raises:
            ScoringError: for other numbers.
        """
        chosen = as_ids("indices", indices, None, len(self), self.features.device)
        features = self.features.index_select(0, chosen)
        if len(self._groups) == 1 and len(chosen):  # all hypotheses, in their order
            ((_, length, context),) = self._groups
            rows = torch.arange(len(chosen), device=chosen.device)
            return State(self.key, features, [_Group(rows, length, _chosen(context, chosen))])
        groups = []
        for rows, length, context in self._groups:
            place = chosen.new_full((len(self),), -1)
            place[rows] = torch.arange(len(rows), device=chosen.device)
            own = place[chosen]
            new_rows = own.ge(0).nonzero()[:, 0]
            if len(new_rows):
                groups.append(_Group(new_rows, length, _chosen(context, own[new_rows])))
        return State(self.key, features, groups)

    @staticmethod
    def concatenate(states: Sequence[State]) -> State:
        """Return one state of all hypotheses, those of the first state first.

        Raises:
            ScoringError: for no state, or states of different models.
        """
        if len({state.key for state in states}) != 1:
            raise ScoringError("states", "some, all of one model", len(states))
        groups, before = [], 0
        for state in states:
            groups += [group._replace(rows=group.rows + before) for group in state._groups]
            before += len(state)
        return State(states[0].key, torch.cat([s.features for s in states]), _merged(groups))


def start(reader: Reader, count: int) -> State:
    """Return the state of ``count`` hypotheses without words."""
    if count == 0:  # attention has no shapes for it
        return start(reader, 1).select([])
    context, device = reader.start(count), reader.layer.device
    for word in reader.first.tolist():
        tokens = torch.full((count, 1), word, device=device)
        features, context = reader.read_on(context, tokens)
    group = _Group(torch.arange(count, device=device), reader.length(context), context)
    return State(reader.key, features[:, -1], [group])


def of_words(key: object, words: Tensor) -> State:
    """Return a state that is made of words (n, L) alone, which are its features."""
    return State(key, words, [_Group(torch.arange(len(words)), 0, ())])


def read_on(state: State, reader: Reader, words: Tensor) -> State:
    """Return the state after one more word (n,) each; a full context is shortened first."""
    features, groups = [state.features[:0]], []
    is_single = len(state._groups) == 1
    for rows, length, context in state._groups:
        if length >= reader.longest:
            context = reader.shortened(context)
        own = words if is_single else words[rows]
        found, context = reader.read_on(context, own[:, None])
        features.append(found[:, -1])
        groups.append(_Group(rows, reader.length(context), context))
    if is_single:
        return State(state.key, features[-1].clone(), groups)
    order = torch.cat([words[:0], *(group.rows for group in groups)]).argsort()
    return State(state.key, torch.cat(features)[order], _merged(groups))


def as_ids(
    name: str, values: Ids, count: Optional[int], below: int, device: Any = "cpu", dims: int = 1
) -> Tensor:
    """Return integers from 0 to ``below`` - 1 as int64 (n,), or (n, K) if ``dims`` is 2.

    Args:
        name: the argument, for messages.
        values: a sequence, an array or a tensor.
        count: n; None for any number.
        below, device, dims: see above.

    Raises:
        ScoringError: for other values.
    """
    array = np.asarray(values.cpu() if torch.is_tensor(values) else values)
    is_whole = array.dtype.kind in "iu" or not array.size
    is_shaped = 1 <= array.ndim <= dims and count in (None, len(array))
    ids = array.astype(np.int64) if is_whole else array
    if not is_whole or not is_shaped or ((ids < 0) | (ids >= below)).any():
        n = "any number of" if count is None else f"{count} or {count} x K" if dims > 1 else count
        required = f"{n} integers from 0 to {below - 1}"
        raise ScoringError(name, required, f"{array.dtype} {array.shape}")
    return torch.from_numpy(ids).to(device)


def check_id(word: int, below: int) -> None:
    """Raise ScoringError for an id that no word has: numpy would read -1 as the last word."""
    if not 0 <= word < below:
        raise ScoringError("word", f"an id from 0 to {below - 1}", word)


def _merged(groups: Sequence[_Group]) -> List[_Group]:
    """Return one group of each length."""
    by_length: Dict[int, List[_Group]] = {}
    for group in groups:
        by_length.setdefault(group.length, []).append(group)
    return [same[0] if len(same) == 1 else _joined(*same) for same in by_length.values()]


def _joined(*groups: _Group) -> _Group:
    """Return one group, its hypotheses in their order."""
    unsorted, lengths, contexts = zip(*groups)
    rows, order = torch.cat(unsorted).sort()
    context = _map(lambda *parts: torch.cat(parts).index_select(0, order), *contexts)
    return _Group(rows, lengths[0], context)


def _chosen(context: Context, rows: Tensor) -> Context:
    return _map(lambda part: part.index_select(0, rows), context)


def _map(function: Callable[..., Tensor], *contexts: Context) -> Context:
    """Return a context of ``function`` of the tensors at the same place of each context."""
    first = contexts[0]
    if isinstance(first, dict):
        return {key: _map(function, *(one[key] for one in contexts)) for key in first}
    if isinstance(first, tuple):
        return tuple(_map(function, *parts) for parts in zip(*contexts))
    return None if first is None else function(*contexts)
