"""What torch makes while something is done."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor has that torch makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if torch.is_tensor(made) and function._schema.returns[0].alias_info is None:
            self.numbers = max(self.numbers, made.numel())
        return made
