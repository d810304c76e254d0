"""The distinct words that a loss reads: their ids, and their rows of the output layer."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses.autograd import FirstOrderFunction
from fairseq_bnce.losses.checks import check_int64, check_projection, check_values
from fairseq_bnce.losses.precision import at_least_float32, product_dtype, without_autocast

Number = Union[float, Tensor]


class Words(NamedTuple):
    """Rows of the output layer, one for each distinct word. Ids here are indices of these rows.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
        log_q: (U,) log-probabilities of the noise, or None.
    """

    weight: Tensor
    bias: Optional[Tensor]
    log_q: Optional[Tensor] = None

    @property
    def score_dtype(self) -> torch.dtype:
        """The dtype of scores: float32 or better."""
        return at_least_float32(self.weight)

    def promoted(self, features: Tensor) -> Tuple[Tensor, "Words"]:
        """Features and words in the dtypes that products and scores take.

        Rows are raised before they are repeated, so that the gradients of a word's several uses are
        summed in that precision, and rounded to the weight's own dtype once.
        """
        dtype = product_dtype(features, self.weight)
        bias = None if self.bias is None else self.bias.to(at_least_float32(features, self.weight))
        return features.to(dtype), self._replace(weight=self.weight.to(dtype), bias=bias)

    def expected(self, log_count: Number = 0.0, log_z: Number = 0.0) -> Tensor:
        """log Z + log(K q), (U,) in the dtype of scores."""
        assert self.log_q is not None
        # Summed in float64: log q comes in float32, and scores may be finer than that.
        return (self.log_q.double() + (log_z + log_count)).to(self.score_dtype)

    def rows(self, ids: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight (len(ids), D) and bias of some of the words."""
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        return F.embedding(ids, self.weight), bias

    def select(self, ids: Tensor) -> "Words":
        """Some of the words."""
        return Words(*self.rows(ids), None if self.log_q is None else self.log_q[ids])

    def target_scores(self, features: Tensor, target: Tensor) -> Tensor:
        """m(w_i, i), (N,) of one word after each context."""
        rows = F.embedding(target, self.weight.to(self.score_dtype))
        scores = (rows * features).sum(dim=1)
        return scores if self.bias is None else scores + self.bias.index_select(0, target)

    def rowwise_scores(self, features: Tensor, ids: Tensor) -> Tensor:
        """m(r_ik, i), (N, K) of other words after every context."""
        exact = features.to(self.score_dtype), self.weight.to(self.score_dtype)
        scores = _RowwiseScores.apply(*exact, ids)
        if self.bias is None:
            return scores
        return scores + self.bias.index_select(0, ids.flatten()).view_as(ids)


