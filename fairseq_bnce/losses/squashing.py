"""Score squashing, x -> 10 tanh(x / 5) (Chen et al. 2016)."""

import torch
from torch import Tensor

SQUASHED_LIMIT = 10.0  # squashed scores stay below it in absolute value
FITTING = 9.9  # unsquashed() clamps to it, since the slope is almost 0 beyond
SQUASHED_SCALE = 5.0  # scores are divided by it before tanh


def squashed(scores: Tensor) -> Tensor:
    """Compute 10 tanh(x / 5): scores between -10 and 10.

    Args:
        scores: floating point, any shape.

    Returns:
        Numbers of the same shape and dtype; differentiable.

    Reference:
        Chen et al. 2016, "Strategies for training large vocabulary neural language models", who
        needed it for a softmax whose self-normalisation is sampled.

    Example:
        >>> squashed(torch.tensor([-50.0, 0.0, 5.0]))
        tensor([-10.0000,   0.0000,   7.6159])
    """
    return SQUASHED_LIMIT * torch.tanh(scores / SQUASHED_SCALE)


def unsquashed(scores: Tensor) -> Tensor:
    """Compute the x of ``squashed(x) = scores``; scores are clamped to +-9.9.

    Args:
        scores: floating point, any shape.

    Returns:
        Numbers of the same shape and dtype; differentiable.

    Example:
        >>> unsquashed(torch.tensor([7.6159]))
        tensor([5.0000])
    """
    return SQUASHED_SCALE * torch.atanh(scores.clamp(-FITTING, FITTING) / SQUASHED_LIMIT)


def squashing_slope(scores: Tensor) -> Tensor:
    """Compute the derivative of :func:`squashed` where it is ``scores``, of the same shape."""
    return SQUASHED_LIMIT / SQUASHED_SCALE * (1 - (scores / SQUASHED_LIMIT).square())
