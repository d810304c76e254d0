"""Append words to a checkpoint's content and to its dictionary."""

from __future__ import annotations

import copy
from typing import Any, Dict, Mapping, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor


def extended_dictionary(dictionary: Dictionary, counts: Mapping[str, int]) -> Dictionary:
    """Return a dictionary with further words at its end, so that no old word's id changes."""
    found = copy.deepcopy(dictionary)
    for word, count in counts.items():
        found.add_symbol(word, max(1, count))
    return found


def append_rows(parameters: Dict[str, Tensor], names: Sequence[str], rows: Tensor) -> None:
    """Append rows to a parameter, in place, under all of its names."""
    old = parameters[names[0]]
    parameters.update(dict.fromkeys(names, torch.cat([old, rows.to(old)])))


def add_to_row(parameters: Dict[str, Tensor], names: Sequence[str], row: int, more: Any) -> None:
    """Add to one row of a parameter, in place, under all of its names."""
    changed = parameters[names[0]].clone()
    changed[row] += more
    parameters.update(dict.fromkeys(names, changed))
