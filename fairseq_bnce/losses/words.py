"""The distinct words among ids.

torch.unique would make a GPU's host wait several times; each function here waits once.
"""

from typing import List, Tuple

import torch
from torch import Tensor


def distinct(*ids: Tensor) -> Tuple[Tensor, List[Tensor]]:
    """The distinct words (U,) of ``ids`` (any shapes), sorted, and ``ids`` as indices into them."""
    flat = _flat(*ids)
    if not len(flat):
        return flat, list(ids)
    words, index, last = _numbered(flat)
    return words[: int(last) + 1], _shaped(index, *ids)


def distinct_with_draws(draws: Tensor, *ids: Tensor) -> Tuple[Tensor, List[Tensor], Tensor, Tensor]:
    """The distinct words of ``draws`` and ``ids`` together, and those of the draws.

    Args:
        draws: (K,) int64, K >= 1.
        *ids: int64, of any shapes.

    Returns:
        The distinct words (U,), sorted; ``ids`` as indices into them; the distinct draws (K',) as
        indices into them; and how often each of these was drawn (K',).
    """
    words, index, last = _numbered(_flat(draws, *ids))
    of_draws, *indices = _shaped(index, draws, *ids)
    counts = torch.zeros_like(words).index_add_(0, of_draws, torch.ones_like(of_draws))
    drawn = counts.eq(0).byte().argsort(stable=True)
    last_word, drawn_count = torch.stack([last, counts.gt(0).sum()]).tolist()
    drawn = drawn[:drawn_count]
    return words[: last_word + 1], indices, drawn, counts[drawn]


def _numbered(ids: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """The distinct ids, sorted, with anything behind them; each id's index; the last index."""
    ordered, order = ids.sort()
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    word = is_first.cumsum(0) - 1
    words = torch.empty_like(ordered).scatter_(0, word, ordered)
    return words, torch.empty_like(order).scatter_(0, order, word), word[-1]


def _flat(*ids: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in ids])


def _shaped(flat: Tensor, *like: Tensor) -> List[Tensor]:
    parts = flat.split([part.numel() for part in like])
    return [new.view_as(old) for new, old in zip(parts, like)]
