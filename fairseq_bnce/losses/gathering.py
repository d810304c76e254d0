"""From a loss's arguments to the words that it reads, each once."""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_bnce.losses.autograd import FirstOrderFunction
from fairseq_bnce.losses.checks import check_int64, check_projection, check_values
from fairseq_bnce.losses.precision import at_least_float32, product_dtype, without_autocast
from fairseq_bnce.losses.words import distinct


class Gathered(NamedTuple):
    """The words that a loss reads, each once, and the features.

    Attributes:
        features: (N, D).
        weight: (U, D).
        bias: (U,) or None.
        log_q: (U,), as it came, or None.
        ids: what was asked for, as indices into the words; the targets come first.
    """

    features: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    log_q: Optional[Tensor]
    ids: List[Tensor]

    def promoted(self) -> "Gathered":
        """In the dtypes that products and scores take.

        Rows are raised before they are repeated, so that the gradients of a word's several uses are
        summed in that precision, and rounded to the weight's own dtype once.
        """
        dtype = product_dtype(self.features, self.weight)
        bias = None if self.bias is None else self.bias.to(self.score_dtype)
        return self._replace(
            features=self.features.to(dtype), weight=self.weight.to(dtype), bias=bias
        )

    @property
    def score_dtype(self) -> torch.dtype:
        """The dtype of scores: float32 or better."""
        return at_least_float32(self.features, self.weight)

    def expected(self, log_count: Union[float, Tensor] = 0.0, log_z: float = 0.0) -> Tensor:
        """log Z + log(K q) of the words (U,), in the precision of the scores."""
        assert self.log_q is not None, "gathered without log_q"
        # Summed in float64: log q comes in float32, and the scores may be finer than that.
        shifted = self.log_q.double() + (log_z + log_count)
        return shifted.to(self.score_dtype)

    def rows(self, ids: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight (len(ids), D) and bias of some of the words."""
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        return F.embedding(ids, self.weight), bias

    def rowwise_scores(self, ids: Tensor) -> Tensor:
        """(N, K), for ids (N, K): other words in every context."""
        exact = self.features.to(self.score_dtype), self.weight.to(self.score_dtype)
        scores = _RowwiseScores.apply(*exact, ids)
        if self.bias is None:
            return scores
        return scores + self.bias.index_select(0, ids.flatten()).view_as(ids)

    def target_scores(self) -> Tensor:
        """(N,)"""
        rows = F.embedding(self.ids[0], self.weight.to(self.score_dtype))
        scores = (rows * self.features).sum(dim=1)
        return scores if self.bias is None else scores + self.bias.index_select(0, self.ids[0])


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
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    ids: Dict[str, Tensor],
    log_q: Optional[Tensor] = None,
    noise_counts: Optional[Tensor] = None,
    *,
    gathered: bool = False,
) -> Gathered:
    """The words ``ids``, whose names are for messages; see the package for ``gathered``.

    Raises:
        ValueError: for ids, log_q or counts that no word has.
    """
    numbers = list(ids.values())
    if not gathered:
        words, numbers = distinct(*numbers)
        check_values(words, ids, weight, log_q, noise_counts)
        log_q = None if log_q is None else log_q[words]
        # As many words as rows: all of them, in their order.
        if words.numel() != weight.size(0):
            weight = F.embedding(words, weight)
            bias = None if bias is None else bias.index_select(0, words)
    return Gathered(features, weight, bias, log_q, numbers)


@without_autocast
def target_scores(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    gathered: bool = False,
) -> Tensor:
    """m(w_i, i), one dot product a token: no work or memory grows with V.

    Args:
        features: (N, D).
        target: (N,) int64.
        weight, bias: (V, D), (V,) or None.
        gathered: see the package.

    Returns:
        (N,) raw scores, nats once the constant log Z is taken off.

    Raises:
        ValueError: on bad input.
    """
    check_projection(features, weight, bias)
    check_int64("target", target, (features.size(0),))
    ids = {"target": target}
    used = gather(features, weight, bias, ids, gathered=gathered)
    return used.promoted().target_scores()


def extra_draws(target: Tensor, noise_ids: Optional[Tensor]) -> Tensor:
    """``noise_ids`` (K0,), or none."""
    extra = target.new_empty(0) if noise_ids is None else noise_ids
    check_int64("noise_ids", extra, (extra.numel(),))
    return extra


def merged_draws(
    noise: Tensor, noise_counts: Optional[Tensor], like: Tensor, gathered: bool
) -> Tuple[Tensor, Tensor]:
    """The distinct draws and how many of each; as they are where the caller has gathered them."""
    if noise_counts is None:
        noise_counts = torch.ones_like(noise)
    if gathered:
        return noise, noise_counts.to(like.dtype)
    drawn, (index,) = distinct(noise)
    return drawn, like.new_zeros(len(drawn)).index_add_(0, index, noise_counts.to(like.dtype))


def log_draws(noise: Tensor, noise_counts: Optional[Tensor]) -> Any:
    """log K: a number, or a tensor where a GPU's host would have to wait for it."""
    return math.log(len(noise)) if noise_counts is None else noise_counts.sum().double().log()


def multiplicities(like: Tensor, *ids: Tensor) -> Tensor:
    """How often each of the words occurs in ``ids``, one number for each entry of ``like``."""
    flat = torch.cat(ids)
    # Not bincount, for which a GPU makes the host wait; ones add up exactly in any order.
    return torch.zeros_like(like).index_add_(0, flat, torch.ones_like(flat, dtype=like.dtype))


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Summed, or as they are."""
    return values.sum() if reduction == "sum" else values
