"""One batch on its way from the decoder to the loss."""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.losses import words
from fairseq_bnce.output_layer.layer import OutputLayer

_MOST_NUMBERS = 2**22  # of the rows that are laid out at once for K words a context


@dataclass
class TokenBatch:
    """The target tokens of a batch, padding dropped.

    Attributes:
        target: (N,) int64.
        time_steps: (N,) int64, the position of each token in its sentence.
        layer: the output projection.
        words: what a criterion has made of the targets before the model ran, or None.
        features: (N, D), what goes into the output projection.
    """

    target: Tensor
    time_steps: Tensor
    layer: OutputLayer
    words: Any = None
    features: Tensor = field(default_factory=lambda: torch.empty(0))

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
            got = tuple(target.shape) if torch.is_tensor(target) else type(target).__name__
            raise ValueError(
                f"target: required shape (batch, time), one word for each feature, got {got} "
                "(--self-target with --future-target gives several: take one)"
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


class BatchVocabulary:
    """The distinct words of one batch, whose rows alone a loss needs, and the ids renumbered.

    A loss over these words (``gathered=True``) equals the one over the whole vocabulary, since it
    reads no other row. A GPU makes the host wait once.

    Args:
        *ids: tensors of word ids, of any shape.
        draws: (K,) word ids whose repetitions are merged, K >= 1, or None.

    Attributes:
        words: (U,) int64, the distinct words in ascending order.
        ids: the tensors of the arguments, as indices into ``words``.
        draws: (K',) the distinct draws, as indices into ``words``.
        draw_counts: (K',) int64, how often each of them was drawn.
    """

    def __init__(self, *ids: Tensor, draws: Optional[Tensor] = None):
        self.ids: List[Tensor]
        if draws is None:
            self.words, self.ids = words.distinct(*ids)
            self.draws = self.draw_counts = self.words.new_empty(0)
        else:
            self.words, self.ids, self.draws, self.draw_counts = words.distinct_with_draws(
                draws, *ids
            )


def target_scores(
    layer: OutputLayer, features: Tensor, target: Tensor, squash: bool = False
) -> Tensor:
    """m(w_i, i) (N,), or (N, K) for K words after each context, whatever the projection is made of.

    No work grows with V.
    """
    vocabulary = BatchVocabulary(target)
    ids, rows = vocabulary.ids[0], layer.rows(vocabulary.words)
    if target.dim() == 1:
        scores = losses.target_scores(features, ids, *rows, gathered=True)
    else:
        scores = _scores_of_several(features, ids, *rows)
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
