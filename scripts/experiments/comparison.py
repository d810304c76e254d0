"""The numbers of a training by their names, and the report of compare.py."""

import json
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from rendering.cells import NAMES, measured, ratio

from . import plot, report
from .report import MIB
from .run import Outcome, failures

SPLITS = ("valid", "test")
_PICTURE = "validation.png"
Stages = Mapping[str, Any]
Measurements = Dict[str, Optional[float]]


def measurements(stages: Stages) -> Measurements:
    """Return every number of a run, by the name that tables and JSON use."""
    if not stages:
        return {}
    train, normaliser = stages["train"], stages.get("normaliser", {})
    names = ("log_z", "mu_z", "sigma_z", "entropy", "entropy_correlation")
    logged = ("words_per_second", "processor_seconds", "updates", "parameters")
    return {
        **_scores(stages),
        **{name: normaliser.get(name) for name in names},
        **{name: train[name] for name in logged},
        "training_seconds": train["seconds"],
        "training_hours": ratio(train["seconds"], 3600),
        "words_per_processor_second": ratio(train["words"], train["processor_seconds"]),
        "peak_mib": train["peak_bytes"] / MIB,
        **{f"{name}_ms": ms for name, ms in stages.get("profile", {}).items()},
        **stages.get("complete", {}),
    }


def _scores(stages: Stages) -> Measurements:
    """Return perplexities and speeds of scoring, or the last validation's perplexity."""
    score, curve = stages.get("score"), stages["train"]["curve"]
    if score is None:
        return {"valid_ppl": curve[-1]["ppl"]} if curve else {}

    def rate(ways: Sequence[str]) -> Optional[float]:
        found = [score[split][way] for split in SPLITS for way in ways]
        return ratio(sum(e["tokens"] for e in found), sum(e["seconds"] for e in found))

    ways = {"exact": "ppl", "raw": "u_ppl", "shifted": "u_ppl_shifted"}
    found: Measurements = {
        f"{split}_{ways[way]}": one["ppl"] for split in SPLITS for way, one in score[split].items()
    }
    exact, *others = score[SPLITS[0]]
    found["exact_tokens_per_second"] = rate([exact])
    return {**found, "unnormalised_tokens_per_second": rate(others)}


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
    for title, shown in report.load("reports").items():
        columns = [(head, name, form) for name, (head, form) in shown["columns"].items()]
        if any(name in numbers for _, name, _ in columns for numbers in values.values()):
            table = "\n".join(measured(["criterion"], columns, lines))
            parts.append(f"## {title}\n\n{table}\n\n{shown['about'].strip()}")
    return report.write(settings.out / "comparison", [*parts, *failures(outcomes)], content)


def draw(results: Path) -> str:
    """Draw validation perplexity against training time beside a comparison.json."""
    content = json.loads(results.read_text(encoding="utf-8"))
    curves: Dict[str, List[Any]] = {}
    for one in content["runs"]:
        points = [(p.get("seconds"), p.get("ppl")) for p in one.get("train", {}).get("curve", [])]
        known = [(t, p) for t, p in points if None not in (t, p) and math.isfinite(p)]
        curves.setdefault(one["label"], known)  # of several seeds, the first
    axes = {"xlabel": "training time, validation left out (s)", "yscale": "log"}
    axes["ylabel"] = "validation perplexity (exact)"
    data = content["data"]
    corpus = NAMES["corpora"].get(data["fingerprint"], data["name"])
    title = f"{corpus}, {content['recipe']['about'].replace(' x ', ' × ')}"
    fill = partial(plot.lines, [plot.Panel([*curves.items()], axes)], title)
    return plot.draw(fill, results.with_name(_PICTURE))


def where(settings: Any) -> Dict[str, Any]:
    """Return the data, and the threads or the GPU."""
    return {
        "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
        "threads": settings.threads,
        "device": settings.device if settings.device == "cpu" else settings.device_name,
    }


def _values(outcomes: Sequence[Outcome]) -> Dict[str, Dict[str, List[float]]]:
    """Return every known number of each label, for each seed."""
    found: Dict[str, Dict[str, List[float]]] = {}
    for o in outcomes:
        own = found.setdefault(o.system.label, {})
        for name, value in measurements(o.parts).items():
            if value is not None:
                own.setdefault(name, []).append(value)
    return found


def _summary(numbers: Mapping[str, Sequence[float]]) -> Dict[str, Dict[str, Any]]:
    """Return mean and sample standard deviation over seeds of each number."""
    found = {}
    for name, values in numbers.items():
        deviation = statistics.stdev(values) if len(values) > 1 else None
        mean = statistics.fmean(values)
        found[name] = {"mean": mean, "deviation": deviation, "count": len(values)}
    return found


def _run(outcome: Outcome) -> Dict[str, Any]:
    run = {**outcome.system._asdict(), "seed": outcome.case, "folder": outcome.folder}
    if outcome.error:
        return {**run, "failed": outcome.error}
    return {**run, **measurements(outcome.parts), **outcome.parts}
