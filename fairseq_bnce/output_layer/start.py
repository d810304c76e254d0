"""Where the scores of a new output layer in bands start."""

from typing import Any

import torch
from fairseq.modules.adaptive_input import AdaptiveInput
from torch import Tensor, nn

from fairseq_bnce import losses, ranks
from fairseq_bnce.output_layer.bands import Adaptive, InBands

_QUIET = 0.1  # random rows are multiplied by it
_MAX_CONTEXTS = 4096  # for the fit of an adaptive softmax's normalisers
_RIDGE = 0.1  # relative to the features' mean variance


class StartingBands(InBands):
    """Bands whose scores can be set.

    Attributes:
        output_bias: (V,).
    """

    output_bias: nn.Parameter

    @torch.no_grad()
    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores begin near those of the adaptive softmax whose parameters were loaded.

        The bias subtracts the head's mean normaliser. Bias and class rows together subtract each
        tail's normaliser, approximated by a linear function of the features. In the fit, a context
        weighs as much as the tail is likely there.

        Args:
            features: (N, D).
            log_z: what is to be added to log-probabilities, nats.
        """
        softmax, some = Adaptive(self), features[:_MAX_CONTEXTS]
        head = softmax.log_partition(some, False)
        of_head = _fitted(some, head, torch.ones_like(head))
        if of_head is None:  # no rank has a context
            return
        self.output_bias[: self.cutoff[0]] = log_z - of_head[2]
        for band, class_row in zip(self._bands()[1:], self._class_rows(is_stored=True)):
            part = softmax._part(band, some)
            share = (part.offset - head).exp()
            of_tail, every = losses.log_partition(*part[:3]), torch.ones_like(share)
            # Shares may all underflow.
            found = _fitted(some, of_tail, share) or _fitted(some, of_tail, every)
            slope, constant, _ = found
            class_row -= slope
            self.output_bias[band.first : band.end] = log_z - of_head[2] - constant
        self.is_started = False

    @torch.no_grad()
    def shrink_scores(self, decoder: nn.Module) -> None:
        """Make random rows small, so that the bias alone sets an untrained model's scores.

        Features of architectures without a last layer normalisation are large: scores of
        transformer_lm_wiki103 would start at a standard deviation of 3 to 7 nats. On PTB (6 layers
        of 128, tied, 300 updates of bnce) perplexity is 344 with random rows, 273 with a tenth of
        them; 339 under adaptive_loss. Where embeddings share the rows, the projection that
        reads them grows instead, unless the output layer shares it.
        """
        bands = self._bands()
        read, shared = {id(band.table) for band in bands}, {id(p) for p in self.tail.parameters()}
        for band in bands:
            band.table.mul_(_QUIET)
        self._class_rows(is_stored=True).zero_()
        words = getattr(decoder, "embed_tokens", None)
        for table, projection in words.embeddings if isinstance(words, AdaptiveInput) else []:
            if id(table.weight) in read and id(projection.weight) not in shared:
                projection.weight.div_(_QUIET)


def _fitted(features: Tensor, values: Tensor, weights: Tensor) -> Any:
    """Fit slope (D,), constant and mean of a linear function of all ranks' features.

    None where all weights are 0. A ridge keeps the slope out of directions without much variance.
    """
    h, w = features.double(), weights.double()
    count = ranks.total(w.sum()[None])[0]
    if not count:
        return None
    centre, mean = ranks.total(w @ h) / count, ranks.total((w @ values.double())[None])[0] / count
    h, deviation = h - centre, (values.double() - mean) * w
    square = ranks.total((h * w[:, None]).t() @ h)
    square.diagonal().add_(_RIDGE * square.diagonal().mean() + 1e-9)
    slope = torch.linalg.solve(square, ranks.total(deviation @ h))
    return slope.to(features), float(mean - slope @ centre), float(mean)
