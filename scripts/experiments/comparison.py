"""The report of compare.py: numbers by name, tables and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from rendering.cells import ratio

from . import tables
from .recipes import INHERITED, SOFTMAX, Variant
from .run import Outcome
from .tables import MIB, Cell, Line

SPLITS = ("valid", "test")
NORMALISER = ("log_z", "mu_z", "sigma_z", "entropy", "entropy_correlation")
Stages = Mapping[str, Any]
Measurements = Dict[str, Optional[float]]


class Row(NamedTuple):
    """A variant with its outcomes, and the numbers of those that did not fail."""

    variant: Variant
    outcomes: List[Outcome]
    cells: Dict[str, Cell]

    @property
    def reason(self) -> Optional[str]:
        """The reason why there are no numbers."""
        return self.outcomes[-1].error if all(o.errors for o in self.outcomes) else None


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """Return one row for each variant.

    Ratios to the softmax are between runs with the same seed, which followed each other.
    """
    softmax: Dict[int, Dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.system.criterion == SOFTMAX and outcome.parts:
            softmax.setdefault(outcome.case, outcome.parts)
    found = []
    for variant in dict.fromkeys(outcome.system for outcome in outcomes):
        own = [o for o in outcomes if o.system == variant]
        numbers = [measurements(o.parts, softmax.get(o.case)) for o in own if o.parts]
        cells = {name: Cell.over(one.get(name) for one in numbers) for name in (numbers or [{}])[0]}
        found.append(Row(variant, own, {name: c for name, c in cells.items() if c is not None}))
    return found


def measurements(stages: Stages, softmax: Optional[Stages] = None) -> Measurements:
    """Return every number of a run, by the name that tables and JSON use.

    Args:
        stages: of the run.
        softmax: of the cross_entropy run for the ratios.
    """
    train, normaliser = stages["train"], stages.get("normaliser", {})
    speeds = train["words_per_second"]
    reference = softmax["train"]["words_per_second"] if softmax else {}
    return {
        **_perplexities(stages),
        **{name: normaliser.get(name) for name in NORMALISER},
        "words_per_second": speeds["value"],
        "ratio_to_softmax": ratio(speeds["value"], reference.get("value")),
        "words_per_second_p90": speeds.get("p90"),
        "ratio_to_softmax_p90": ratio(speeds.get("p90"), reference.get("p90")),
        "training_seconds": train["seconds"],
        "training_hours": ratio(train["seconds"], 3600),
        "processor_seconds": train.get("processor_seconds"),
        "words_per_processor_second": ratio(train.get("words"), train.get("processor_seconds")),
        "updates": train["updates"],
        "peak_mib": train["peak_bytes"] / MIB,
        "parameters": train["parameters"],
        **_scoring_speeds(stages.get("score")),
        **_profile(stages.get("profile")),
        **_completion(stages.get("complete", {})),
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


def _profile(profile: Optional[Stages]) -> Measurements:
    if profile is None:
        return {}
    return {
        "output_layer_share": 100 * profile["share"],
        "share_lowest": 100 * min(profile["share_by_round"]),
        "share_highest": 100 * max(profile["share_by_round"]),
        **{f"{name}_ms": value for name, value in profile["milliseconds"].items()},
    }


def _completion(found: Mapping[str, float]) -> Measurements:
    """Return shares of the questions, in per cent."""
    names = {"exact": "accuracy", "unnormalised": "u_accuracy", "differ": "choices_that_differ"}
    return {name: found[key] for key, name in names.items() if key in found}


# ---------------------------------------------------------------- the report


def write(outcomes: Sequence[Outcome], settings: Any) -> None:
    """Write ``comparison.md`` and ``comparison.json``."""
    found = rows(outcomes)
    out = settings.out / "comparison"
    tables.write(out, _markdown(found, settings), _as_json(found, settings))


def _markdown(found: Sequence[Row], settings: Any) -> List[str]:
    recipe = settings.recipe
    parts = [f"# {recipe.name}: {recipe.about}", conditions(found, settings)]
    lines = [Line([_label(row)], row.cells, row.reason) for row in found]
    stages = [o.parts for row in found for o in row.outcomes if o.parts]
    for title, shown in tables.load("reports")["comparison"].items():
        needed = shown.get("needs", "train")
        values = next((one[needed] for one in stages if needed in one), None)
        if values is not None or "needs" not in shown:
            unsteady = {"unsteady": _unsteady(found)}
            parts.append(
                tables.section(title, shown, ["criterion"], lines, **{**unsteady, **(values or {})})
            )
    return [*parts, *details(found, settings)]


def _as_json(found: Sequence[Row], settings: Any) -> Dict[str, Any]:
    return {
        "recipe": settings.recipe._asdict(),
        "flags": settings.training,
        "scoring_flags": settings.scoring,
        **where(settings),
        "summary": {row.variant.label: _cells(row) for row in found},
        "runs": [_run(outcome) for row in found for outcome in row.outcomes],
    }


def where(settings: Any) -> Dict[str, Any]:
    """Return the data, and the threads or the GPU."""
    return {
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "device": settings.device if settings.device == "cpu" else settings.device_name,
    }


def conditions(found: Sequence[Row], settings: Any) -> str:
    """Say where and when the runs were made."""
    stages = [o.parts for row in found for o in row.outcomes if o.parts]
    trained = [{**one["train"], "versions": one["versions"]} for one in stages]
    seeds = tables.joined(outcome.case for row in found for outcome in row.outcomes)
    about = f"Data: {settings.data.name} ({settings.fingerprint}). Seeds: {seeds}. "
    about += f"{where(settings)['device']}, {settings.threads} thread(s)."
    loads = [load for one in trained for attempt in one["attempts"] for load in attempt["load"]]
    return tables.conditions([about], trained, loads)


def details(found: Sequence[Row], settings: Any) -> List[str]:
    """Return the last parts of a report: failed runs, and all flags."""
    failed = {
        f"{row.variant.label} seed {o.case}:": (o.error, o.folder)
        for row in found
        for o in row.outcomes
        if o.errors
    }
    lines = {"all": [*settings.recipe.training, *settings.training]}
    for row in found:
        lines[row.variant.label] = ["--criterion", row.variant.criterion, *row.variant.flags]
    scoring = f"fairseq-eval-lm, {' and '.join(INHERITED)} as in training"
    lines[scoring] = [*settings.recipe.scoring, *settings.scoring]
    return [*tables.failures(failed), "## Flags", tables.flags(lines)]


def _label(row: Row) -> str:
    failed = [outcome.case for outcome in row.outcomes if outcome.errors]
    partly = failed and row.reason is None
    return row.variant.label + (f" (without seed {tables.joined(failed)})" if partly else "")


def _unsteady(found: Sequence[Row]) -> str:
    labels = [
        f"{row.variant.label} seed {o.case}"
        for row in found
        for o in row.outcomes
        if o.parts and not o.parts["train"]["words_per_second"]["steady"]
    ]
    if not labels:
        return ""
    return f"**Too short for that, so the first 100 updates count in: {', '.join(labels)}.**"


def _cells(row: Row) -> Dict[str, Any]:
    if row.reason is not None:
        return {"failed": row.reason}
    return {name: asdict(value) for name, value in row.cells.items()}


def _run(outcome: Outcome) -> Dict[str, Any]:
    stages = outcome.parts
    run = {**outcome.system._asdict(), "seed": outcome.case, "folder": outcome.folder}
    if outcome.errors:
        return {**run, "failed": outcome.error}
    found = stages.get("normaliser", {})
    normaliser = {name: value for name, value in found.items() if name != "histogram"}
    return {**run, **measurements(stages), **stages, "normaliser": normaliser}
