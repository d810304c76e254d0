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
# Of log Z_c - log Z: hidden (fairseq shows no name with a leading underscore), for sigma_z.
_MEAN_SQUARE = "_z_square"


def evaluation_sums(target_log_odds: Tensor, deviations: Tensor) -> Dict[str, float]:
    """What one validation batch logs, as sums.

    Args:
        target_log_odds: (N,) unnormalised log-probabilities m(w_i, i) - log Z, nats.
        deviations: (M,) log Z_c - log Z, nats, of the M <= N contexts that were sampled.
    """
    u_nll = -target_log_odds.double().sum().item()
    deviations = deviations.double()
    z_sum, z_count = deviations.sum().item(), deviations.numel()
    return {
        # All target scores are known; only the mean of log Z_c is estimated where M < N.
        "loss": u_nll + (z_sum / z_count * target_log_odds.numel() if z_count else 0.0),
        "u_nll": u_nll,
        "z_sum": z_sum,
        "z_square_sum": deviations.square().sum().item(),
        "z_count": z_count,
        "target_count": target_log_odds.numel(),
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
    metrics.log_derived("ppl", _perplexity)
    metrics.log_scalar("mu_z", _total(logging_outputs, "z_sum") / contexts, contexts, round=4)
    mean_square = _total(logging_outputs, "z_square_sum") / contexts
    metrics.log_scalar(_MEAN_SQUARE, mean_square, contexts)
    metrics.log_derived("sigma_z", lambda m: round(normaliser(m)[1], 4))
    if contexts < targets:
        metrics.log_derived("ppl_se", _perplexity_error)


def _perplexity(meters: Mapping[str, Any]) -> float:
    bits = meters["nll_loss"] if "nll_loss" in meters else meters["loss"]
    return utils.get_perplexity(bits.avg)


def _perplexity_error(meters: Mapping[str, Any]) -> float:
    """ppl times the standard error of the mean log Z_c, sampled without replacement."""
    contexts, targets = meters["mu_z"].count, meters["_u_bits"].count
    share_left_out = max(1 - float(contexts) / float(targets), 0.0)
    error = normaliser(meters)[1] * math.sqrt(share_left_out / float(contexts))
    return round(_perplexity(meters) * error, 4)


def _total(logging_outputs: List[Dict[str, Any]], key: str) -> Number:
    # Left on its device: fairseq reads a training loss only when it prints one.
    return sum(output.get(key, 0) for output in logging_outputs)
