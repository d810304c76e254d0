"""The numbers of a training by their names, and the report of compare.py."""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence

from rendering.cells import SOFTMAX, ratio

from . import report
from .report import MIB
from .run import Outcome, failures

SPLITS = ("valid", "test")
Stages = Mapping[str, Any]
Measurements = Dict[str, Optional[float]]


def measurements(stages: Stages, softmax: Optional[Stages] = None) -> Measurements:
    """Return every number of a run, by the name that tables and JSON use.

    Args:
        stages: of the run.
        softmax: of the cross_entropy run for the ratios.
    """
    if not stages:
        return {}
    train, normaliser = stages["train"], stages.get("normaliser", {})
    speeds = train["words_per_second"]
    reference = softmax["train"]["words_per_second"] if softmax else {}
    names = ("log_z", "mu_z", "sigma_z", "entropy", "entropy_correlation")
    return {
        **_perplexities(stages),
        **{name: normaliser.get(name) for name in names},
        "words_per_second": speeds["value"],
        "ratio_to_softmax": ratio(speeds["value"], reference.get("value")),
        "training_seconds": train["seconds"],
        "training_hours": ratio(train["seconds"], 3600),
        "processor_seconds": train["processor_seconds"],
        "words_per_processor_second": ratio(train["words"], train["processor_seconds"]),
        "updates": train["updates"],
        "peak_mib": train["peak_bytes"] / MIB,
        "parameters": train["parameters"],
        **_scoring_speeds(stages.get("score")),
        **_profile_and_completion(stages.get("profile"), stages.get("complete", {})),
    }


def _perplexities(stages: Stages) -> Measurements:
    """Return the scored perplexities; without scores, the last validation's."""
    score, curve = stages.get("score"), stages["train"]["curve"]
    if score is None:
        return {"valid_ppl": curve[-1]["ppl"]} if curve else {}
    ways = {"exact": "ppl", "raw": "u_ppl", "shifted": "u_ppl_shifted"}
    return {
        f"{split}_{ways[way]}": one["ppl"] for split in SPLITS for way, one in score[split].items()
    }


def _scoring_speeds(score: Optional[Stages]) -> Measurements:
    if score is None:
        return {}

    def rate(ways: Sequence[str]) -> Optional[float]:
        found = [score[split][way] for split in SPLITS for way in ways]
        return ratio(sum(e["tokens"] for e in found), sum(e["seconds"] for e in found))

    exact, *others = score[SPLITS[0]]
    return {
        "exact_tokens_per_second": rate([exact]),
        "unnormalised_tokens_per_second": rate(others),
        "scoring_ratio": ratio(rate(others), rate([exact])),
    }


def _profile_and_completion(profile: Optional[Stages], complete: Stages) -> Measurements:
    """Return shares and milliseconds of an update, and shares of the questions; in per cent."""
    names = {"exact": "accuracy", "unnormalised": "u_accuracy", "differ": "choices_that_differ"}
    found: Measurements = {names[key]: complete[key] for key in names if key in complete}
    if profile:
        found["output_layer_share"] = 100 * profile["share"]
        found.update({f"{name}_ms": ms for name, ms in profile["milliseconds"].items()})
    return found


# ---------------------------------------------------------------- the report


def write(outcomes: Sequence[Outcome], settings: Any) -> str:
    """Write ``comparison.md`` and ``comparison.json``, and return the former."""
    recipe, values = settings.recipe, _values(outcomes)
    content = {
        "recipe": recipe._asdict(),
        "flags": settings.training,
        **where(settings),
        "summary": {label: _summary(numbers) for label, numbers in values.items()},
        "runs": [_run(outcome) for outcome in outcomes],
    }
    lines = [([label], numbers) for label, numbers in values.items()]
    parts = [f"# {recipe.name}: {recipe.about}"]
    parts += [*report.sections("comparison", ["criterion"], lines), *failures(outcomes)]
    return report.write(settings.out / "comparison", parts, content)


def where(settings: Any) -> Dict[str, Any]:
    """Return the data, and the threads or the GPU."""
    return {
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "device": settings.device if settings.device == "cpu" else settings.device_name,
    }


def _values(outcomes: Sequence[Outcome]) -> Dict[str, Dict[str, List[Optional[float]]]]:
    """Return every number of each label, for each seed.

    Ratios to the softmax are between runs with the same seed, which followed each other.
    """
    softmax = {o.case: o.parts for o in outcomes if o.system.criterion == SOFTMAX}
    found: Dict[str, Dict[str, List[Optional[float]]]] = {}
    for o in outcomes:
        own = found.setdefault(o.system.label, {})
        for name, value in measurements(o.parts, softmax.get(o.case)).items():
            own.setdefault(name, []).append(value)
    return found


def _summary(numbers: Mapping[str, Sequence[Optional[float]]]) -> Dict[str, Dict[str, Any]]:
    """Return mean and sample standard deviation over seeds of each known number."""
    found = {}
    for name, values in numbers.items():
        known = [value for value in values if value is not None]
        if known:
            deviation = statistics.stdev(known) if len(known) > 1 else None
            mean = statistics.fmean(known)
            found[name] = {"mean": mean, "deviation": deviation, "count": len(known)}
    return found


def _run(outcome: Outcome) -> Dict[str, Any]:
    run = {**outcome.system._asdict(), "seed": outcome.case, "folder": outcome.folder}
    if outcome.error:
        return {**run, "failed": outcome.error}
    return {**run, **measurements(outcome.parts), **outcome.parts}
