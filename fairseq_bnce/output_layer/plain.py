"""The plain output layer: one matrix (V, D), and a bias or none."""

from typing import Any, List, NamedTuple, Optional

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.optim.row_sparse import gather

_DIRECTION, _GAIN = "weight_v", "weight_g"  # what torch.nn.utils.weight_norm makes of a weight


class Rows(NamedTuple):
    """A part of the output projection.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
    """

    weight: Tensor
    bias: Optional[Tensor]


class Table(NamedTuple):
    """Words whose scores are inputs . weight, and maybe an offset: all of a layer, or a band.

    Attributes:
        first: the id of the first of them.
        weight: (n, d).
        columns: which of a layer's inputs they are scored with.
        offset: which of them is added, or None.
    """

    first: int
    weight: Any
    columns: slice
    offset: Optional[int] = None


class Plain:
    """The rows of a projection whose weight is a parameter, tied, weight-normalised or neither.

    Args:
        holder, name: the module and the attribute of it that is the weight.
        slot: the decoder's attribute for the projection, named in the message.

    Raises:
        UnsupportedModelError: for a weight under another reparametrisation.
    """

    def __init__(self, holder: nn.Module, name: str, slot: str):
        self._holder, self._name = holder, name
        gain: Any = getattr(holder, _GAIN, None)
        if gain is not None and gain.shape == (len(getattr(holder, name)), 1):
            self._name = _DIRECTION
        elif not isinstance(getattr(holder, name), nn.Parameter):
            raise UnsupportedModelError(
                f"{slot}.{name}: required a parameter, or one under weight_norm with dim=0, got "
                "what another reparametrisation makes anew in each forward pass; remove it, or "
                "train with --criterion cross_entropy"
            )

    def __len__(self) -> int:
        return self._stored_weight.size(0)

    @property
    def size(self) -> int:
        """D."""
        return self._stored_weight.size(1)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self._stored_weight.device

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """The (V,) bias parameter, or None."""
        return getattr(self._holder, "bias", None)

    def full(self) -> Rows:
        """All rows, (V, D) and (V,)."""
        weight, gain = self._stored_weight, self._gain
        return Rows(weight if gain is None else _normalise(weight, gain), self.bias)

    def rows(self, ids: Tensor) -> Rows:
        """The rows of the distinct words ``ids`` (U,)."""
        weight, gain, bias = gather(self._stored_weight, ids), self._gain, self.bias
        weight = weight if gain is None else _normalise(weight, gather(gain, ids))
        return Rows(weight, None if bias is None else gather(bias, ids))

    def word_parameters(self) -> List[nn.Parameter]:
        """The parameters that have a row, or a number, for each word."""
        held = (self._stored_weight, self._gain, self.bias)
        return [parameter for parameter in held if parameter is not None]

    def tables(self) -> List[Table]:
        """All words, scored with the features themselves."""
        return [Table(0, self.full().weight, slice(0, self.size))]

    def inputs(self, features: Tensor) -> Tensor:
        """The features."""
        return features

    def log_partition(self, features: Tensor, squash: bool) -> Tensor:
        """log Z_c (N,) after features (N, D)."""
        return losses.log_partition(features, *self.full(), squash=squash)

    def predictive_statistics(self, features: Tensor, squash: bool) -> losses.Predictive:
        """Of p(. | c) after features (N, D)."""
        return losses.predictive_statistics(features, *self.full(), squash=squash)

    @property
    def _gain(self) -> Optional[nn.Parameter]:
        """Under weight_norm, whose ``weight`` is stale until the module's own forward is called."""
        return getattr(self._holder, _GAIN) if self._name == _DIRECTION else None

    @property
    def _stored_weight(self) -> nn.Parameter:
        return getattr(self._holder, self._name)


def _normalise(v: Tensor, g: Tensor) -> Tensor:
    """Weight normalisation by row, as torch.nn.utils.weight_norm(dim=0) defines it."""
    return v * (g / v.norm(dim=1, keepdim=True))
