"""What validation logs, against the same computed from all tokens at once."""

import math

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics

from fairseq_bnce.training import metrics


def logged(batches):
    """fairseq's meters after these batches: (log-odds of the targets, log Z_c - log Z) of each."""
    with fairseq_metrics.aggregate() as meters:
        for log_odds, deviations in batches:
            sums = metrics.evaluation_sums(log_odds, deviations)
            count = len(log_odds)
            metrics.reduce([{**sums, "ntokens": count, "nsentences": 1, "sample_size": count}])
        return metrics.normaliser(meters), meters.get_smoothed_values()


def make_batches(sampled=None):
    """Of three sizes; log Z_c is known of so many contexts of each, of all by default."""
    rng = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, generator=rng) - 5, torch.randn(sampled or n, generator=rng) / 4 - 0.2)
        for n in (7, 30, 12)
    ]


def test_mean_and_deviation_of_log_z_and_perplexities():
    batches = make_batches()
    log_odds, deviations = (torch.cat(parts).double() for parts in zip(*batches))
    (mu_z, sigma_z), values = logged(batches)
    assert mu_z == pytest.approx(deviations.mean().item())
    assert sigma_z == pytest.approx(deviations.std(unbiased=False).item())
    assert values["mu_z"] == pytest.approx(mu_z, abs=1e-4)
    assert values["sigma_z"] == pytest.approx(sigma_z, abs=1e-4)
    nll = (deviations - log_odds).mean().item()
    assert values["loss"] == pytest.approx(nll / math.log(2), abs=1e-3)
    assert values["ppl"] == pytest.approx(math.exp(nll), abs=0.01)
    assert values["u_ppl"] == pytest.approx(math.exp(-log_odds.mean().item()), abs=0.01)
    assert "ppl_se" not in values


def test_sampled_contexts_have_a_standard_error():
    batches = make_batches(sampled=5)
    log_odds, _ = (torch.cat(parts).double() for parts in zip(*batches))
    (_, sigma_z), values = logged(batches)
    share = 15 / len(log_odds)
    expected = values["ppl"] * sigma_z * math.sqrt((1 - share) / 15)
    assert values["ppl_se"] == pytest.approx(expected, rel=1e-3)


def test_no_contexts_leave_the_unnormalised_perplexity():
    log_odds = torch.tensor([-3.0, -5.0])
    with fairseq_metrics.aggregate() as meters:
        sums = metrics.evaluation_sums(log_odds, torch.zeros(0))
        metrics.reduce([{**sums, "ntokens": 2, "nsentences": 1, "sample_size": 2}])
        values = meters.get_smoothed_values()
    assert values["u_ppl"] == pytest.approx(math.exp(4), abs=0.01)
    assert {"ppl", "mu_z", "sigma_z"}.isdisjoint(values)
