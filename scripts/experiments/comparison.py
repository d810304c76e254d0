"""What compare.py makes of its runs: numbers by name, tables and JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from rendering.cells import ratio

from . import tables
from .recipes import INHERITED, SOFTMAX, Variant
from .run import Outcome
from .tables import MIB, Cell, Line
from .training import Settings

SPLITS = ("valid", "test")
NORMALISER = ("log_z", "mu_z", "sigma_z", "entropy", "entropy_correlation")
Stages = Mapping[str, Any]
Measurements = Dict[str, Optional[float]]


@dataclass(frozen=True)
class Row:
    """One variant: its outcomes, and the cells of those that did not fail."""

    variant: Variant
    outcomes: List[Outcome]
    cells: Dict[str, Cell]

    @property
    def failed(self) -> List[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.errors]

    @property
    def reason(self) -> Optional[str]:
        """Why there are no cells."""
        return self.failed[-1].error if len(self.failed) == len(self.outcomes) else None


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """One row a variant, in the order of their first appearance.

    Ratios to softmax are between runs of one seed, which followed each other.
    """
    softmax: Dict[int, Dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.system.criterion == SOFTMAX and outcome.parts:
            softmax.setdefault(outcome.case, outcome.parts)
    return [
        _row(variant, [o for o in outcomes if o.system == variant], softmax)
        for variant in dict.fromkeys(outcome.system for outcome in outcomes)
    ]


def _row(variant: Variant, outcomes: List[Outcome], softmax: Dict[int, Dict[str, Any]]) -> Row:
    found = [measurements(o.parts, softmax.get(o.case)) for o in outcomes if o.parts]
    cells = {name: cell([one.get(name) for one in found]) for name in (found or [{}])[0]}
    return Row(variant, outcomes, {name: c for name, c in cells.items() if c is not None})


def cell(values: Sequence[Optional[float]]) -> Optional[Cell]:
    """None where no run has the number."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Cell(statistics.fmean(known), deviation, len(known))


def measurements(stages: Stages, softmax: Optional[Stages] = None) -> Measurements:
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
        **_scoring_speeds(stages.get("score", {})),
        **_profile(stages.get("profile")),
        **_completion(stages.get("complete", {})),
    }


def _perplexities(stages: Mapping[str, Any]) -> Measurements:
    """As scored; of a model that was not, the exact one of its last validation."""
    score, curve = stages.get("score"), stages["train"]["curve"]
    if score is None:
        return {"valid_ppl": curve[-1]["ppl"]} if curve else {}
    ways = {"exact": "ppl", "raw": "u_ppl", "shifted": "u_ppl_shifted"}
    return {
        f"{split}_{ways[way]}": one["ppl"] for split in SPLITS for way, one in score[split].items()
    }


def _scoring_speeds(score: Mapping[str, Any]) -> Measurements:
    if not score:
        return {}
    exact, *others = ([score[split][way] for split in SPLITS] for way in score[SPLITS[0]])
    raw = _rate([one for some in others for one in some])
    return {
        "exact_tokens_per_second": _rate(exact),
        "unnormalised_tokens_per_second": raw,
        "scoring_ratio": ratio(raw, _rate(exact)),
    }


def _rate(evaluations: Sequence[Mapping[str, float]]) -> Optional[float]:
    return ratio(sum(e["tokens"] for e in evaluations), sum(e["seconds"] for e in evaluations))


def _profile(profile: Optional[Mapping[str, Any]]) -> Measurements:
    if profile is None:
        return {}
    return {
        "output_layer_share": 100 * profile["share"],
        "share_lowest": 100 * min(profile["share_by_round"]),
        "share_highest": 100 * max(profile["share_by_round"]),
        **{f"{name}_ms": value for name, value in profile["milliseconds"].items()},
    }


def _completion(found: Mapping[str, float]) -> Measurements:
    """Percent of the questions."""
    names = {"exact": "accuracy", "unnormalised": "u_accuracy", "differ": "choices_that_differ"}
    return {name: found[key] for key, name in names.items() if key in found}


# ---------------------------------------------------------------- the report


