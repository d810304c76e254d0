"""Score squashing, x -> 10 tanh(x / 5) (Chen et al. 2016)."""

import torch
from torch import Tensor


def squashed(scores: Tensor) -> Tensor:
    """10 tanh(x / 5): scores between -10 and 10, of the same shape.

    Chen et al. 2016, "Strategies for training large vocabulary neural language models", needed
    this for a softmax whose self-normalisation is sampled.
    """
    return 10 * torch.tanh(scores / 5)


def unsquashed(scores: Tensor) -> Tensor:
    """The x of ``squashed(x) = scores``, of the same shape.

    Scores that no x, or only one far out where the slope is all but 0, could have are taken for the
    nearest that is not: 9.9 in absolute value.
    """
    return 5 * torch.atanh((scores / 10).clamp(-0.99, 0.99))


def squashing_slope(scores: Tensor) -> Tensor:
    """The derivative of :func:`squashed`, of the same shape."""
    return 2 * (1 - torch.tanh(scores / 5).square())
