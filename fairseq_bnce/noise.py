"""The noise distribution q over the vocabulary: its log-probabilities and draws from it."""

import math
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import require

# log q has to be finite: a never-seen word gets half the weight of the rarest seen word, or less if
# all never-seen words together would get more than this share of q.
_FLOOR_SHARE = 1e-3


class NoiseDistribution:
    """q(v) proportional to count(v)^power, with a small floor under never-seen words.

    A plain object and not a module, so that ``criterion.half()`` cannot turn a probability of
    1e-8 into 0: log q stays float32 and the cumulative distribution float64.

    Args:
        counts: (V,) non-negative counts, at least one above 0.
        power: 1 gives the unigram distribution, 0.75 a flatter one, 0 the same probability for all
            words that were seen.

    Attributes:
        log_q: (V,) float32 natural log-probabilities.

    Raises:
        ValueError: naming the argument, what was required and what came.

    Example:
        >>> NoiseDistribution(torch.tensor([3, 1])).log_q.exp()
        tensor([0.7500, 0.2500])
    """

    def __init__(self, counts: Union[Tensor, Sequence[float]], power: float = 1.0):
        counts = _checked(counts)
        power_fits = math.isfinite(power) and power >= 0
        require("power", "a finite number of at least 0", power, power_fits)
        # Relative to the largest, since count^power alone may leave float64's range.
        log_q = _floored((counts / counts.max()).pow(power), counts == 0).log().log_softmax(dim=0)
        self.log_q = log_q.to(torch.float32)
        self._cumulative = log_q.exp().cumsum(dim=0)

    @classmethod
    def uniform(cls, size: int) -> "NoiseDistribution":
        """Return the uniform distribution over ``size`` words."""
        return cls(torch.ones(size))

    @classmethod
    def log_uniform(cls, counts: Union[Tensor, Sequence[float]]) -> "NoiseDistribution":
        """Return q(v) = log((r + 2) / (r + 1)) / log(V + 1), r the rank of v's count, from 0.

        Never-seen words have the last ranks, in the order of their ids as all words of one count.

        Args:
            counts: (V,) as above.

        Raises:
            ValueError: as above.

        Reference:
            TensorFlow's ``log_uniform_candidate_sampler``, whose ids are the ranks.

        Example:
            >>> NoiseDistribution.log_uniform([1, 7]).log_q.exp()
            tensor([0.3691, 0.6309])
        """
        order = _checked(counts).argsort(descending=True, stable=True)
        ranks = torch.arange(1, len(order) + 1, dtype=torch.float64, device=order.device)
        return cls(torch.empty_like(ranks).scatter_(0, order, ranks.reciprocal().log1p()))

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
        """Draw words independently, with replacement, in O(log V) each (inverted cumulative q).

        Args:
            n: how many, or a shape.
            generator: on the distribution's device; the default is torch's own.

        Returns:
            int64 word ids, shape (n,) or ``n``.
        """
        shape = (n,) if isinstance(n, int) else tuple(n)
        cumulative = self._cumulative
        rand = torch.rand(shape, dtype=torch.float64, device=cumulative.device, generator=generator)
        ids = torch.searchsorted(cumulative, rand * cumulative[-1], right=True)
        return ids.clamp_(max=len(self) - 1)


def _floored(weights: Tensor, unseen: Tensor) -> Tensor:
    unseen = unseen | (weights == 0)  # a high power may make a rare word's weight 0
    count = int(unseen.sum())
    if not count:
        return weights
    seen = weights[~unseen]
    floor = min(float(seen.min()) / 2, _FLOOR_SHARE * float(seen.sum()) / count)
    return weights.masked_fill(unseen, floor)


class NoiseKind(NamedTuple):
    """How a kind of noise is made.

    Attributes:
        make: of counts (V,), or of V if it reads no counts; then of a power if it takes one.
        reads_counts: whether it depends on the training text.
        takes_power: whether counts are raised to a power.
    """

    make: Callable[..., NoiseDistribution]
    reads_counts: bool = True
    takes_power: bool = False


# By the values of --noise.
KINDS: Dict[str, NoiseKind] = {
    "unigram": NoiseKind(NoiseDistribution, takes_power=True),
    "log-uniform": NoiseKind(NoiseDistribution.log_uniform),
    "uniform": NoiseKind(NoiseDistribution.uniform, reads_counts=False),
}


def _checked(given: object) -> Tensor:
    """Return the counts in float64."""
    counts = torch.as_tensor(given, dtype=torch.float64)
    require("counts", "constants", "ones with a gradient", not counts.requires_grad)
    has_words = counts.dim() == 1 and counts.numel() > 0
    require("counts", "shape (V,), V > 0", f"shape {tuple(counts.shape)}", has_words)
    bad = (~(torch.isfinite(counts) & (counts >= 0))).nonzero()
    word = int(bad[0]) if len(bad) else 0
    got = f"{counts[word].item()} for word {word}"
    require("counts", "finite numbers of at least 0", got, not len(bad))
    require("counts", "at least one above 0", "all zero", float(counts.sum()) > 0)
    return counts
