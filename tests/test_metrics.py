"""What validation logs, against the same computed from all tokens at once."""

import math

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics

from fairseq_bnce.criterions import metrics


def logged(batches):
    """fairseq's meters after these batches.

    Each: log-odds of the targets, log Z_c - log Z, and under --sentence-avg how many sentences.
    """
    with fairseq_metrics.aggregate() as meters:
        for log_odds, deviations, *sentences in batches:
            sums = metrics.evaluation_sums(log_odds, deviations)
            (size,) = sentences or [len(log_odds)]
            metrics.reduce([{**sums, "ntokens": len(log_odds), "sample_size": size}])
        values = meters.get_smoothed_values()
        return metrics.normaliser(meters) if "mu_z" in values else None, values


def test_mean_and_deviation_of_log_z_and_perplexities():
    """Whether the ranks' sums come one by one, or added up."""
    rng = torch.Generator().manual_seed(1)
    pairs = (torch.randn(2, n, generator=rng) for n in (7, 30, 12))
    batches = [(one - 5, other / 4 - 0.2) for one, other in pairs]
    log_odds, deviations = (torch.cat(parts).double() for parts in zip(*batches))
    (mu_z, sigma_z), values = logged(batches)
    assert mu_z == pytest.approx(deviations.mean().item())
    assert sigma_z == pytest.approx(deviations.std(unbiased=False).item())
    ppl = (deviations - log_odds).mean().exp().item()
    want = {"mu_z": mu_z, "sigma_z": sigma_z, "loss": math.log2(ppl), "ppl": ppl}
    want["u_ppl"] = (-log_odds.mean()).exp().item()
    assert values == pytest.approx({**values, **want}, rel=1e-3, abs=1e-4)
    assert "ppl_se" not in values
    counts = {"ntokens": 1, "sample_size": 1}
    sums = [{**metrics.evaluation_sums(*batch), **counts} for batch in batches]
    added = {key: sum(output[key] for output in sums) for key in sums[0]}
    for of_ranks in (sums, [added]):
        with fairseq_metrics.aggregate() as meters:
            metrics.reduce(of_ranks)
            assert metrics.normaliser(meters) == pytest.approx((mu_z, sigma_z))


def test_sampled_contexts_stand_for_all_of_their_batch():
    """Short lines make batches of few words, long ones of many; as many contexts may be drawn."""
    sizes = ((100, 0.3), (3900, 0.1))
    batches = [(torch.full((n,), -5.0), torch.full((2,), log_z)) for n, log_z in sizes]
    (mu_z, sigma_z), values = logged(batches)
    assert mu_z == pytest.approx((100 * 0.3 + 3900 * 0.1) / 4000)
    assert sigma_z == pytest.approx(0.2 * math.sqrt(100 * 3900) / 4000, rel=1e-4)
    assert values["u_ppl"] * math.exp(mu_z) == pytest.approx(values["ppl"], rel=1e-3)


@pytest.mark.parametrize("counts", [(5, 5, 5), (1, 1, 1)])
def test_the_standard_error_is_that_of_many_samples(counts):
    rng = torch.Generator().manual_seed(1)
    everything = [torch.randn(n, generator=rng) / 4 for n in (20, 60, 120)]
    found = []
    for _ in range(400):
        chosen = (torch.randperm(len(z), generator=rng)[:m] for z, m in zip(everything, counts))
        batches = [(torch.full_like(z, -5.0), z[some]) for z, some in zip(everything, chosen)]
        found.append(logged(batches)[1])
    spread = torch.tensor([values["ppl"] for values in found]).std().item()
    said = torch.tensor([values["ppl_se"] for values in found]).square().mean().sqrt().item()
    assert said == pytest.approx(spread, rel=0.15)


def test_perplexity_and_nll_loss_are_those_of_tokens_under_sentence_avg():
    """Also of a batch of empty lines, in which every token is a sentence."""
    empty_lines = (torch.full((4,), -1.0), torch.zeros(4), 4)
    _, values = logged([empty_lines, (torch.full((12,), -5.0), torch.zeros(12), 3)])
    assert values["ppl"] == values["u_ppl"] == pytest.approx(math.exp(4), rel=1e-3)
    assert values["nll_loss"] == pytest.approx(math.log2(math.exp(4)), rel=1e-3)


def test_no_contexts_leave_the_unnormalised_perplexity():
    _, values = logged([(torch.tensor([-3.0, -5.0]), torch.zeros(0))])
    assert values["u_ppl"] == pytest.approx(math.exp(4), abs=0.01)
    assert {"ppl", "mu_z", "sigma_z"}.isdisjoint(values)
    # One context says nothing of its error.
    assert logged([(torch.full((50,), -5.0), torch.zeros(1))])[1]["ppl_se"] == math.inf
