"""What torch makes while something is done."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor has that torch makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        parts = made if isinstance(made, (tuple, list)) else [made]
        for part, returned in zip(parts, function._schema.returns):
            if torch.is_tensor(part) and returned.alias_info is None:
                self.numbers = max(self.numbers, part.numel())
        return made


class Kernels(TorchDispatchMode):
    """Counts operators that compute: about what a GPU's host launches for the same work."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if not (function.is_view or name.startswith(("_record_function", "_unsafe_view"))):
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))
