"""What is checked, chosen and said once, before a criterion's first batch and with it.

SelfNormalizingCriterion calls these in ``prepare``, which makes a model ready, and on the first
training batch.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Optional

from torch import nn

from fairseq_bnce.checkpoints import dictionaries
from fairseq_bnce.errors import require
from fairseq_bnce.losses.squashing import SQUASHED_LIMIT
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.output_layer import initial_scores, squashing
from fairseq_bnce.output_layer.layer import OutputLayer

if TYPE_CHECKING:
    from fairseq_bnce.criterions.base import SelfNormalizingCriterion

logger = logging.getLogger(__name__)

_FAR = 2.0  # nats between log Z and where log Z_c starts


def check_dictionary(criterion: SelfNormalizingCriterion) -> None:
    """That of what the training goes on from, whose rows would else be other words'."""
    found = criterion.constant.restored
    if found is not None and found.words is not None:
        dictionaries.check_same(criterion.task.source_dictionary, found.words, found.path)


def check_size(criterion: SelfNormalizingCriterion, layer: OutputLayer) -> None:
    """Not all architectures know of an output dictionary."""
    words = len(criterion.task.target_dictionary)
    required = f"an architecture that predicts its {words:,} words (transformer_lm, rnn_lm)"
    got = f"{type(layer.decoder).__name__}, which predicts {len(layer):,}"
    require("--output-dictionary-size", required, got, len(layer) == words)


def check_reach(criterion: SelfNormalizingCriterion, layer: OutputLayer) -> None:
    """That log Z_c can come to a log Z that was given."""
    log_v, given = math.log(len(layer)), criterion.constant.given
    if given is not None and criterion.normalises_itself and criterion.score_squashing:
        low, high = log_v - SQUASHED_LIMIT, log_v + SQUASHED_LIMIT
        within = f"since --score-squashing keeps scores within {SQUASHED_LIMIT:g}"
        reach = f"from {low:.1f} to {high:.1f}, {within}"
        require("--log-z", reach, given, low < given < high)


def take_squashing(criterion: SelfNormalizingCriterion, model: nn.Module) -> None:
    """A model's scores are squashed for good, by whatever criterion it is read."""
    if criterion.score_squashing:
        squashing.squash(model)
    elif squashing.is_squashed(model):
        required = "--criterion self_norm_softmax with it, as the model was trained"
        require("--score-squashing", required, type(criterion).__name__, False)


def initial_distribution(
    criterion: SelfNormalizingCriterion, layer: OutputLayer
) -> Optional[NoiseDistribution]:
    """What ``--init-output-bias`` starts scores at, where the decoder can carry it."""
    asked = criterion.initial_bias
    if asked == "none":
        return None
    if not initial_scores.can_be_set(layer):
        logger.warning(
            f"--init-output-bias {asked}: {type(layer.decoder).__name__} has neither an output "
            "bias nor a last layer normalisation to carry it (under --no-decoder-final-norm, "
            "say): scores start as the model has them"
        )
        return None
    if asked == "uniform":
        return NoiseDistribution.uniform(len(layer))
    return criterion.noise.unigram.to("cpu")


def warn_of_start(criterion: SelfNormalizingCriterion, layer: OutputLayer) -> None:
    """Where it is far from log Z, or not as asked for."""
    log_v, constant = math.log(len(layer)), criterion.constant
    given = constant.given if criterion.normalises_itself else None
    can_start_there = layer.bias is not None or criterion.start_is_set or constant.goes_on
    if given is not None and abs(given - log_v) > _FAR and not can_start_there:
        logger.warning(
            f"{type(layer.decoder).__name__} has no output bias: its log Z_c starts near "
            f"log V = {log_v:.1f}, far from --log-z {given:g}, and it may take most "
            "of the training to get there; --log-z auto starts right"
        )
    elif layer.bias is not None and not criterion.is_prepared and criterion.initial_bias != "none":
        task = type(criterion.task).__name__
        logger.warning(
            f"--init-output-bias {criterion.initial_bias} is applied by the language_modeling task "
            f"alone; under {task} the bias starts as the model has it"
        )


def said_log_z(criterion: SelfNormalizingCriterion) -> str:
    """For the log: where log Z starts, and why there."""
    if not criterion.normalises_itself:
        return f"{criterion.constant.origin}; scoring needs its shift"
    return f"{criterion.log_z:g} nats ({criterion.constant.origin})"


def said_loss(criterion: SelfNormalizingCriterion) -> str:
    """For the log: what the numbers called loss are."""
    share = {0: "unnormalised", 1: "exact"}.get(criterion.valid_partition_rate, "estimated")
    ppl = "ppl" if criterion.valid_partition_rate else "u_ppl"
    per = "a sentence" if criterion.sentence_avg else "a token"
    return (
        f"in training lines the objective of {type(criterion).__name__}, in validation lines the "
        f"{share} negative log-likelihood, whose perplexity is {ppl}; both in bits {per}, and "
        "not to be compared with each other"
    )
