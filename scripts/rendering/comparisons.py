"""Tables of compare.py's comparison.json."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .cells import NONE, number, over, ratio, table

Comparison = Dict[str, Any]
Labels = Sequence[Tuple[str, str]]  # (label in the file, what the page calls it)
SOFTMAX = "cross_entropy"

PTB: Labels = (
    (SOFTMAX, SOFTMAX),
    ("bnce+800", "bnce, 800 extra draws"),
    ("bnce", "bnce"),
    ("ranking", "bnce, ranking, α = 0.1"),
    ("ranking+800", "bnce, ranking, 800 extra draws"),
    ("shared_nce", "shared_nce, K = 100"),
    ("nce_regularized", "nce_regularized, α = 10, γ = 0.1"),
)
README: Labels = (
    (SOFTMAX, SOFTMAX),
    ("bnce", "bnce"),
    ("bnce+800", "bnce, `--noise-samples 800`"),
    ("ranking", "bnce, `--objective ranking`"),
    ("ranking+800", "the same, `--noise-samples 800`"),
    ("shared_nce", "shared_nce, K = 100"),
    ("nce_regularized", "nce_regularized, α = 10"),
)
RANKING: Labels = (
    (SOFTMAX, SOFTMAX),
    ("r0.1+800", "ranking, α = 0.1, 800 draws"),
    ("r0.15+last", "ranking, α = 0.15, 800, 800, 4,000 draws"),
    ("r0.2+last", "ranking, α = 0.2, 800, 800, 4,000 draws"),
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
    features, criterion, optimiser = (mean(comparison, label, name) for name in parts)
    times = [features, criterion - features, optimiser, criterion + optimiser]
    share = number(mean(comparison, label, "output_layer_share"), ".0f")
    return [*(number(time, ".1f") for time in times), f"{share} %"]


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


def readme(comparison: Comparison) -> List[str]:
    """README.md's table of PTB."""
    titles = ["criterion", "valid PPL exact", "test PPL exact", "test PPL unnormalised (shifted)"]
    titles += ["σ_z", "training words/s", "scoring tokens/s, exact → unnormalised"]
    return table(titles, [[title, *_readme(comparison, label)] for label, title in README])


def _readme(comparison: Comparison, label: str) -> List[str]:
    is_own = label != SOFTMAX
    shifted = mean(comparison, label, "test_u_ppl_shifted") if is_own else None
    fast = mean(comparison, label, "unnormalised_tokens_per_second") if is_own else None
    exact = number(mean(comparison, label, "exact_tokens_per_second"), ",.0f")
    return [
        number(mean(comparison, label, "valid_ppl"), ".1f"),
        number(mean(comparison, label, "test_ppl"), ".1f"),
        number(shifted, ".1f"),
        number(mean(comparison, label, "sigma_z"), ".2f"),
        number(mean(comparison, label, "words_per_second"), ",.0f"),
        f"{exact} → {number(fast, ',.0f')}",
    ]
