"""The distinct words among ids: a GPU makes the host wait once for each of these functions."""

from typing import List, Tuple

import torch
from torch import Tensor


def distinct(*ids: Tensor) -> Tuple[Tensor, List[Tensor]]:
    """The distinct words (U,) of ``ids`` (any shapes), sorted, and ``ids`` as indices into them."""
    words, index = torch.unique(_flat(*ids), return_inverse=True)
    return words, _shaped(index, *ids)


def distinct_with_draws(draws: Tensor, *ids: Tensor) -> Tuple[Tensor, List[Tensor], Tensor, Tensor]:
    """The distinct words of ``draws`` and ``ids`` together, and those of the draws.

    Args:
        draws: (K,) int64, K >= 1.
        *ids: int64, of any shapes.

    Returns:
        The distinct words (U,), sorted; ``ids`` as indices into them; the distinct draws (K',) as
        indices into them; and how often each of these was drawn (K',).
    """
    # One sort of all: torch.unique would be needed twice, and the host would wait twice.
    ordered, order = _flat(draws, *ids).sort()
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    word = is_first.cumsum(0) - 1
    words = torch.empty_like(ordered).scatter_(0, word, ordered)
    index = torch.empty_like(order).scatter_(0, order, word)
    of_draws, *indices = _shaped(index, draws, *ids)
    counts = torch.zeros_like(ordered).index_add_(0, of_draws, torch.ones_like(of_draws))
    drawn = counts.eq(0).byte().argsort(stable=True)
    count, drawn_count = torch.stack([word[-1] + 1, counts.gt(0).sum()]).tolist()
    drawn = drawn[:drawn_count]
    return words[:count], indices, drawn, counts[drawn]


def _flat(*ids: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in ids])


def _shaped(flat: Tensor, *like: Tensor) -> List[Tensor]:
    parts = flat.split([part.numel() for part in like])
    return [new.view_as(old) for new, old in zip(parts, like)]