def write(outcomes: Sequence[Outcome], settings: Settings) -> None:
    """Write ``comparison.md`` and ``comparison.json``."""
    found = rows(outcomes)
    out = settings.out / "comparison"
    tables.write(out, markdown(found, settings), as_json(found, settings))


def markdown(found: Sequence[Row], settings: Settings) -> List[str]:
    """The whole report, in paragraphs."""
    recipe = settings.recipe
    parts = [f"# {recipe.name}: {recipe.about}", conditions(found, settings)]
    lines = [Line([_label(row)], row.cells, row.reason) for row in found]
    for title, shown in tables.load("reports")["comparison"].items():
        needed = shown.get("needs", "train")
        stages = next((one[needed] for one in _stages(found) if needed in one), None)
        if stages is not None or "needs" not in shown:
            values = {"unsteady": _unsteady(found), **(stages or {})}
            parts.append(tables.section(title, shown, ["criterion"], lines, **values))
    return [*parts, *failures(found), "## Flags", flags(found, settings)]


def as_json(found: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report, and each run's own numbers and curve."""
    return {
        "recipe": asdict(settings.recipe),
        "flags": settings.training,
        "scoring_flags": settings.scoring,
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "device": device(settings),
        "summary": {row.variant.label: _cells(row) for row in found},
        "runs": [_run(outcome) for row in found for outcome in row.outcomes],
    }


def device(settings: Settings) -> str:
    """cpu, or the GPU's name."""
    return settings.device if settings.device == "cpu" else settings.device_name


def conditions(found: Sequence[Row], settings: Settings) -> str:
    """Where and when; more than one machine or day if a run was taken from disk."""
    trained = [{**stages["train"], "versions": stages["versions"]} for stages in _stages(found)]
    seeds = tables.joined(outcome.case for row in found for outcome in row.outcomes)
    lines = [
        f"Data: {settings.data.name} ({settings.fingerprint}). Seeds: {seeds}. "
        f"{device(settings)}, {settings.threads} thread(s).",
        tables.where(trained),
        *tables.load_average(
            [load for t in trained for one in t["attempts"] for load in one["load"]]
        ),
    ]
    if len({t["plugin"] for t in trained}) > 1:
        lines.append(
            "**The runs were trained with different sources of fairseq_bnce** (plugin in the\n"
            "JSON file beside this); delete a run's folder to train it anew."
        )
    return "\n".join(lines)


def failures(found: Sequence[Row]) -> List[str]:
    return tables.failures(
        [
            f"{row.variant.label} seed {o.case}: failed: {tables.escaped(o.error)}, in {o.folder}"
            for row in found
            for o in row.failed
        ]
    )


def flags(found: Sequence[Row], settings: Settings) -> str:
    """Of all, of each, and of scoring."""
    lines = {"all": [*settings.recipe.training, *settings.training]}
    for row in found:
        lines[row.variant.label] = ["--criterion", row.variant.criterion, *row.variant.flags]
    scoring = f"fairseq-eval-lm, {' and '.join(INHERITED)} as in training"
    lines[scoring] = [*settings.recipe.scoring, *settings.scoring]
    return tables.flags(lines)


def _label(row: Row) -> str:
    seeds = tables.joined(outcome.case for outcome in row.failed)
    partly = row.failed and row.reason is None
    return f"{row.variant.label} (without seed {seeds})" if partly else row.variant.label


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


def _stages(found: Sequence[Row]) -> List[Dict[str, Any]]:
    return [o.parts for row in found for o in row.outcomes if o.parts]


def _cells(row: Row) -> Dict[str, Any]:
    if row.reason is not None:
        return {"failed": row.reason}
    return {name: asdict(value) for name, value in row.cells.items()}


def _run(outcome: Outcome) -> Dict[str, Any]:
    variant, stages = outcome.system, outcome.parts
    run = {**asdict(variant), "seed": outcome.case, "folder": outcome.folder}
    if outcome.errors:
        return {**run, "failed": outcome.error}
    found = stages.get("normaliser", {})
    normaliser = {name: value for name, value in found.items() if name != "histogram"}
    return {**run, **measurements(stages), **stages, "normaliser": normaliser}
