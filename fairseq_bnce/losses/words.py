"""The distinct words among ids: a GPU makes the host wait once for each of these functions."""

from typing import List, Tuple

import torch
from torch import Tensor


def distinct(*ids: Tensor) -> Tuple[Tensor, List[Tensor]]:
    """The distinct words (U,) of ``ids`` (any shapes), sorted, and ``ids`` as indices into them."""
    words, index = torch.unique(_flat(*ids), return_inverse=True)
    return words, _shaped(index, *ids)


def distinct_draws_first(draws: Tensor, *ids: Tensor) -> Tuple[Tensor, List[Tensor], Tensor]:
    """The same for ``draws`` and ``ids`` together, where the draws' own words are needed, too.

    Args:
        draws: (K,) int64, K >= 1.
        *ids: int64, of any shapes.

    Returns:
        The distinct words (U,), those that were drawn first; ``ids`` as indices into them; and how
        often each of the first words was drawn (K',).
    """
    # By one sort of all: torch.unique would be needed twice, and the host would wait twice. It is
    # stable, so that a word's first entry is a draw if any of its entries is.
    ordered, order = _flat(draws, *ids).sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    is_drawn = is_first & (order < len(draws))
    word, drawn = is_first.cumsum(0) - 1, is_drawn.cumsum(0)
    was_drawn = torch.zeros_like(word).index_add_(0, word, is_drawn.long())[word]
    place = torch.where(was_drawn > 0, drawn - 1, drawn[-1] + word - drawn)
    words = torch.empty_like(ordered).scatter_(0, place, ordered)
    index = torch.empty_like(order).scatter_(0, order, place)
    count, drawn_count = torch.stack([word[-1] + 1, drawn[-1]]).tolist()
    of_draws, *indices = _shaped(index, draws, *ids)
    counts = of_draws.new_zeros(drawn_count).index_add_(0, of_draws, torch.ones_like(of_draws))
    return words[:count], indices, counts


def _flat(*ids: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in ids])


def _shaped(flat: Tensor, *like: Tensor) -> List[Tensor]:
    parts = flat.split([part.numel() for part in like])
    return [new.view_as(old) for new, old in zip(parts, like)]
