"""What is logged, and how sums become numbers. The only place where nats become bits.

Every criterion of this plugin logs the same names in validation:

- ``loss``: exact negative log-likelihood, bits, with the denominator of fairseq's cross_entropy,
  so that best-checkpoint selection and learning-rate plateaus mean the same;
- ``nll_loss``: bits a token, under ``--sentence-avg``, where ``loss`` is a sentence's;
- ``ppl``: exact perplexity, 2^(bits a token);
- ``u_ppl``: perplexity of the unnormalised scores m - log Z;
- ``mu_z``, ``sigma_z``: mean and standard deviation of log Z_c - log Z over contexts, nats;
- ``ppl_se``: the standard error of ``ppl`` if log Z_c is sampled.

In training, ``loss`` is the objective in bits, and there is no perplexity.
"""

import math
from collections import defaultdict
from typing import Any, Dict, Mapping, Sequence, Tuple, Union

from fairseq import utils
from fairseq.logging import metrics
from torch import Tensor

Number = Union[float, Tensor]

# fairseq prints no name with a leading underscore.
_BITS, _U_BITS = "_bits", "_u_bits"  # logged for each token; the loss may be a sentence's
_MEAN_SQUARE = "_z_square"  # (log Z_c - log Z)^2, for sigma_z
_LEFT_OUT, _SAMPLED = "_left_out", "_sampled"  # N / M - 1, and M sampled contexts, for ppl_se


def evaluation_sums(target_log_odds: Tensor, deviations: Tensor) -> Dict[str, float]:
    """Compute the sums that one validation batch logs.

    Args:
        target_log_odds: (N,) unnormalised log-probabilities m(w_i, i) - log Z, nats.
        deviations: (M,) log Z_c - log Z of the M <= N contexts that were sampled, nats.
    """
    u_nll = -target_log_odds.double().sum().item()
    deviations = deviations.double()
    targets, contexts = target_log_odds.numel(), deviations.numel()
    weight = targets / contexts if contexts else 0.0  # each context stands for so many
    z_sum = deviations.sum().item() * weight
    return {
        # All target scores are known. Only the mean of log Z_c is estimated if M < N.
        "loss": u_nll + z_sum,
        "u_nll": u_nll,
        "z_sum": z_sum,
        "z_square_sum": deviations.square().sum().item() * weight,
        "z_count": contexts,
        "left_out": targets * (weight - 1) if contexts else 0.0,
        "target_count": targets,
    }


def reduce(logging_outputs: Sequence[Mapping[str, Number]]) -> None:
    """Log the sums of one update or validation batch over all ranks."""
    # Tensors stay on their device: fairseq reads a training loss only when it prints one.
    total: Dict[str, Number] = defaultdict(int)
    for output in logging_outputs:
        for name, value in output.items():
            total[name] += value
    size, tokens, targets = total["sample_size"], total["ntokens"], total["target_count"]
    if not size:
        metrics.log_scalar("loss", 0.0, 0, round=3)
        return
    metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, round=3)
    if not targets:
        return
    metrics.log_scalar(_BITS, total["loss"] / targets / math.log(2), targets)
    if size != tokens:
        metrics.log_derived("nll_loss", lambda meters: round(float(meters[_BITS].avg), 3))
    contexts = total["z_count"]
    metrics.log_scalar(_U_BITS, total["u_nll"] / targets / math.log(2), targets)
    metrics.log_derived("u_ppl", lambda meters: utils.get_perplexity(meters[_U_BITS].avg))
    if not contexts:
        return
    metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters[_BITS].avg))
    metrics.log_scalar("mu_z", total["z_sum"] / targets, targets, round=4)
    metrics.log_scalar(_MEAN_SQUARE, total["z_square_sum"] / targets, targets)
    metrics.log_derived("sigma_z", lambda meters: round(normaliser(meters)[1], 4))
    metrics.log_scalar(_LEFT_OUT, total["left_out"] / targets, targets)
    metrics.log_scalar(_SAMPLED, 1, contexts)
    if contexts < targets:
        metrics.log_derived("ppl_se", _perplexity_error)


def normaliser(meters: Mapping[str, Any]) -> Tuple[float, float]:
    """Return mu_z and sigma_z, in nats, over all batches of ``meters``."""
    mean = float(meters["mu_z"].avg)
    variance = float(meters[_MEAN_SQUARE].avg) - mean**2
    return mean, math.sqrt(max(variance, 0.0))


def _perplexity_error(meters: Mapping[str, Any]) -> float:
    """Return ppl times the standard error of the mean log Z_c; infinite for one sampled context.

    M of a batch's N contexts, drawn without replacement, estimate their sum with the variance
    N (N / M - 1) sigma^2. sigma is taken from all batches.
    """
    contexts, targets = float(meters[_SAMPLED].count), float(meters[_LEFT_OUT].count)
    if contexts < 2:
        return math.inf
    unbiased = contexts / (contexts - 1)
    error = math.sqrt(float(meters[_LEFT_OUT].avg) / targets * unbiased)
    return round(utils.get_perplexity(meters[_BITS].avg) * normaliser(meters)[1] * error, 4)
