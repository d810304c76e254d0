"""Contexts that grow word by word, for decoders of speech and translation.

A decoder holds hypotheses of any lengths in one :class:`State`, takes those it goes on with, in any
order and number, and extends each by a word.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError, describe_error, quoted
from fairseq_bnce.scoring.readers import Reader


class _Group(NamedTuple):
    """Texts that are read on together: their numbers (n,) in the state, and their context.

    The numbers go up, so that those of a state's only group are all of them in order.
    """

    rows: Tensor
    context: Any


class State:
    """The contexts of n hypotheses; nothing changes it, so it may be extended more than once.

    Not made by hand, but by :meth:`Scorer.start` and :meth:`Scorer.extend`.
    """

    def __init__(self, reader: Reader, features: Tensor, groups: Sequence[_Group]):
        self._reader = reader
        self.features = features  # (n, D), what scores the next word
        self._groups = list(groups)

    def __len__(self) -> int:
        return len(self.features)

    def __reduce__(self) -> Any:
        """Copy and pickle the contexts without the model, which the scorer has."""
        return State, (self._reader.without_model(), self.features, self._groups)

    def select(self, indices: Sequence[int]) -> State:
        """The state of these hypotheses: any of them, in any order, as often as wanted.

        Args:
            indices: m numbers from 0 to n - 1, also as an array or a tensor.

        Raises:
            ScoringError: for others.
        """
        chosen = _as_ids("indices", indices, (-1,), len(self), self.features.device)
        return State(
            self._reader,
            self.features.index_select(0, chosen),
            [part for group in self._groups for part in self._selected(group, chosen)],
        )

    @staticmethod
    def concatenate(states: Sequence[State]) -> State:
        """One state of all hypotheses, those of the first state first.

        Raises:
            ScoringError: for no state, or states of several scorers' models.
        """
        states = list(states)
        if not states or any(state._reader.key != states[0]._reader.key for state in states):
            raise ScoringError(
                f"states: required at least one, all of one model, got {len(states)}"
            )
        groups, before = [], 0
        for state in states:
            groups += [_Group(rows + before, context) for rows, context in state._groups]
            before += len(state)
        reader = states[0]._reader
        return State(reader, torch.cat([s.features for s in states]), _merged(reader, groups))

    def _selected(self, group: _Group, chosen: Tensor) -> List[_Group]:
        """The group's part in what is chosen: none, or one."""
        if len(self._groups) == 1 and len(chosen):
            rows = torch.arange(len(chosen), device=chosen.device)
            return [_Group(rows, self._reader.select(group.context, chosen))]
        place = torch.full((len(self),), -1, device=chosen.device)
        place[group.rows] = torch.arange(len(group.rows), device=chosen.device)
        own = place[chosen]
        rows = own.ge(0).nonzero()[:, 0]
        return [_Group(rows, self._reader.select(group.context, own[rows]))] if len(rows) else []

    def _read(self, words: Tensor, shortened: Callable[[Any], Any]) -> State:
        """After one more word (n,) each; a context that is full is ``shortened`` first."""
        if len(self._groups) == 1:
            group = self._groups[0]
            features, context = self._read_group(group, words, shortened)
            return State(self._reader, features, [_Group(group.rows, context)])
        all_features, groups = torch.empty_like(self.features), []
        for group in self._groups:
            features, context = self._read_group(group, words[group.rows], shortened)
            all_features[group.rows] = features
            groups.append(_Group(group.rows, context))
        merged = [_in_order(self._reader, group) for group in _merged(self._reader, groups)]
        return State(self._reader, all_features, merged)

    def _read_group(
        self, group: _Group, words: Tensor, shortened: Callable[[Any], Any]
    ) -> Tuple[Tensor, Any]:
        """Features (n, D) after words (n,), and the context."""
        reader, context = self._reader, group.context
        if reader.longest is not None and reader.length(context) >= reader.longest:
            context = shortened(context)
        features, context = reader.read_on(context, words[:, None])
        return features[:, -1].clone(), context  # what else was read need not be kept


