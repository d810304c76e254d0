"""The noise distribution q over the vocabulary: its log-probabilities and draws from it."""

import math
from typing import Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

# Never-seen words get half the weight of the rarest seen one, or less where there are so many of
# them that their share of q would pass this: log q has to be finite, and the seen words' q right.
_FLOOR_SHARE = 1e-3


class NoiseDistribution:
    """q(v) proportional to count(v)^power, with a small floor under never-seen words.

    A plain object and not a module, so that ``criterion.half()`` cannot turn a probability of
    1e-8 into 0: log q stays float32 and the cumulative distribution float64.

    Args:
        counts: (V,) non-negative counts, at least one above 0.
        power: 1 gives the unigram distribution, 0.75 a flatter one, 0 the uniform one.

    Attributes:
        log_q: (V,) float32 natural log-probabilities.

    Raises:
        ValueError: naming the argument, what was required and what came.

    Example:
        >>> NoiseDistribution(torch.tensor([3, 1])).log_q.exp()
        tensor([0.7500, 0.2500])
    """

    def __init__(self, counts: Union[Tensor, Sequence[float]], power: float = 1.0):
        counts = torch.as_tensor(counts).to(torch.float64)
        _check_counts(counts)
        if not (math.isfinite(power) and power >= 0):
            raise ValueError(f"power: required a finite number of at least 0, got {power}")
        # Relative to the largest, since count^power alone may leave float64's range.
        log_q = _floored((counts / counts.max()).pow(power), counts == 0).log().log_softmax(dim=0)
        self.log_q = log_q.to(torch.float32)
        self._cumulative = log_q.exp().cumsum(dim=0)

    @classmethod
    def uniform(cls, size: int) -> "NoiseDistribution":
        """The uniform distribution over ``size`` words.

        Raises:
            ValueError: if ``size`` is below 1.
        """
        if size < 1:
            raise ValueError(f"size: required at least 1 word, got {size}")
        return cls(torch.ones(size))

    def __len__(self) -> int:
        return self.log_q.numel()

    def to(self, device: Union[torch.device, str]) -> "NoiseDistribution":
        """Move to ``device`` in place and return self."""
        self.log_q = self.log_q.to(device)
        self._cumulative = self._cumulative.to(device)
        return self

    def sample(
        self, n: Union[int, Tuple[int, ...]], generator: Optional[torch.Generator] = None
    ) -> Tensor:
        """Independent draws with replacement, in O(log V) each (inversion of the cumulative q).

        Args:
            n: how many, or a shape.
            generator: on the distribution's device; the default is torch's own.

        Returns:
            int64 word ids, shape (n,) or ``n``.

        Raises:
            ValueError: if a size is negative.
        """
        shape = (n,) if isinstance(n, int) else tuple(n)
        if min(shape, default=0) < 0:
            raise ValueError(f"n: required sizes of at least 0, got {n}")
        cumulative = self._cumulative
        uniform = torch.rand(
            shape, dtype=torch.float64, device=cumulative.device, generator=generator
        )
        ids = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        return ids.clamp_(max=len(self) - 1)


def _floored(weights: Tensor, unseen: Tensor) -> Tensor:
    unseen = unseen | (weights == 0)  # a high power may leave nothing of a rare word
    how_many = int(unseen.sum())
    if not how_many:
        return weights
    seen = weights[~unseen]
    floor = min(float(seen.min()) / 2, _FLOOR_SHARE * float(seen.sum()) / how_many)
    return weights.masked_fill(unseen, floor)


def _check_counts(counts: Tensor) -> None:
    if counts.dim() != 1 or counts.numel() == 0:
        raise ValueError(f"counts: required shape (V,), V > 0, got shape {tuple(counts.shape)}")
    bad = ~(torch.isfinite(counts) & (counts >= 0))
    if bool(bad.any()):
        word = int(bad.nonzero()[0])
        raise ValueError(
            f"counts: required finite numbers of at least 0, got {counts[word].item()} "
            f"for word {word}"
        )
    if float(counts.sum()) == 0:
        raise ValueError("counts: required at least one above 0, got all zero")
