"""Counts what would make the host wait for a GPU, on any machine."""

from typing import Any, List

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Operators whose result's size depends on the data, or whose result the host itself reads.
OPERATORS = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select"}
OPERATORS |= {"_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
OPERATORS |= {"bincount", "masked_scatter", "masked_scatter_", "argwhere", "_coalesce", "coalesce"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Methods that read a tensor without an operator, where it is on the CPU already.
METHODS = {"tolist", "numpy", "cpu", "__array__"}


class _Operators(TorchDispatchMode):
    def __init__(self, found: List[str]):
        super().__init__()
        self.found = found
        self.seeds: List[Any] = []  # from the CPU's own generator: nothing to wait for

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if self._waits(name, args, kwargs or {}):
            self.found.append(name)
        result = func(*args, **(kwargs or {}))
        if name == "randint" or self._is_seed(args):
            self.seeds.append(result)
        return result

    def _waits(self, name: str, args: Any, kwargs: Any) -> bool:
        if name in INDEXING:
            return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        if name == "repeat_interleave":
            return kwargs.get("output_size") is None
        return name in OPERATORS and not self._is_seed(args)

    def _is_seed(self, args: Any) -> bool:
        return any(args[0] is seed for seed in self.seeds) if args else False


class _Methods(TorchFunctionMode):
    def __init__(self, found: List[str]):
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in METHODS:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Synchronising:
    """A context; afterwards ``found`` holds the names of what would have made the host wait."""

    def __init__(self):
        self.found: List[str] = []
        self._modes = _Operators(self.found), _Methods(self.found)

    def __enter__(self) -> "Synchronising":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
