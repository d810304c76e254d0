"""What all kinds of output layers share."""

from typing import Any, NamedTuple, Optional, Tuple

from torch import Tensor, nn

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
        dropout_module: the layer's own dropout of features.
        input_dim, vocab_size: D and V, by the names of an adaptive softmax.
    """

    is_trained_here, is_started = True, False
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

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """Adjust scores by :meth:`rows`, (N,) or (N, K), to the layer's own definition."""
        return scores
