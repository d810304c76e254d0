"""Tables of compare.py's comparison.json."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .cells import SOFTMAX, Columns, Line, measured, number, over, table

Comparison = Dict[str, Any]
Labels = Sequence[Tuple[str, str]]  # (label in the file, title on the page)

PTB: Labels = (
    (SOFTMAX, SOFTMAX),
    ("bnce+800", "bnce, 800 extra noise samples"),
    ("bnce", "bnce"),
    ("ranking", "bnce, ranking, α = 0.1"),
    ("ranking+800", "bnce, ranking, 800 extra noise samples"),
    ("shared_nce", "shared_nce, K = 100"),
    ("nce_regularized", "nce_regularized, α = 10, γ = 0.1"),
)
RANKING: Labels = (
    (SOFTMAX, SOFTMAX),
    ("dev0.2", "self_norm_softmax, α = 0.2"),
    ("r0.1+800", "ranking, α = 0.1, 800 noise samples"),
    ("r0.15+last", "ranking, α = 0.15, 800, 800, 4,000 noise samples"),
    ("r0.2+last", "ranking, α = 0.2, 800, 800, 4,000 noise samples"),
)
SAMPLED: Labels = (
    ("bnce+800", "bnce, 800 extra noise samples"),
    ("shared_nce", "shared_nce"),
    ("cps", "sampled_bce, cps"),
    ("is", "sampled_bce, is"),
    ("complementary", "sampled_bce, complementary"),
    ("complementary-lr30", "sampled_bce, complementary, lr 30, 30, 15"),
    ("sampled_softmax", "sampled_softmax"),
)
VALID = ("valid PPL^f", "valid_ppl", ".2f"), ("over softmax", "valid_over", "")
SPREAD = ("σ_z", "sigma_z", ".3f")
_COLUMNS: Columns = (*VALID, SPREAD, ("words/s", "words_per_second", ",.0f"))
_SAMPLED: Columns = (
    *VALID,
    SPREAD,
    ("words/processor s", "words_per_processor_second", ",.0f"),
)
_PROFILE: Columns = (
    ("features ms", "features_ms", ".1f"),
    ("output layer ms", "layer_ms", ".1f"),
    ("clipping and optimiser ms", "optimiser_ms", ".1f"),
    ("all ms", "all_ms", ".1f"),
)


def perplexities(comparison: Comparison) -> List[str]:
    """Tabulate perplexities, first in docs/results/ptb.md."""
    return measured(["criterion"], _COLUMNS, _lines(PTB, comparison))


def ranking(comparison: Comparison) -> List[str]:
    """Tabulate alpha and the number of draws, in docs/results/ptb.md."""
    return measured([""], _COLUMNS, _lines(RANKING, comparison, form=".1f"))


def sampled(comparison: Comparison, reference: Comparison) -> List[str]:
    """Tabulate the criteria with 800 draws; the softmax is a run of another comparison."""
    softmax = _means(reference, SOFTMAX)
    first = {"valid_ppl": softmax["valid_ppl"], "valid_over": ""}
    lines = _lines(SAMPLED, comparison, softmax)
    return measured([""], _SAMPLED, [([SOFTMAX], first), *lines])


def _lines(
    labels: Labels,
    comparison: Comparison,
    softmax: Optional[Mapping[str, float]] = None,
    form: str = ".2f",
) -> List[Line]:
    """Return the measurements of labels, with distances to the softmax."""
    softmax = softmax or _means(comparison, SOFTMAX)
    found = [(title, _means(comparison, label)) for label, title in labels]
    return [([title], _related(means, softmax, form)) for title, means in found]


def _means(comparison: Comparison, label: str) -> Dict[str, float]:
    """Return every measurement of a label, averaged over its seeds."""
    return {name: one["mean"] for name, one in comparison["summary"][label].items()}


def _related(found: Mapping[str, Any], softmax: Mapping[str, float], form: str) -> Dict[str, Any]:
    """Add the distance to the softmax."""
    if found == softmax:
        return {**found, "valid_over": ""}
    return {**found, "valid_over": over(found["valid_ppl"], softmax["valid_ppl"], form)}


def profiles(comparison: Comparison) -> List[str]:
    """Tabulate where the time of an update goes, in docs/results/ptb.md."""
    lines = []
    for label, title in PTB:
        found: Dict[str, Any] = _means(comparison, label)
        found["layer_ms"] = found["criterion_ms"] - found["features_ms"]
        found["all_ms"] = found["criterion_ms"] + found["optimiser_ms"]
        lines.append(([title], found))
    return measured(["criterion"], _PROFILE, lines)


def epochs(comparison: Comparison) -> List[str]:
    """Tabulate validation perplexity after each epoch, of the first seed."""
    runs = {run["label"]: run for run in reversed(comparison["runs"])}
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    count = int(flags[len(flags) - flags[::-1].index("--max-epoch")])  # the last one counts
    lines = []
    for label, title in RANKING:
        curve = {point["update"]: point["ppl"] for point in runs[label]["train"]["curve"]}
        ends = [runs[label]["updates"] * (epoch + 1) // count for epoch in range(count)]
        lines.append([title, *(number(curve[end], ".1f") for end in ends)])
    return table(["valid PPL^f after epoch", *(str(epoch + 1) for epoch in range(count))], lines)


def seeds(comparison: Comparison) -> List[str]:
    """Tabulate the best ranking beside the softmax, seed by seed."""
    titles = ["seed", "softmax, valid PPL^f", "ranking", "over softmax", "σ_z"]
    found = {(run["label"], run["seed"]): run for run in comparison["runs"]}
    labels = SOFTMAX, RANKING[-1][0]
    each = sorted({run["seed"] for run in comparison["runs"]})
    pairs = {str(seed): [found[label, seed] for label in labels] for seed in each}
    pairs["mean"] = [_means(comparison, label) for label in labels]
    lines = []
    for title, (softmax, own) in pairs.items():
        both = softmax["valid_ppl"], own["valid_ppl"]
        line = [title, *(number(ppl, ".2f") for ppl in both), over(both[1], both[0], ".1f")]
        lines.append([*line, number(own["sigma_z"], ".3f")])
    return table(titles, lines)


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