class _RowwiseScores(FirstOrderFunction):
    """m(r_ik, i) = W_r . h_i, without the N x K rows of D numbers that the scores are made from.

    torch's embedding bag sums a_ik W_r over k. Its derivative by the weights a, times h, gives the
    scores. With the scores' gradients as weights, the bag gives the gradient of h.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(features, weight, ids)
        # The operator itself, because torch.inference_mode() has no autograd.
        count, size = ids.shape
        bags = torch.arange(count, device=ids.device)
        bag_of_each = bags.repeat_interleave(size, output_size=count * size)
        scores = torch.ops.aten._embedding_bag_per_sample_weights_backward(
            features.contiguous(), weight, ids.flatten(), bags * size, bag_of_each, 0
        )
        return scores.view_as(ids)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, Tensor, None]:
        features, weight, ids = ctx.saved_tensors
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            bags = F.embedding_bag(ids, weight, per_sample_weights=grad, mode="sum")
            (weight_grad,) = torch.autograd.grad(bags, weight, features)
        return bags.detach(), weight_grad, None


def gather(
    weight: Tensor,
    bias: Optional[Tensor],
    log_q: Optional[Tensor],
    ids: Dict[str, Tensor],
    noise_counts: Optional[Tensor] = None,
) -> Tuple[Words, List[Tensor]]:
    """The words of ``ids``, whose names are for messages, and ``ids`` as indices into them.

    Raises:
        ValueError: for ids, log_q or counts that no word has.
    """
    used, numbers = distinct(*ids.values())
    check_values(used, ids, weight, log_q, noise_counts)
    words = Words(weight, bias, log_q)
    return (words if len(used) == len(weight) else words.select(used)), numbers


@without_autocast
def target_scores(
    features: Tensor, target: Tensor, weight: Tensor, bias: Optional[Tensor]
) -> Tensor:
    """m(w_i, i), one dot product a token: no work or memory grows with V.

    Args:
        features: (N, D) floating point.
        target: (N,) int64.
        weight: (V, D).
        bias: (V,) or None.

    Returns:
        (N,) raw scores. Minus the constant log Z, they are log-probabilities in nats.

    Raises:
        ValueError: on bad input.
    """
    check_projection(features, weight, bias)
    check_int64("target", target, (features.size(0),))
    words, (target,) = gather(weight, bias, None, {"target": target})
    features, words = words.promoted(features)
    return words.target_scores(features, target)


def distinct(*ids: Tensor) -> Tuple[Tensor, List[Tensor]]:
    """The distinct words (U,) of ``ids`` (any shapes), sorted, and ``ids`` as indices into them."""
    flat = _flat(*ids)
    if not len(flat):
        return flat, list(ids)
    words, index, last = _numbered(flat)
    return words[: int(last) + 1], _shaped(index, *ids)


def distinct_with_draws(draws: Tensor, *ids: Tensor) -> Tuple[Tensor, List[Tensor], Tensor, Tensor]:
    """The distinct words of ``draws`` and ``ids`` together, and those of the draws.

    Args:
        draws: (K,) int64, K >= 1.
        *ids: int64, of any shapes.

    Returns:
        The distinct words (U,), sorted; ``ids`` as indices into them; the distinct draws (K',) as
        indices into them; and how often each of these was drawn (K',).
    """
    words, index, last = _numbered(_flat(draws, *ids))
    of_draws, *indices = _shaped(index, draws, *ids)
    counts = torch.zeros_like(words).index_add_(0, of_draws, torch.ones_like(of_draws))
    drawn = counts.eq(0).byte().argsort(stable=True)
    last_word, drawn_count = torch.stack([last, counts.gt(0).sum()]).tolist()
    drawn = drawn[:drawn_count]
    return words[: last_word + 1], indices, drawn, counts[drawn]


def _numbered(ids: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """The distinct ids, sorted, with anything behind them; each id's index; the last index."""
    ordered, order = ids.sort()
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    word = is_first.cumsum(0) - 1
    words = torch.empty_like(ordered).scatter_(0, word, ordered)
    return words, torch.empty_like(order).scatter_(0, order, word), word[-1]


def _flat(*ids: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in ids])


def _shaped(flat: Tensor, *like: Tensor) -> List[Tensor]:
    parts = flat.split([part.numel() for part in like])
    return [new.view_as(old) for new, old in zip(parts, like)]


def multiplicities(size: int, *ids: Tensor) -> Tensor:
    """How often each of ``size`` words occurs in ``ids``, (size,) float32."""
    flat = _flat(*ids)
    # Not bincount, for which a GPU makes the host wait; ones add up exactly in any order.
    ones = torch.ones_like(flat, dtype=torch.float32)
    return torch.zeros(size, device=flat.device).index_add_(0, flat, ones)


def merge_draws(draws: Tensor, counts: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The distinct ones of ``draws`` (K,) and how often each was drawn, int64.

    Args:
        counts: (K,) int64, how many draws each stands for; by default one each.
    """
    distinct_draws, (index,) = distinct(draws)
    counts = torch.ones_like(draws) if counts is None else counts
    return distinct_draws, torch.zeros_like(distinct_draws).index_add_(0, index, counts)
