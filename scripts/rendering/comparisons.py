"""Tables of compare.py's comparison.json."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .cells import SOFTMAX, SPEED, Column, Columns, measured, over

Comparison = Dict[str, Any]

# Labels in the file, and titles on the page.
PTB = {
    SOFTMAX: SOFTMAX,
    "bnce+800": "bnce, 800 extra noise samples",
    "bnce": "bnce",
    "ranking": "bnce, ranking, α = 0.1",
    "ranking+800": "bnce, ranking, 800 extra noise samples",
    "shared_nce": "shared_nce, K = 100",
    "nce_regularized": "nce_regularized, α = 10, γ = 0.1",
}
RANKING = {
    SOFTMAX: SOFTMAX,
    "dev0.2": "self_norm_softmax, α = 0.2",
    "r0.1+800": "ranking, α = 0.1, 800 noise samples",
    "r0.15+last": "ranking, α = 0.15, 800, 800, 4,000 noise samples",
    "r0.2+last": "ranking, α = 0.2, 800, 800, 4,000 noise samples",
}
SAMPLED = {
    SOFTMAX: SOFTMAX,
    "bnce+800": "bnce, 800 extra noise samples",
    "shared_nce": "shared_nce",
    "cps": "sampled_bce, cps",
    "is": "sampled_bce, is",
    "complementary": "sampled_bce, complementary",
    "complementary-lr30": "sampled_bce, complementary, lr 30, 30, 15",
    "sampled_softmax": "sampled_softmax",
}
_COLUMNS: Columns = (
    ("valid PPL^f", "valid_ppl", ".2f"),
    ("over softmax", "over", ""),
    ("σ_z", "sigma_z", ".3f"),
)


def perplexities(
    *comparisons: Comparison,
    labels: Mapping[str, str],
    title: str = "",
    speed: Column = SPEED,
    form: str = ".2f",
) -> List[str]:
    """Tabulate perplexity, its distance to the softmax, and speed.

    Args:
        comparisons: one, or two of which the second has the softmax.
        speed: the last column.
        form: of the distances.
    """
    softmax, lines = _means(comparisons[-1], SOFTMAX)["valid_ppl"], []
    for label, shown in labels.items():
        found = _means(comparisons[0], label) or {"valid_ppl": softmax}
        distance = "" if label == SOFTMAX else over(found["valid_ppl"], softmax, form)
        lines.append(([shown], {**found, "over": distance}))
    return measured([title], (*_COLUMNS, speed), lines)


def _means(comparison: Comparison, label: str) -> Dict[str, Any]:
    """Return every measurement of a label, averaged over its seeds."""
    return {name: one["mean"] for name, one in comparison["summary"].get(label, {}).items()}


OPTIMIZERS = {
    "sgd": "`bnce`, `sparse_sgd`",
    "adagrad": "`bnce`, `sparse_adagrad`",
    "road": "`bnce`, `sparse_adagrad`, `--stateful`, falling to 0",
    "adam": "`bnce`, `lazy_adam`",
    "unigram": "the softmax, from the unigram model, `adagrad`",
    "softmax": "`cross_entropy`, `adagrad`",
}


def optimizers(*comparisons: Comparison) -> List[str]:
    """Tabulate the perplexity of one epoch by optimiser, targets a batch and learning rate."""
    lines = []
    for comparison in comparisons:
        flags = [*comparison["recipe"]["training"], *comparison["flags"]]
        last = dict(zip(flags, flags[1:]))
        targets = int(last["--batch-size"]) * int(last["--tokens-per-sample"])
        for run in comparison["runs"]:
            name, _, rate = run["label"].partition("@")
            lines.append(([OPTIMIZERS[name], f"{targets:,}", rate], run))
    columns = (("valid PPL", "valid_ppl", ".1f"), ("processor s", "processor_seconds", ".0f"))
    return measured(["", "targets", "lr"], columns, lines)
