"""Scoring for fairseq-eval-lm: exact in bounded memory, or of the targets alone.

fairseq's SequenceScorer calls ``model(...)``, then ``get_normalized_probs(...)``, and gathers the
targets' entries from the (B, T, V) result. A scoring model returns features from the first and,
from the second, the targets' log-probabilities as an *expanded* view of that shape, whose stride
over V is 0: the gather reads the right numbers, and nothing of size tokens x V exists.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_bnce.projection import squashing
from fairseq_bnce.projection.output_layer import OutputLayer
from fairseq_bnce.scoring.normalisation import Normalisation


class _Scoring:
    """Mixed into a model's own class."""

    normalisation: Normalisation

    def forward(self, *args: Any, **kwargs: Any) -> Tuple:
        layer = OutputLayer(self)
        with layer.bypassed():
            output = super().forward(*args, **kwargs)
        return layer.checked(output)

    def get_normalized_probs(
        self, net_output: Tuple, log_probs: bool, sample: Optional[Dict[str, Any]] = None
    ) -> Tensor:
        """(B, T, V) whose every entry along V is the target's (log-)probability."""
        layer = OutputLayer(self)
        features, target = net_output[0], sample["target"]
        is_word = target.ne(self.decoder.dictionary.pad())
        found = self.normalisation.log_probs(layer, features[is_word], target[is_word])
        scores = features.new_zeros(target.shape, dtype=torch.float32)
        scores[is_word] = found.float()
        scores = scores if log_probs else scores.exp()
        return scores.unsqueeze(-1).expand(-1, -1, len(layer))


def make_exact(model: nn.Module) -> None:
    """Let ``model`` score targets exactly, never holding tokens x V logits.

    Args:
        model: any supported one.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    _mix_in(model, None)


def make_unnormalized(model: nn.Module, log_z_and_shift: float) -> None:
    """Let ``model`` score targets as m(w, c) - log Z - shift, one dot product a token.

    Args:
        model: a self-normalised model.
        log_z_and_shift: nats.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    _mix_in(model, log_z_and_shift)


def is_of_fairseq(model: nn.Module) -> bool:
    """Whether a model and its decoder are fairseq's or this plugin's, of which all is known.

    Those of others may do anything to their scores, whatever the names of their parts.
    """
    classes = type(model), type(getattr(model, "decoder", None))
    return all(c.__module__.split(".")[0] in ("fairseq", "fairseq_bnce") for c in classes)


def _mix_in(model: nn.Module, constant: Optional[float]) -> None:
    OutputLayer(model)  # refuses what can't be scored
    model.normalisation = Normalisation(constant, squashing.is_squashed(model))
    if not isinstance(model, _Scoring):
        own = type(model)
        model.__class__ = type(own.__name__, (_Scoring, own), {"__module__": own.__module__})
