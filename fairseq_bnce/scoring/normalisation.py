"""From raw scores to log-probabilities: by the softmax, or less log Z and a shift.

log Z is a constant, or what a reduced partition function says of the context.
"""

from __future__ import annotations

import logging
import math
from typing import Any, Mapping, NamedTuple, Optional, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.output_layer.batch import target_scores
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring import reduction
from fairseq_bnce.scoring.reduction import ReducedPartition
from fairseq_bnce.text.numerals import decimal

logger = logging.getLogger(__name__)

Shift = Union[str, float]


class Normalisation(NamedTuple):
    """How the scores of one model are normalised.

    Attributes:
        constant: log Z and the shift together, nats; None for exact log-probabilities.
        squash: whether scores are those of :func:`losses.squashed`.
        reduced: gives log Z of each context in the place of a constant one.
    """

    constant: Any
    squash: bool = False
    reduced: Optional[ReducedPartition] = None

    def log_probs(self, layer: OutputLayer, features: Tensor, target: Tensor) -> Tensor:
        """float32 nats of words (N,), or of K each (N, K), after features (N, D)."""
        scores = target_scores(layer, features, target, self.squash)
        normalisers = self.normalisers(layer, features)
        log_probs = scores - (normalisers if target.dim() == 1 else normalisers.unsqueeze(-1))
        # Each is a sum in another order, whose rounding a probability of nearly 1 would show.
        return log_probs.clamp_(max=0) if self.constant is None else log_probs

    def normalisers(self, layer: OutputLayer, features: Tensor) -> Tensor:
        """What scores after features (N, D) are lessened by: (N,) or (), float32 nats."""
        if self.constant is None:
            return layer.log_partition(features, squash=self.squash)
        if self.reduced is not None:
            return self.reduced.log_partition(features) + self.constant
        return features.new_tensor(self.constant, dtype=torch.float32)


def unnormalised(
    state: Mapping[str, Any], shift: float, layer: OutputLayer, squash: bool
) -> Normalisation:
    """Without a softmax: less the log Z that a task's state carries, and a shift in nats.

    Raises:
        CheckpointError: for a reduced partition function of another model.
        UnsupportedModelError: for an adaptive softmax.
    """
    layer.check_trained_here("unnormalised scores")
    return Normalisation(constant_log_z(state) + shift, squash, reduction.carried(state, layer))


def constant_log_z(state: Mapping[str, Any]) -> float:
    """log Z in nats; 0 where a task's state has none, or a reduced partition function for it."""
    return 0.0 if reduction.is_carried(state) else float(state.get("log_z", 0.0))


def is_self_normalised(state: Mapping[str, Any]) -> bool:
    """Whether scores need no softmax, by what a task's state carries."""
    return "log_z" in state or reduction.is_carried(state)


def check_shift(choice: Shift, name: str = "--log-z-shift") -> None:
    """Raise ScoringError unless the flag or argument ``name`` may have this value."""
    if choice not in ("checkpoint", "none") and not math.isfinite(_number(choice)):
        raise ScoringError(
            f"{name}: required 'checkpoint', 'none' or a finite number, got {choice!r}"
        )


def shift(
    choice: Shift, state: Mapping[str, Any], exactly: str, name: str = "--log-z-shift"
) -> float:
    """Nats taken off every score besides log Z.

    Args:
        choice: 'checkpoint', 'none' or nats.
        state: of the task, as a checkpoint carries it.
        exactly: how to ask for exact scores instead, for the message.
        name: the flag or argument that gave ``choice``, for the message.

    Raises:
        ScoringError: for another value, or a checkpoint that does not know its own shift.
    """
    check_shift(choice, name)
    if choice == "checkpoint" and not {"log_z", "mu_z"} & set(state):
        raise ScoringError(
            f"{name}: required a number (the mean of log Z_c, nats) or 'none', or "
            f"{exactly} instead, for a checkpoint that carries no log Z: it was not trained "
            "to normalise itself; fairseq-bnce diagnose --calibrate reduced-partition fits a "
            "reduced partition function and writes it into a checkpoint"
        )
    if not is_self_normalised(state):
        logger.warning(
            "this checkpoint is not self-normalised: it was not trained with a criterion of "
            "fairseq_bnce that normalises scores, and unnormalised ones may be far from exact ones"
        )
    if choice == "checkpoint" and "mu_z" not in state:
        logger.warning(
            "this checkpoint was saved before any validation: no mu_z, shift 0; fairseq-bnce "
            "diagnose --calibrate measures mu_z on a text and writes it into a checkpoint"
        )
    known = {"checkpoint": state.get("mu_z", 0.0), "none": 0.0}
    return float(known[choice] if choice in known else _number(choice))


def _number(choice: Shift) -> float:
    """NaN for what is none."""
    number = decimal(choice) if isinstance(choice, str) else choice
    return math.nan if number is None else float(number)
