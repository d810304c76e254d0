"""What is logged and how it is reduced. The only place where nats become bits.

Every criterion of this plugin logs the same names in validation:

- ``loss``: exact negative log-likelihood, bits, under the denominator of fairseq's cross_entropy,
  so that best-checkpoint selection and learning-rate plateaus mean the same;
- ``ppl``: exact perplexity, 2^(bits a token);
- ``u_ppl``: perplexity of the unnormalised scores m - log Z;
- ``mu_z``, ``sigma_z``: mean and standard deviation over contexts of log Z_c - log Z, nats;
- ``ppl_se``: the standard error of ``ppl`` where log Z_c is sampled.

In training ``loss`` is the objective, bits, and there is no perplexity to log.
"""

import math
from typing import Any, Dict, List, Mapping, Tuple, Union

from fairseq import utils
from fairseq.logging import metrics
from torch import Tensor

Number = Union[float, Tensor]
# fairseq shows no name with a leading underscore. For sigma_z: (log Z_c - log Z)^2; for ppl_se:
# N / M - 1, and how many contexts were sampled. For ppl: bits a token, which the loss may not be.
_BITS = "_bits"
_MEAN_SQUARE, _LEFT_OUT, _SAMPLED = "_z_square", "_left_out", "_sampled"


def evaluation_sums(target_log_odds: Tensor, deviations: Tensor) -> Dict[str, float]:
    """What one validation batch logs, as sums.

    Args:
        target_log_odds: (N,) unnormalised log-probabilities m(w_i, i) - log Z, nats.
        deviations: (M,) log Z_c - log Z, nats, of the M <= N contexts that were sampled.
    """
    u_nll = -target_log_odds.double().sum().item()
    deviations = deviations.double()
    targets, contexts = target_log_odds.numel(), deviations.numel()
    each = targets / contexts if contexts else 0.0  # contexts of the batch that one stands for
    z_sum = deviations.sum().item() * each
    return {
        # All target scores are known; only the mean of log Z_c is estimated where M < N.
        "loss": u_nll + z_sum,
        "u_nll": u_nll,
        "z_sum": z_sum,
        "z_square_sum": deviations.square().sum().item() * each,
        "z_count": contexts,
        "left_out": targets * (each - 1) if contexts else 0.0,
        "target_count": targets,
    }


def reduce(logging_outputs: List[Dict[str, Any]]) -> None:
    """Log the sums of one update or validation batch over all ranks."""
    total = {key: _total(logging_outputs, key) for key in ("loss", "sample_size", "ntokens")}
    if not total["sample_size"]:
        metrics.log_scalar("loss", 0.0, 0, round=3)
        return
    _log_loss(total["loss"], total["sample_size"], total["ntokens"])
    if any("target_count" in output for output in logging_outputs):
        _log_evaluation(logging_outputs)


def normaliser(meters: Mapping[str, Any]) -> Tuple[float, float]:
    """(mu_z, sigma_z) in nats of all the batches that ``meters`` has seen."""
    mean = float(meters["mu_z"].avg)
    variance = float(meters[_MEAN_SQUARE].avg) - mean**2
    return mean, math.sqrt(max(variance, 0.0))


def _log_loss(loss: Number, sample_size: Number, ntokens: Number) -> None:
    metrics.log_scalar("loss", loss / sample_size / math.log(2), sample_size, round=3)
    if sample_size != ntokens:
        metrics.log_scalar("nll_loss", loss / ntokens / math.log(2), ntokens, round=3)


def _log_evaluation(logging_outputs: List[Dict[str, Any]]) -> None:
    targets = _total(logging_outputs, "target_count")
    contexts = _total(logging_outputs, "z_count")
    u_nll = _total(logging_outputs, "u_nll")
    if not targets:
        return
    metrics.log_scalar("_u_bits", u_nll / targets / math.log(2), targets)
    metrics.log_derived("u_ppl", lambda m: utils.get_perplexity(m["_u_bits"].avg))
    if not contexts:
        return
    metrics.log_scalar(_BITS, _total(logging_outputs, "loss") / targets / math.log(2), targets)
    metrics.log_derived("ppl", _perplexity)
    metrics.log_scalar("mu_z", _total(logging_outputs, "z_sum") / targets, targets, round=4)
    mean_square = _total(logging_outputs, "z_square_sum") / targets
    metrics.log_scalar(_MEAN_SQUARE, mean_square, targets)
    metrics.log_derived("sigma_z", lambda m: round(normaliser(m)[1], 4))
    metrics.log_scalar(_LEFT_OUT, _total(logging_outputs, "left_out") / targets, targets)
    metrics.log_scalar(_SAMPLED, 1, contexts)
    if contexts < targets:
        metrics.log_derived("ppl_se", _perplexity_error)


def _perplexity(meters: Mapping[str, Any]) -> float:
    return utils.get_perplexity(meters[_BITS].avg)


def _perplexity_error(meters: Mapping[str, Any]) -> float:
    """ppl times the standard error of the mean log Z_c; infinite where one context was sampled.

    M of a batch's N contexts, drawn without replacement, estimate their sum with the variance
    N (N / M - 1) sigma^2; sigma is taken to be that of all batches.
    """
    contexts, targets = float(meters[_SAMPLED].count), float(meters[_LEFT_OUT].count)
    if contexts < 2:
        return math.inf
    unbiased = contexts / (contexts - 1)
    variance = float(meters[_LEFT_OUT].avg) / targets * unbiased
    return round(_perplexity(meters) * normaliser(meters)[1] * math.sqrt(variance), 4)


def _total(logging_outputs: List[Dict[str, Any]], key: str) -> Number:
    # Left on its device: fairseq reads a training loss only when it prints one.
    return sum(output.get(key, 0) for output in logging_outputs)
