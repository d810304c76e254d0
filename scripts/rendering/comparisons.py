"""Tables of compare.py's comparison.json."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .cells import SOFTMAX, SPEED, Column, Columns, measured, number, over, table

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
BEST = "r0.2+last"
RANKING = {
    SOFTMAX: SOFTMAX,
    "dev0.2": "self_norm_softmax, α = 0.2",
    "r0.1+800": "ranking, α = 0.1, 800 noise samples",
    "r0.15+last": "ranking, α = 0.15, 800, 800, 4,000 noise samples",
    BEST: "ranking, α = 0.2, 800, 800, 4,000 noise samples",
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
_PROFILE: Columns = (
    ("features ms", "features_ms", ".1f"),
    ("output layer ms", "layer_ms", ".1f"),
    ("clipping and optimiser ms", "optimiser_ms", ".1f"),
    ("all ms", "all_ms", ".1f"),
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


def profiles(comparison: Comparison) -> List[str]:
    """Tabulate where the time of an update goes."""
    lines = []
    for label, title in PTB.items():
        found = _means(comparison, label)
        found["layer_ms"] = found["criterion_ms"] - found["features_ms"]
        found["all_ms"] = found["criterion_ms"] + found["optimiser_ms"]
        lines.append(([title], found))
    return measured(["criterion"], _PROFILE, lines)


def noise_counts(ptb: Comparison, novels_actual: Comparison, novels: Comparison) -> List[str]:
    """Tabulate validation perplexity by how often noise words count.

    Args:
        ptb: with both ways under labels of their own.
        novels_actual, novels: one way each.
    """
    lines = []
    for label, title in (("bnce", "`bnce`"), ("ranking", "`bnce --objective ranking`")):
        found = {}
        for name, comparison, own in (
            ("ptb_actual", ptb, label),
            ("ptb", ptb, f"{label}-expected"),
            ("novels_actual", novels_actual, label),
            ("novels", novels, label),
        ):
            runs = [r for r in comparison["runs"] if r["label"] == f"{own}@0.05"]
            found[name] = [run["valid_ppl"] for run in runs]
        lines.append(([title], found))
    columns = (
        ("PTB, actual", "ptb_actual", ".1f"),
        ("expected", "ptb", ".1f"),
        ("novels, actual", "novels_actual", ".1f"),
        ("expected", "novels", ".1f"),
    )
    return measured(["valid PPL"], columns, lines)


def epochs(comparison: Comparison) -> List[str]:
    """Tabulate validation perplexity after each epoch, of the first seed."""
    runs = {run["label"]: run for run in reversed(comparison["runs"])}
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    count = int(dict(zip(flags, flags[1:]))["--max-epoch"])  # the last one counts
    lines = []
    for label, title in RANKING.items():
        curve = {point["update"]: point["ppl"] for point in runs[label]["train"]["curve"]}
        ends = [runs[label]["updates"] * epoch // count for epoch in range(1, count + 1)]
        lines.append([title, *(number(curve[end], ".1f") for end in ends)])
    return table(["valid PPL^f after epoch", *map(str, range(1, count + 1))], lines)


def seeds(comparison: Comparison) -> List[str]:
    """Tabulate the best ranking beside the softmax, seed by seed."""
    found = {(run["label"], str(run["seed"])): run for run in comparison["runs"]}
    found.update({(label, "mean"): _means(comparison, label) for label in (SOFTMAX, BEST)})
    lines = []
    for seed in [*sorted({str(run["seed"]) for run in comparison["runs"]}), "mean"]:
        softmax, own = found[SOFTMAX, seed]["valid_ppl"], found[BEST, seed]
        distance = over(own["valid_ppl"], softmax, ".1f")
        lines.append(([seed], {**own, "softmax": softmax, "over": distance}))
    columns = (("softmax, valid PPL^f", "softmax", ".2f"), ("ranking", "valid_ppl", ".2f"))
    return measured(["seed"], (*columns, *_COLUMNS[1:]), lines)


def fused(comparison: Comparison) -> List[str]:
    """Tabulate rnn_lm beside lstm_lm; labels are ARCH-SENTENCESxWORDS-UNITS."""
    runs = {run["label"]: run["words_per_processor_second"] for run in comparison["runs"]}
    titles = ["sentences × words", "units", "`rnn_lm`, words/processor s", "`lstm_lm`", "ratio"]
    lines = []
    for label, fast in runs.items():
        arch, batch, units = label.split("-")
        if arch == "rnn_lm":
            slow = runs[f"lstm_lm-{batch}-{units}"]
            speeds = [number(fast, ",.0f"), number(slow, ",.0f"), number(fast / slow, ".1f")]
            lines.append([batch.replace("x", " × "), units, *speeds])
    return table(titles, lines)


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