def start(reader: Reader, words: Sequence[int], count: int, device: torch.device) -> State:
    """The state of ``count`` hypotheses that begin with these words, one at least."""
    if not reader.is_causal:
        raise ScoringError(
            "model: required one of past words for incremental scoring, got one with "
            "--bidirectional-context, which reads the words on both sides; score whole sentences"
        )
    if count < 0:
        raise ScoringError(f"n: required at least 0, got {count}")
    if count == 0:  # which attention has no shapes for
        return start(reader, words, 1, device).select([])
    context = reader.start(count, device)
    for word in words:
        tokens = torch.full((count, 1), word, device=device)
        features, context = reader.read_on(context, tokens)
    return State(reader, features[:, -1], [_Group(torch.arange(count).to(device), context)])


def own(state: Any, reader: Reader) -> State:
    """``state``, or a copy that can be read on, if this reader or a copy of it made the state.

    Raises:
        ScoringError: for another model's, whose features would give scores that mix two models.
    """
    if not isinstance(state, State) or state._reader.key != reader.key:
        got = "another model's" if isinstance(state, State) else f"a {type(state).__name__}"
        raise ScoringError(f"state: required a state of this scorer's model, got {got}")
    return state if state._reader is reader else State(reader, state.features, state._groups)


def read_on(state: State, word_ids: Any, below: int, shortened: Callable[[Any], Any]) -> State:
    """After a word each, of ids ``below`` a number; a context that is full is ``shortened``."""
    words = _as_ids("word_ids", word_ids, (len(state),), below, state.features.device)
    return state._read(words, shortened)


def next_words(state: State, word_ids: Any, below: int) -> Tensor:
    """Ids (n,) or (n, K), ``below`` a number, of words that may come next, one or K for each."""
    ids = _as_tensor("word_ids", word_ids)
    shape = (len(state), -1) if ids.dim() == 2 else (len(state),)
    return _as_ids("word_ids", ids, shape, below, state.features.device)


def _merged(reader: Reader, groups: Sequence[_Group]) -> List[_Group]:
    """One group for each length."""
    by_length: Dict[int, List[_Group]] = {}
    for group in groups:
        by_length.setdefault(reader.length(group.context), []).append(group)
    return [_joined(reader, same) for same in by_length.values()]


def _joined(reader: Reader, groups: Sequence[_Group]) -> _Group:
    if len(groups) == 1:
        return groups[0]
    context = reader.concatenate([group.context for group in groups])
    return _Group(torch.cat([group.rows for group in groups]), context)


def _in_order(reader: Reader, group: _Group) -> _Group:
    """Its texts by their numbers."""
    rows, order = group.rows.sort()
    return group if rows.equal(group.rows) else _Group(rows, reader.select(group.context, order))


def _as_ids(
    name: str, values: Any, shape: Tuple[int, ...], below: int, device: Optional[torch.device]
) -> Tensor:
    """int64 of this shape (-1: any size), each from 0 to ``below`` - 1."""
    ids = _as_tensor(name, values).to(device)
    fits = ids.dim() == len(shape) and all(w in (-1, g) for w, g in zip(shape, ids.shape))
    if not fits or ids.dtype != torch.int64:
        wanted = ", ".join("any" if size < 0 else str(size) for size in shape)
        raise ScoringError(
            f"{name}: required integers of shape ({wanted}), got {ids.dtype} of shape "
            f"{tuple(ids.shape)}"
        )
    least, most = map(int, ids.aminmax()) if ids.numel() else (0, -1)
    if least < 0 or most >= below:
        raise ScoringError(f"{name}: required numbers from 0 to {below - 1}, got {least} to {most}")
    return ids


def _as_tensor(name: str, values: Any) -> Tensor:
    """int64 where these are integers, or nothing; else of another dtype."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "u":  # which torch hardly knows
        values = values.astype(np.int64)
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:  # other things; rows of several lengths
        required = f"{name}: required integers of shape (n) or (n, K)"
        raise ScoringError(f"{required}, got {quoted(values)} ({describe_error(error)})") from None
    is_whole = not (found.is_floating_point() or found.dtype == torch.bool)
    return found.long() if is_whole or not found.numel() else found
