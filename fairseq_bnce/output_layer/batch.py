"""One batch: its targets and features, without the padding."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.losses.words import Words, distinct
from fairseq_bnce.output_layer.layer import OutputLayer


@dataclass
class TokenBatch:
    """The target tokens of a batch, padding dropped.

    Attributes:
        target: (N,) int64.
        time_steps: (N,) int64, the position of each token in its sentence.
        layer: the output projection.
        words: what a criterion made of the targets before the model ran, or None.
        features: (N, D), the input of the output projection; None before the model ran.
    """

    target: Tensor
    time_steps: Tensor
    layer: OutputLayer
    words: Any = None
    features: Any = None

    @classmethod
    def from_sample(
        cls,
        model: nn.Module,
        sample: Dict[str, Any],
        pad: int,
        make_words: Optional[Callable[["TokenBatch"], Any]] = None,
    ) -> "TokenBatch":
        """Run the model on ``sample`` up to its output projection.

        Args:
            make_words: makes ``words`` of the batch. It is called before the model runs: a GPU's
                host waits for the sizes of what is made, and waits least with nothing queued.

        Raises:
            UnsupportedModelError: see :class:`OutputLayer`.
            ValueError: if the targets are not one id for each feature.
        """
        layer, target = OutputLayer(model), sample["target"]
        if not torch.is_tensor(target) or target.dim() != 2:
            raise ValueError(
                "target: required shape (batch, time), got several words for each feature "
                "(--self-target with --future-target gives two: take one)"
            )
        places = target.flatten().ne(pad).nonzero()[:, 0]
        is_whole = len(places) == target.numel()  # no padding: nothing to copy
        words = target.flatten() if is_whole else target.flatten()[places]
        batch = cls(words, places % target.size(1), layer)
        if make_words is not None:
            batch.words = make_words(batch)
        features = layer.features(model, sample["net_input"])
        if features.shape[:2] != target.shape:
            wanted = tuple(features.shape[:2])
            raise ValueError(f"target: required shape {wanted}, got {tuple(target.shape)}")
        features = features.flatten(0, 1)
        batch.features = features if is_whole else features.index_select(0, places)
        return batch

    def __len__(self) -> int:
        return self.target.numel()


def target_scores(
    layer: OutputLayer, features: Tensor, target: Tensor, squash: bool = False
) -> Tensor:
    """Score words: m(w_i, i) (N,), or (N, K) for K words after each context.

    No work grows with V, except for words in the tails of an adaptive softmax.
    """
    ids, (index,) = distinct(target)
    features, words = Words(*layer.rows(ids)).promoted(features)
    score = words.target_scores if target.dim() == 1 else words.rowwise_scores
    scores = layer.adjusted(score(features, index), features, target)
    return losses.squashed(scores) if squash else scores
