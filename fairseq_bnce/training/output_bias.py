"""Which scores an untrained model starts with, by its output bias or what stands in for one."""

from fairseq_bnce.losses import unsquashed
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.projection import initial_scores
from fairseq_bnce.projection.output_layer import OutputLayer

SQUASHED = 10.0  # scores that are squashed stay below it in absolute value,
_FITTING = 9.9  # and a bias can start them up to here (losses.unsquashed)


def carried_log_z(q: NoiseDistribution, squash: bool) -> float:
    """The log Z with which a bias log q + log Z starts, nats: 0, or where all of it fits."""
    if not squash:
        return 0.0
    lowest, highest = float(q.log_q.min()), float(q.log_q.max())
    fitting = min(max(0.0, -_FITTING - lowest), _FITTING - highest)
    return round(fitting + 0.005, 2) if fitting else 0.0


def fill(layer: OutputLayer, q: NoiseDistribution, log_z: float, squash: bool) -> None:
    """Let scores start at log q + log Z."""
    scores = q.log_q + log_z
    initial_scores.set_to(layer, unsquashed(scores) if squash else scores)
