"""From raw scores to log-probabilities: minus log Z_c, or minus log Z and a shift.

log Z is a constant, or is predicted for each context by a reduced partition function.
"""

import logging
import math
from typing import Dict, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring.reduction import ReducedPartition
from fairseq_bnce.state import ScoringState

logger = logging.getLogger(__name__)

Shift = Union[str, float]


class Normalisation(NamedTuple):
    """How the scores of one model are normalised.

    Attributes:
        constant: log Z plus the shift, in nats; None for exact log-probabilities.
        reduced: predicts log Z of each context; the constant is then the shift.
    """

    constant: Optional[float]
    reduced: Optional[ReducedPartition] = None

    def log_probs(self, layer: OutputLayer, features: Tensor, target: Tensor) -> Tensor:
        """Return float32 nats of words (N,), or of K words each (N, K), after features (N, D)."""
        scores = layer.target_scores(features, target)
        normalisers = self.normalisers(layer, features)
        log_probs = scores - (normalisers if target.dim() == 1 else normalisers.unsqueeze(-1))
        # The two sums round differently, which a probability of nearly 1 would show.
        return log_probs.clamp_(max=0) if self.constant is None else log_probs

    def normalisers(self, layer: OutputLayer, features: Tensor) -> Tensor:
        """Return what is subtracted from scores after features (N, D): (N,), float32 nats."""
        if self.constant is None:
            return layer.log_partition(features)
        if self.reduced is not None:
            return self.reduced.log_partition(features) + self.constant
        return features.new_tensor(self.constant, dtype=torch.float32).expand(len(features))


def unnormalised(
    state: ScoringState,
    layer: OutputLayer,
    choice: Optional[Shift] = None,
    name: str = "--log-z-shift",
) -> Tuple[Normalisation, float]:
    """Return the normalisation that needs no softmax, and its shift.

    Args:
        state: the task's, as a checkpoint carries it.
        layer: of the model.
        choice: of the shift: 'checkpoint', 'none' or nats. Without a choice, the shift is 0.
        name: the flag or argument that gave ``choice``, for messages.

    Raises:
        UnsupportedModelError: for an adaptive softmax.
        ScoringError: for another choice, or 'checkpoint' where the checkpoint has no log Z.
    """
    layer.check_trained_here("unnormalised scores")
    nats = 0.0 if choice is None else _shift(choice, state, name)
    reduced: Optional[ReducedPartition] = None
    if state.reduced_partition is not None:
        rows = ReducedPartition(**state.reduced_partition)
        # Copies, because tensors of a checkpoint are mapped from its file.
        copies = (part.to(layer.device, torch.float32, copy=True) for part in rows)
        reduced = ReducedPartition(*copies)
    return Normalisation(state.constant + nats, reduced), nats


def _shift(choice: Shift, state: ScoringState, name: str) -> float:
    """Return the nats that are subtracted from every score besides log Z."""
    known: Dict[Shift, float] = {"checkpoint": state.mu_z or 0.0, "none": 0.0}
    try:
        nats = float(known.get(choice, choice))
    except ValueError:
        nats = math.nan
    if not math.isfinite(nats):
        raise ScoringError(name, "'checkpoint', 'none' or a finite number", repr(choice))
    if choice == "checkpoint" and state.log_z is None and state.mu_z is None:
        required = "a checkpoint of a model that was trained to normalise itself"
        got = "one that carries no log Z: use exact scores (--exact, exact=True, eval-lm without "
        got += "--unnormalized), or fairseq-bnce diagnose --calibrate reduced-partition"
        raise ScoringError(name, required, got)
    if not state.is_self_normalised:
        reason = "this checkpoint is not self-normalised by a criterion of fairseq_bnce"
        logger.warning(f"{reason}: unnormalised scores may be far from exact ones")
    if choice == "checkpoint" and state.mu_z is None:
        lacking = "this checkpoint was saved before any validation: no mu_z, shift 0"
        logger.warning(f"{lacking} (fairseq-bnce diagnose --calibrate measures mu_z on a text)")
    return nats


def finite(scores: np.ndarray) -> np.ndarray:
    """Return ``scores``.

    Raises:
        ScoringError: for NaN or infinite ones. Finite parameters may be too large for their dtype.
    """
    bad = scores[~np.isfinite(scores)]
    if bad.size:
        raise ScoringError("scores", "finite numbers", f"{bad[0]}: the model's numbers overflow")
    return scores
