"""One batch on its way from the decoder to the loss."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.losses import words
from fairseq_bnce.projection.output_layer import OutputLayer

_MOST_NUMBERS = 2**22  # of the rows that are laid out at once for K words a context


@dataclass(frozen=True)
class TokenBatch:
    """The target tokens of a batch, padding dropped.

    Attributes:
        features: (N, D), what goes into the output projection.
        target: (N,) int64.
        time_steps: (N,) int64, the position of each token in its sentence.
        layer: the output projection.
    """

    features: Tensor
    target: Tensor
    time_steps: Tensor
    layer: OutputLayer

    @classmethod
    def from_sample(cls, model: nn.Module, sample: Dict[str, Any], pad: int) -> "TokenBatch":
        """Run the model on ``sample`` up to its output projection.

        Raises:
            UnsupportedModelError: see :class:`OutputLayer`.
            ValueError: if the targets are not one id for each feature.
        """
        layer = OutputLayer(model)
        features = layer.features(model, sample["net_input"])
        target = sample["target"]
        if not torch.is_tensor(target) or target.shape != features.shape[:2]:
            got = tuple(target.shape) if torch.is_tensor(target) else type(target).__name__
            raise ValueError(
                f"target: required shape {tuple(features.shape[:2])}, one word for each feature, "
                f"got {got} (--self-target with --future-target gives several: take one)"
            )
        # The one thing here that the host waits for on a GPU.
        places = target.flatten().ne(pad).nonzero()[:, 0]
        time_steps = places % target.size(1)
        features, target = features.flatten(0, 1), target.flatten()
        if len(places) == target.numel():  # no padding: nothing to copy
            return cls(features, target, time_steps, layer)
        return cls(features.index_select(0, places), target[places], time_steps, layer)

    def __len__(self) -> int:
        return self.target.numel()


class BatchVocabulary:
    """The words that one batch touches: their rows gathered once, and their ids renumbered.

    A loss over this vocabulary (``gathered=True``) equals the one over the whole, since it reads no
    other row; and whatever the projection is made of (tied, weight-normalised), a loss sees a plain
    matrix. A GPU makes the host wait once.

    Args:
        layer: the output projection.
        *ids: tensors of word ids, of any shape.
        draws: (K,) word ids whose repetitions are merged, K >= 1, or None.

    Attributes:
        words: (U,) int64, the distinct words.
        weight, bias: their rows (U, D) and (U,) or None.
        ids: the tensors of the arguments, as indices into ``words``.
        draws: (K',) the distinct draws, as indices into ``words``.
        draw_counts: (K',) int64, how often each of them was drawn.
    """

    def __init__(self, layer: OutputLayer, *ids: Tensor, draws: Optional[Tensor] = None):
        self.ids: List[Tensor]
        if draws is None:
            self.words, self.ids = words.distinct(*ids)
            self.draw_counts = self.words.new_empty(0)
        else:
            self.words, self.ids, self.draw_counts = words.distinct_draws_first(draws, *ids)
        self.draws = torch.arange(len(self.draw_counts), device=self.words.device)
        self.weight, self.bias = layer.rows(self.words)


def target_scores(
    layer: OutputLayer, features: Tensor, target: Tensor, squash: bool = False
) -> Tensor:
    """m(w_i, i) (N,), or (N, K) for K words after each context, whatever the projection is made of.

    No work grows with V, but for words in the tails of an adaptive softmax.
    """
    vocabulary = BatchVocabulary(layer, target)
    ids, rows = vocabulary.ids[0], (vocabulary.weight, vocabulary.bias)
    if target.dim() == 1:
        scores = losses.target_scores(features, ids, *rows, gathered=True)
    else:
        scores = _scores_of_several(features, ids, *rows)
    scores = layer.adjusted(scores, features, target)
    return losses.squashed(scores) if squash else scores


def _scores_of_several(
    features: Tensor, ids: Tensor, weight: Tensor, bias: Optional[Tensor]
) -> Tensor:
    """(N, K), a few contexts at a time, since each needs K rows of D numbers."""
    count = ids.size(1)
    at_once = max(1, _MOST_NUMBERS // max(1, count * features.size(1)))
    parts = [
        losses.target_scores(
            some.repeat_interleave(count, dim=0), some_ids.flatten(), weight, bias, gathered=True
        )
        for some, some_ids in zip(features.split(at_once), ids.split(at_once))
    ]
    return torch.cat(parts).view(ids.shape)
