"""What all kinds of output layers share."""

from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_bnce import losses, ranks

_RIDGE = 0.1  # relative to the features' mean variance
Matrix = Tuple[Tensor, Optional[Tensor]]  # weight (V, D), and bias (V,) or None


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
        is_squashed: whether scores and probabilities are those of :func:`losses.squashed`.
        dropout_module: the layer's own dropout of features.
        input_dim, vocab_size: D and V, by the names of an adaptive softmax.
    """

    is_trained_here, is_started, is_squashed = True, False, False
    dropout_module: nn.Module
    input_dim: int
    vocab_size: int

    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores start near those of a loaded adaptive softmax, with the first batch.

        All ranks have to call it.

        Args:
            features: (N, D), of the first batch; N may be 0.
            log_z: what is to be added to log-probabilities, nats.
        """

    def shrink_scores(self, decoder: nn.Module) -> None:
        """Have random rows of bands add little to an untrained model's scores."""

    def squashed(self, scores: Tensor) -> Tensor:
        """Return a model's own scores from those of its projection."""
        return losses.squashed(scores) if self.is_squashed else scores

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """Adjust scores by :meth:`rows`, (N,) or (N, K), to the layer's own definition."""
        return scores


def fitted(features: Tensor, values: Tensor, weights: Optional[Tensor] = None) -> Any:
    """Fit slope (D,), constant and mean of a linear function of all ranks' features.

    None where all weights are 0. A ridge keeps the slope out of directions without much variance.
    """
    h, w = features.double(), torch.ones_like(values).double()
    w = w if weights is None else weights.double()
    count = ranks.total(w.sum()[None])[0]
    if not count:
        return None
    centre, mean = ranks.total(w @ h) / count, ranks.total((w @ values.double())[None])[0] / count
    h, deviation = h - centre, (values.double() - mean) * w
    square = ranks.total((h * w[:, None]).t() @ h)
    square.diagonal().add_(_RIDGE * square.diagonal().mean() + 1e-9)
    slope = torch.linalg.solve(square, ranks.total(deviation @ h))
    return slope.to(features), float(mean - slope @ centre), float(mean)
