"""Score squashing, x -> 10 tanh(x / 5) (Chen et al. 2016)."""

import torch
from torch import Tensor

SQUASHED_LIMIT = 10.0  # squashed scores stay below it in absolute value
FITTING = 9.9  # no x is given for more than this, since the slope is all but 0 there
SQUASHED_SCALE = 5.0  # of the scores that are squashed


def squashed(scores: Tensor) -> Tensor:
    """10 tanh(x / 5): scores between -10 and 10, of the same shape.

    Chen et al. 2016, "Strategies for training large vocabulary neural language models", needed
    this for a softmax whose self-normalisation is sampled.
    """
    return SQUASHED_LIMIT * torch.tanh(scores / SQUASHED_SCALE)


def unsquashed(scores: Tensor) -> Tensor:
    """The x of ``squashed(x) = scores``, of the same shape.

    Scores beyond ``FITTING`` in absolute value are taken for that.
    """
    return SQUASHED_SCALE * torch.atanh(scores.clamp(-FITTING, FITTING) / SQUASHED_LIMIT)


def squashing_slope(scores: Tensor) -> Tensor:
    """The derivative of :func:`squashed`, of the same shape."""
    return SQUASHED_LIMIT / SQUASHED_SCALE * (1 - torch.tanh(scores / SQUASHED_SCALE).square())
