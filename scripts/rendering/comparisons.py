"""Tables of compare.py's comparison.json."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .cells import NONE, SOFTMAX, number, over, ratio, table

Comparison = Dict[str, Any]
Labels = Sequence[Tuple[str, str]]  # (label in the file, what the page calls it)

PTB: Labels = (
    (SOFTMAX, SOFTMAX),
    ("bnce+800", "bnce, 800 extra draws"),
    ("bnce", "bnce"),
    ("ranking", "bnce, ranking, α = 0.1"),
    ("ranking+800", "bnce, ranking, 800 extra draws"),
    ("shared_nce", "shared_nce, K = 100"),
    ("nce_regularized", "nce_regularized, α = 10, γ = 0.1"),
)
RANKING: Labels = (
    (SOFTMAX, SOFTMAX),
    ("dev0.2", "self_norm_softmax, α = 0.2"),
    ("r0.1+800", "ranking, α = 0.1, 800 draws"),
    ("r0.15+last", "ranking, α = 0.15, 800, 800, 4,000 draws"),
    ("r0.2+last", "ranking, α = 0.2, 800, 800, 4,000 draws"),
)
SAMPLED: Labels = (
    ("bnce+800", "bnce, 800 extra draws"),
    ("shared_nce", "shared_nce"),
    ("cps", "sampled_bce, cps"),
    ("is", "sampled_bce, is"),
    ("complementary", "sampled_bce, complementary"),
    ("complementary-lr30", "sampled_bce, complementary, lr 30, 30, 15"),
    ("sampled_softmax", "sampled_softmax"),
)


def mean(comparison: Comparison, label: str, name: str) -> Optional[float]:
    """A measurement of a row, over its seeds; None where there is none."""
    return comparison["summary"][label].get(name, {}).get("mean")


def perplexities(comparison: Comparison) -> List[str]:
    """docs/ptb.md's first table."""
    titles = ["criterion", "valid PPL^f", "over softmax", "test PPL^f", "test PPL^n shifted"]
    titles += ["off", "µ_z", "σ_z", "words/s", "× softmax"]
    return table(titles, [[title, *_perplexities(comparison, label)] for label, title in PTB])


def _perplexities(comparison: Comparison, label: str) -> List[str]:
    def found(name: str) -> Optional[float]:
        return mean(comparison, label, name)

    is_own = label != SOFTMAX  # cross_entropy's raw scores are no log-probabilities
    shifted = found("test_u_ppl_shifted") if is_own else None
    return [
        number(found("valid_ppl"), ".2f"),
        over(found("valid_ppl"), mean(comparison, SOFTMAX, "valid_ppl")) if is_own else "",
        number(found("test_ppl"), ".2f"),
        number(shifted, ".2f"),
        number(_off(shifted, found("test_ppl")), ".2f") + " %" if shifted else NONE,
        number(found("mu_z"), ".3f"),
        number(found("sigma_z"), ".3f"),
        number(found("words_per_second"), ",.0f"),
        number(found("ratio_to_softmax"), ".2f"),
    ]


def _off(value: Optional[float], reference: Optional[float]) -> Optional[float]:
    part = ratio(value, reference)
    return None if part is None else 100 * abs(part - 1)


def profiles(comparison: Comparison) -> List[str]:
    """docs/ptb.md's table of where an update's time goes."""
    titles = ["criterion", "features ms", "output layer ms", "clipping and optimiser ms"]
    titles += ["all ms", "output layer's share"]
    return table(titles, [[title, *_profile(comparison, label)] for label, title in PTB])


def _profile(comparison: Comparison, label: str) -> List[str]:
    parts = ("features_ms", "criterion_ms", "optimiser_ms")
    features, criterion, optimiser = (comparison["summary"][label][name]["mean"] for name in parts)
    times = [features, criterion - features, optimiser, criterion + optimiser]
    share = number(mean(comparison, label, "output_layer_share"), ".0f")
    return [*(number(time, ".1f") for time in times), f"{share} %"]


