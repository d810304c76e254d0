"""One batch on its way from the decoder to the loss."""

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.output_layer import OutputLayer


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
        is_word = target.ne(pad)
        time_steps = is_word.nonzero()[:, 1]
        if len(time_steps) == target.numel():  # no padding: nothing to copy
            return cls(features.flatten(0, 1), target.flatten(), time_steps, layer)
        return cls(features[is_word], target[is_word], time_steps, layer)

    def __len__(self) -> int:
        return self.target.numel()

    def subset(self, tokens: Tensor) -> Tuple[Tensor, Tensor]:
        """(features, target) of the tokens with these indices."""
        return self.features.index_select(0, tokens), self.target.index_select(0, tokens)


class BatchVocabulary:
    """The words that one batch touches: their rows gathered once, and their ids renumbered.

    A loss over this vocabulary equals the one over the whole, since it reads no other row; and
    whatever the projection is made of (tied, weight-normalised), a loss sees a plain matrix.

    Args:
        layer: the output projection.
        *ids: tensors of word ids, of any shape.

    Attributes:
        words: (U,) int64, the distinct words, sorted.
        weight, bias: their rows (U, D) and (U,) or None.
        ids: the tensors of the arguments, as indices into ``words``.
    """

    def __init__(self, layer: OutputLayer, *ids: Tensor):
        flat = torch.cat([part.reshape(-1) for part in ids])
        self.words, inverse = torch.unique(flat, return_inverse=True)
        self.weight, self.bias = layer.rows(self.words)
        parts = inverse.split([part.numel() for part in ids])
        self.ids: List[Tensor] = [new.view_as(old) for new, old in zip(parts, ids)]


def target_scores(
    layer: OutputLayer, features: Tensor, target: Tensor, squash: bool = False
) -> Tensor:
    """m(w_i, i) (N,), with no work that grows with V, whatever the projection is made of."""
    vocabulary = BatchVocabulary(layer, target)
    rows = (vocabulary.weight, vocabulary.bias)
    scores = losses.target_scores(features, vocabulary.ids[0], *rows)
    return losses.squashed(scores) if squash else scores
