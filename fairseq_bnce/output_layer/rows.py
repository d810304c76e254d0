"""The rows of an output layer: what all kinds share, and the rows of a plain matrix."""

from typing import Any, List, NamedTuple, Optional

from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.losses.words import Words, wide_linear
from fairseq_bnce.optim.row_sparse import gather


class Rows(NamedTuple):
    """A part of the output projection.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
    """

    weight: Tensor
    bias: Optional[Tensor]


class Table(NamedTuple):
    """The stored rows of a layer or a band; a score is inputs . weight, plus the offset if any.

    Attributes:
        first: the id of the first word.
        weight: (n, d).
        columns: the columns of a layer's inputs that score them.
        offset: the column that is added, or None.
    """

    first: int
    weight: Any
    columns: slice
    offset: Optional[int] = None


class Kind:
    """What a kind of output layer does only if it differs from a plain matrix.

    Attributes:
        is_trained_here: whether our criteria train the layer, so that scores need no softmax.
        is_started: whether :meth:`start` has to set parameters.
    """

    is_trained_here, is_started = True, False

    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores start near those of a loaded adaptive softmax, with the first batch.

        All ranks have to call it.

        Args:
            features: (N, D), of the first batch; N may be 0.
            log_z: what is to be added to log-probabilities, nats.
        """

    def shrink_scores(self, decoder: nn.Module) -> None:
        """Have random rows of bands add little to an untrained model's scores."""

    def dropped(self, features: Tensor) -> Tensor:
        """Return the features after the layer's own dropout."""
        return features

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """Adjust scores by :meth:`rows`, (N,) or (N, K), to the layer's own definition."""
        return scores


class Plain(Kind):
    """The rows of a projection whose weight is a parameter, tied, weight-normalised or neither.

    Args:
        holder, name: the module and the attribute of it that is the weight.

    Raises:
        UnsupportedModelError: for a weight under another reparametrisation.
    """

    def __init__(self, holder: nn.Module, name: str = "weight"):
        weight: Any = getattr(holder, name)
        self.bias: Optional[nn.Parameter] = getattr(holder, "bias", None)
        # Under weight_norm, ``weight`` is stale until the module's own forward is called.
        self._gain: Optional[nn.Parameter] = getattr(holder, "weight_g", None)
        if self._gain is not None and self._gain.shape == (len(weight), 1):
            weight = holder.weight_v
        elif not isinstance(weight, nn.Parameter):
            raise UnsupportedModelError(
                f"output layer: required a {name} that is a parameter, or under weight_norm with "
                "dim=0, got what another reparametrisation makes anew in each forward pass; "
                "remove it, or train with --criterion cross_entropy"
            )
        self._weight, self.size = weight, weight.size(1)

    def __len__(self) -> int:
        return len(self._weight)

    def full(self) -> Rows:
        """Return all rows, (V, D) and (V,)."""
        weight = self._weight if self._gain is None else _normalised(self._weight, self._gain)
        return Rows(weight, self.bias)

    def rows(self, ids: Tensor) -> Rows:
        """Return the rows of the distinct words ``ids`` (U,)."""
        weight = gather(self._weight, ids)
        weight = weight if self._gain is None else _normalised(weight, gather(self._gain, ids))
        return Rows(weight, None if self.bias is None else gather(self.bias, ids))

    def word_parameters(self) -> List[nn.Parameter]:
        """Return the parameters that have a row, or a number, for each word."""
        return [p for p in (self._weight, self._gain, self.bias) if p is not None]

    def tables(self) -> List[Table]:
        """Return all words, scored with the features themselves."""
        return [Table(0, self.full().weight, slice(0, self.size))]

    def inputs(self, features: Tensor) -> Tensor:
        """Return the features."""
        return features

    def scores(self, features: Tensor) -> Tensor:
        """Compute m(v, c) (N, V) of all words after features (N, D), in float32 or better."""
        h, words = Words(*self.full()).promoted(features)
        return wide_linear(h, words.weight, words.bias)

    def log_partition(self, features: Tensor, squash: bool) -> Tensor:
        """Compute log Z_c (N,) after features (N, D)."""
        return losses.log_partition(features, *self.full(), squash=squash)

    def predictive_statistics(self, features: Tensor, squash: bool) -> losses.Predictive:
        """Compute statistics of p(. | c) after features (N, D)."""
        return losses.predictive_statistics(features, *self.full(), squash=squash)


def _normalised(v: Tensor, g: Tensor) -> Tensor:
    """Weight normalisation by row, as torch.nn.utils.weight_norm(dim=0) defines it."""
    return v * (g / v.norm(dim=1, keepdim=True))