def epochs(comparison: Comparison, labels: Labels = PTB) -> List[str]:
    """Validation perplexity after each epoch, of the first seed."""
    runs = {run["label"]: run for run in reversed(comparison["runs"])}
    count = _epochs_trained(comparison)
    titles = ["valid PPL^f after epoch", *(str(epoch + 1) for epoch in range(count))]
    lines = []
    for label, title in labels:
        curve = {point["update"]: point["ppl"] for point in runs[label]["train"]["curve"]}
        ends = [runs[label]["updates"] * (epoch + 1) // count for epoch in range(count)]
        lines.append([title, *(number(curve[end], ".1f") for end in ends)])
    return table(titles, lines)


def _epochs_trained(comparison: Comparison) -> int:
    """What --max-epoch was, given last."""
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    return int(flags[len(flags) - flags[::-1].index("--max-epoch")])


def ranking(comparison: Comparison) -> List[str]:
    """docs/ptb.md's table of alpha and the number of draws."""
    titles = ["", "valid PPL^f", "over softmax", "test PPL^f", "over softmax"]
    titles += ["test PPL^n shifted", "σ_z", "words/s"]
    return table(titles, [[title, *_ranking(comparison, label)] for label, title in RANKING])


def _ranking(comparison: Comparison, label: str) -> List[str]:
    is_own, line = label != SOFTMAX, []
    for name in ("valid_ppl", "test_ppl"):
        value = mean(comparison, label, name)
        line += [number(value, ".2f")]
        line += [over(value, mean(comparison, SOFTMAX, name), ".1f") if is_own else ""]
    shifted = mean(comparison, label, "test_u_ppl_shifted") if is_own else None
    spread, speed = (mean(comparison, label, name) for name in ("sigma_z", "words_per_second"))
    return [*line, number(shifted, ".2f"), number(spread, ".3f"), number(speed, ",.0f")]


def seeds(comparison: Comparison) -> List[str]:
    """docs/ptb.md's table of the best ranking beside softmax, seed by seed."""
    titles = ["seed", "softmax, valid PPL^f", "ranking", "over softmax"]
    titles += ["softmax, test PPL^f", "ranking", "over softmax", "σ_z"]
    found = {(run["label"], run["seed"]): run for run in comparison["runs"]}
    label, _ = RANKING[-1]
    pairs = [
        (str(seed), found[SOFTMAX, seed], found[label, seed])
        for seed in sorted({run["seed"] for run in comparison["runs"]})
    ]
    softmax, own = (
        {name: mean(comparison, one, name) for name in _SEEDS} for one in (SOFTMAX, label)
    )
    return table(titles, [*(_seed(*pair) for pair in pairs), _seed("mean", softmax, own)])


def sampled(comparison: Comparison, reference: Comparison) -> List[str]:
    """docs/ptb.md's table of the criteria of 800 draws; softmax is a run of another comparison."""
    titles = ["", "valid PPL^f", "over softmax", "test PPL^f", "test PPL^n shifted"]
    titles += ["µ_z", "σ_z", "words/processor s"]
    softmax = {name: mean(reference, SOFTMAX, name) for name in ("valid_ppl", "test_ppl")}
    first = [number(softmax["valid_ppl"], ".2f"), "", number(softmax["test_ppl"], ".2f")]
    lines = [[SOFTMAX, *first, *[NONE] * 4]]
    for label, title in SAMPLED:
        found = {name: mean(comparison, label, name) for name in _SAMPLED}
        line = [number(found[name], form) for name, form in _SAMPLED.items()]
        lines.append([title, line[0], over(found["valid_ppl"], softmax["valid_ppl"]), *line[1:]])
    return table(titles, lines)


_SAMPLED = {
    "valid_ppl": ".2f",
    "test_ppl": ".2f",
    "test_u_ppl_shifted": ".2f",
    "mu_z": ".3f",
    "sigma_z": ".3f",
    "words_per_processor_second": ",.0f",
}


_SEEDS = ("valid_ppl", "test_ppl", "sigma_z")


def _seed(title: str, softmax: Dict[str, Any], own: Dict[str, Any]) -> List[str]:
    line = [title]
    for name in ("valid_ppl", "test_ppl"):
        line += [number(softmax[name], ".2f"), number(own[name], ".2f")]
        line += [over(own[name], softmax[name], ".1f")]
    return [*line, number(own["sigma_z"], ".3f")]


def fused(comparison: Comparison) -> List[str]:
    """docs/ptb.md's table of rnn_lm beside lstm_lm; labels are ARCH-SENTENCESxWORDS-UNITS."""
    found = {
        tuple(run["label"].split("-")): run["words_per_processor_second"]
        for run in comparison["runs"]
    }
    titles = ["sentences × words", "units", "`rnn_lm`, words/processor s", "`lstm_lm`", "ratio"]
    lines = []
    for arch, batch, units in found:
        if arch == "rnn_lm":
            fast, slow = found[arch, batch, units], found["lstm_lm", batch, units]
            speeds = [number(fast, ",.0f"), number(slow, ",.0f"), number(fast / slow, ".1f")]
            lines.append([batch.replace("x", " × "), units, *speeds])
    return table(titles, lines)
