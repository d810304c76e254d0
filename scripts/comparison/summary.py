"""From the stages of every run to one number, or mean and standard deviation, a cell."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from .recipes import SOFTMAX, Variant
from .runs import SPLITS, Outcome

NORMALISER = ("log_z", "mu_z", "sigma_z", "entropy", "entropy_correlation")
Measurements = Dict[str, Optional[float]]


@dataclass(frozen=True)
class Cell:
    """Mean and sample standard deviation (None for one value) over seeds."""

    mean: float
    deviation: Optional[float]
    count: int


@dataclass(frozen=True)
class Row:
    """One variant: its outcomes, and the cells of those that did not fail."""

    variant: Variant
    outcomes: List[Outcome]
    cells: Dict[str, Cell]

    @property
    def failed(self) -> List[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error is not None]


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """One row a variant, in the order of their first appearance."""
    variants = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    softmax = _softmax(outcomes)
    return [
        _row(variant, [o for o in outcomes if o.variant == variant], softmax)
        for variant in variants
    ]


def measurements(stages: Dict[str, Any], softmax: Optional[Dict[str, Any]] = None) -> Measurements:
    """Every number of one run by the name that tables and JSON know it by.

    Args:
        stages: of the run.
        softmax: of the cross_entropy run to compare with.
    """
    train, normaliser = stages["train"], stages.get("normaliser", {})
    speeds = train["words_per_second"]
    reference = softmax["train"]["words_per_second"] if softmax else {}
    return {
        **_perplexities(stages),
        **{name: normaliser.get(name) for name in NORMALISER},
        "words_per_second": speeds["value"],
        "ratio_to_softmax": _ratio(speeds["value"], reference.get("value")),
        "words_per_second_p90": speeds.get("p90"),
        "ratio_to_softmax_p90": _ratio(speeds.get("p90"), reference.get("p90")),
        "training_seconds": train["seconds"],
        "training_hours": _ratio(train["seconds"], 3600),
        "processor_seconds": train.get("processor_seconds"),
        "words_per_processor_second": _ratio(train.get("words"), train.get("processor_seconds")),
        "updates": train["updates"],
        "peak_mib": train["peak_bytes"] / 2**20,
        "parameters": train["parameters"],
        **_scoring_speeds(stages.get("score")),
        **_profile(stages.get("profile")),
        **_completion(stages.get("complete")),
    }


def cell(values: Sequence[Optional[float]]) -> Optional[Cell]:
    """None where no run has the number."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Cell(statistics.fmean(known), deviation, len(known))


def _row(variant: Variant, outcomes: List[Outcome], softmax: Dict[int, Dict[str, Any]]) -> Row:
    found = [measurements(o.stages, softmax.get(o.seed)) for o in outcomes if o.stages is not None]
    names = found[0] if found else ()
    cells = {name: cell([one.get(name) for one in found]) for name in names}
    return Row(variant, outcomes, {name: c for name, c in cells.items() if c is not None})


def _softmax(outcomes: Sequence[Outcome]) -> Dict[int, Dict[str, Any]]:
    """Stages of cross_entropy by seed: a ratio compares runs that followed each other."""
    found: Dict[int, Dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.variant.criterion == SOFTMAX and outcome.stages is not None:
            found.setdefault(outcome.seed, outcome.stages)
    return found


def _perplexities(stages: Dict[str, Any]) -> Measurements:
    """As scored; of a model that was not, the exact one of its last validation."""
    score, curve = stages.get("score"), stages["train"]["curve"]
    if score is None:
        return {"valid_ppl": curve[-1]["ppl"]} if curve else {}
    names = {"exact": "ppl", "raw": "u_ppl", "shifted": "u_ppl_shifted"}
    return {
        f"{split}_{name}": score[split][way]["ppl"]
        for split in SPLITS
        for way, name in names.items()
        if way in score[split]
    }


def _scoring_speeds(score: Optional[Dict[str, Any]]) -> Measurements:
    if score is None:
        return {}
    exact = _rate([score[split]["exact"] for split in SPLITS])
    ways = [way for way in ("raw", "shifted") if way in score[SPLITS[0]]]
    raw = _rate([score[split][way] for split in SPLITS for way in ways])
    return {
        "exact_tokens_per_second": exact,
        "unnormalised_tokens_per_second": raw,
        "scoring_ratio": _ratio(raw, exact),
    }


def _profile(profile: Optional[Dict[str, Any]]) -> Measurements:
    if profile is None:
        return {}
    parts = {f"{name}_ms": value for name, value in profile["milliseconds"].items()}
    shares = {
        "output_layer_share": 100 * profile["share"],
        "share_lowest": 100 * min(profile["share_by_round"]),
        "share_highest": 100 * max(profile["share_by_round"]),
    }
    return {**shares, **parts}


def _completion(found: Optional[Dict[str, Any]]) -> Measurements:
    """Percent of the questions."""
    if found is None:
        return {}
    names = {"exact": "accuracy", "unnormalised": "u_accuracy", "differ": "choices_that_differ"}
    return {name: found[key] for key, name in names.items() if key in found}


def _rate(evaluations: Sequence[Dict[str, float]]) -> Optional[float]:
    return _ratio(sum(e["tokens"] for e in evaluations), sum(e["seconds"] for e in evaluations))


def _ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above is not None and below else None
