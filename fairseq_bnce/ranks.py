"""Exchange between the ranks of a training on several processes (torch.distributed)."""

from typing import List, TypeVar

import torch
import torch.distributed
from torch import Tensor

Value = TypeVar("Value")


def count() -> int:
    """Return the number of ranks; 1 in a training of one process."""
    return torch.distributed.get_world_size() if _is_on() else 1


def rank() -> int:
    """Return this process's rank."""
    return torch.distributed.get_rank() if _is_on() else 0


def gather_uneven(*tensors: Tensor) -> List[List[Tensor]]:
    """Return for each tensor those of all ranks (each of its own length, ...), in their order.

    Args:
        *tensors: of one length; they travel padded to the longest rank's. A GPU's host waits once.
    """
    length, found = torch.tensor([len(tensors[0])], device=tensors[0].device), []
    lengths = torch.cat(_gather(length)).tolist()
    for tensor in tensors:
        # At least 1: gloo crashes on nothing at all (torch 1.13).
        padded = tensor.new_zeros((max(1, *lengths), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        found.append([part[:length] for part, length in zip(_gather(padded), lengths)])
    return found


def total(tensor: Tensor) -> Tensor:
    """Return the sum of the ranks' tensors of one shape: the same on all, to the last bit."""
    return torch.stack(_gather(tensor)).sum(dim=0) if count() > 1 else tensor


def from_first(value: Value) -> Value:
    """Return the first rank's value on all ranks."""
    if count() == 1:
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def _gather(tensor: Tensor) -> List[Tensor]:
    received = [torch.empty_like(tensor) for _ in range(count())]
    torch.distributed.all_gather(received, tensor)
    return received


def _is_on() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
