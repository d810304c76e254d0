"""The Markdown tables and the JSON of a comparison."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .recipes import INHERITED
from .runs import Outcome, Settings
from .summary import Cell, Row, measurements, rows

# (title, name of the measurement, format of a number)
Columns = Sequence[Tuple[str, str, str]]
PERPLEXITY: Columns = (
    ("test PPL^f", "test_ppl", ".2f"),
    ("test PPL^n", "test_u_ppl", ".2f"),
    ("test PPL^n shifted", "test_u_ppl_shifted", ".2f"),
    ("valid PPL^f", "valid_ppl", ".2f"),
    ("valid PPL^n", "valid_u_ppl", ".2f"),
    ("valid PPL^n shifted", "valid_u_ppl_shifted", ".2f"),
    ("mu_z", "mu_z", ".3f"),
    ("sigma_z", "sigma_z", ".3f"),
)
TRAINING: Columns = (
    ("words/s", "words_per_second", ",.0f"),
    ("x softmax", "ratio_to_softmax", ".2f"),
    ("p90 words/s", "words_per_second_p90", ",.0f"),
    ("x softmax", "ratio_to_softmax_p90", ".2f"),
    ("training s", "training_seconds", ",.0f"),
    ("processor s", "processor_seconds", ",.0f"),
    ("words/processor s", "words_per_processor_second", ",.0f"),
    ("updates", "updates", ",.0f"),
    ("peak memory MiB", "peak_mib", ",.0f"),
    ("parameters", "parameters", ",.0f"),
)
PROFILE: Columns = (
    ("output layer's share %", "output_layer_share", ".1f"),
    ("lowest round", "share_lowest", ".1f"),
    ("highest round", "share_highest", ".1f"),
    ("a: features ms", "features_ms", ".2f"),
    ("b: criterion ms", "criterion_ms", ".2f"),
    ("c: optimiser ms", "optimiser_ms", ".2f"),
)
SCORING: Columns = (
    ("exact tokens/s", "exact_tokens_per_second", ",.0f"),
    ("unnormalised tokens/s", "unnormalised_tokens_per_second", ",.0f"),
    ("unnormalised / exact", "scoring_ratio", ".2f"),
)
COMPLETION: Columns = (
    ("right % exact", "accuracy", ".1f"),
    ("right % unnormalised", "u_accuracy", ".1f"),
    ("choices that differ %", "choices_that_differ", ".1f"),
)

_ABOUT_PERPLEXITY = """
PPL^f is exact, as fairseq-eval-lm prints it; PPL^n takes m - log Z as the log-probability, with no
work over the vocabulary (--unnormalized --log-z-shift none); shifted also takes mu_z of the
validation data off every score, on test too. mu_z and sigma_z are mean and standard deviation of
log Z_c - log Z over the validation contexts, nats. cross_entropy trains no constant: its log Z
is 0, and it has no PPL^n. adaptive_loss is fairseq's adaptive softmax, scored by fairseq itself:
its log-probabilities are normalised, cluster by cluster."""
_ABOUT_TRAINING = """
Words/s: training targets over time between fairseq's train_inner lines, without the first 100
updates after a start and without the intervals in which it validated or saved; p90 is the 90th
percentile over these intervals, which other work on the machine disturbs less. Ratios are between
runs of the same seed. Training s leaves out validation and saving; so does processor s, user and
system time, which other work on the machine disturbs least. Peak memory is the largest
resident set of the fairseq-train process."""
_ABOUT_PROFILE = """
A separate run on {batches} training batches with the trained model, {repeats} rounds, medians over
the batches: (a) forward to the features and back from a dummy loss on them, (b) forward and
backward of the criterion, (c) scaling and clipping of the gradients, optimiser step, zero_grad.
The output layer's share is (b - a) / (b + c); what its weights cost in c is not counted to it."""
_ABOUT_SCORING = """
From fairseq-eval-lm's own "Evaluated N tokens" lines, decoder included: exact over valid and test,
unnormalised over both, with and without the shift."""
_ABOUT_COMPLETION = """
The Microsoft Research Sentence Completion Challenge, the likeliest of five sentences. Those of an
adaptive softmax by fairseq's SequenceScorer, all others by fairseq-bnce complete."""


def write(outcomes: Sequence[Outcome], settings: Settings, out: Path) -> None:
    """Write ``comparison.md`` and ``comparison.json``."""
    found = rows(outcomes)
    (out / "comparison.md").write_text(markdown(found, settings), encoding="utf-8")
    content = json.dumps(as_json(found, settings), indent=1, allow_nan=False)
    (out / "comparison.json").write_text(content + "\n", encoding="utf-8")


def markdown(found: Sequence[Row], settings: Settings) -> str:
    """The whole report."""
    recipe = settings.recipe
    parts = [f"# {recipe.name}: {recipe.about}", conditions(found, settings)]
    parts += _section("Perplexity", PERPLEXITY, found, _ABOUT_PERPLEXITY)
    parts += _section("Training", TRAINING, found, _ABOUT_TRAINING + _unsteady(found))
    profile = next((s["profile"] for s in _stages(found) if "profile" in s), None)
    if profile is not None:
        about = _ABOUT_PROFILE.format(**profile)
        parts += _section("Where an update's time goes", PROFILE, found, about)
    if any("score" in stages for stages in _stages(found)):
        parts += _section("Scoring", SCORING, found, _ABOUT_SCORING)
    if any("complete" in stages for stages in _stages(found)):
        parts += _section("Sentence completion", COMPLETION, found, _ABOUT_COMPLETION)
    parts += failures(found)
    return "\n\n".join([*parts, "## Flags", flags(found, settings)]) + "\n"


def as_json(found: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report, and each run's own numbers and curve."""
    return strict(
        {
            "recipe": asdict(settings.recipe),
            "flags": list(settings.training),
            "scoring_flags": list(settings.scoring),
            "data": {"name": settings.data.name, "fingerprint": settings.fingerprint},
            "threads": settings.threads,
            "summary": {row.variant.label: _cells(row) for row in found},
            "runs": [_run(outcome) for row in found for outcome in row.outcomes],
        }
    )


def _section(title: str, columns: Columns, found: Sequence[Row], about: str) -> List[str]:
    return [f"## {title}", _table(columns, found), about.strip()]


def _table(columns: Columns, found: Sequence[Row]) -> str:
    lines = [_line(["criterion", *(title for title, _, _ in columns)])]
    lines.append(_line(["---", *("---:" for _ in columns)]))
    lines += [_line([_label(row), *_values(row, columns)]) for row in found]
    return "\n".join(lines)


def _values(row: Row, columns: Columns) -> List[str]:
    if len(row.failed) == len(row.outcomes):
        rest = [""] * (len(columns) - 1)
        return [f"failed: {_escaped(row.failed[-1].error)}", *rest]
    return [shown(row.cells.get(name), form) for _, name, form in columns]


def shown(value: Optional[Cell], form: str) -> str:
    if value is None:
        return "–"
    if value.deviation is None:
        return _number(value.mean, form)
    return f"{_number(value.mean, form)} ± {_number(value.deviation, form)}"


def _number(value: float, form: str) -> str:
    """A perplexity of raw scores can have any size."""
    fits = form != ".2f" or 1 <= value < 1e6
    return format(value, form if fits else ".3g")


def _label(row: Row) -> str:
    seeds = ", ".join(str(outcome.seed) for outcome in row.failed)
    partly = row.failed and len(row.failed) < len(row.outcomes)
    return f"{row.variant.label} (without seed {seeds})" if partly else row.variant.label


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: Optional[str]) -> str:
    return (text or "").replace("|", "\\|")


def conditions(found: Sequence[Row], settings: Settings) -> str:
    """Where and when; more than one machine or day if a run was taken from disk."""
    trained = [stages["train"] for stages in _stages(found)]
    machines = sorted({"{processor}, {cores} cores".format(**t["hardware"]) for t in trained})
    dates = sorted({t["date"] for t in trained})
    seeds = sorted({outcome.seed for row in found for outcome in row.outcomes})
    loads = [load for t in trained for attempt in t["attempts"] for load in attempt["load"]]
    lines = [
        f"Data: {settings.data.name} ({settings.fingerprint}). Seeds: {_joined(seeds)}.",
        f"Machine: {_joined(machines) or 'no run was trained'}, {settings.threads} thread(s). "
        f"Date: {_joined(dates) or '–'}. {_versions(found)}",
    ]
    if loads:
        lines.append(f"Load average around the trainings: {min(loads):.1f} to {max(loads):.1f}.")
    if len({t["plugin"] for t in trained}) > 1:
        lines.append(
            "**The runs were trained with different sources of fairseq_bnce** (plugin in the"
        )
        lines.append("JSON file beside this); delete a run's folder to train it anew.")
    return "\n".join(lines)


def _versions(found: Sequence[Row]) -> str:
    versions = next((s["versions"] for s in _stages(found)), {})
    return ", ".join(f"{name} {version}" for name, version in versions.items()) + "."


def _unsteady(found: Sequence[Row]) -> str:
    labels = [
        f"{row.variant.label} seed {o.seed}"
        for row in found
        for o in row.outcomes
        if o.stages is not None and not o.stages["train"]["words_per_second"]["steady"]
    ]
    if not labels:
        return ""
    return f"\n**Too short for that, so the first 100 updates count in: {', '.join(labels)}.**"


def failures(found: Sequence[Row]) -> List[str]:
    lines = [
        f"- {row.variant.label} seed {o.seed}: failed: {_escaped(o.error)}, in {o.folder}"
        for row in found
        for o in row.failed
    ]
    return ["## Failed", "\n".join(lines)] if lines else []


def flags(found: Sequence[Row], settings: Settings) -> str:
    lines = [f"- all: `{shlex.join([*settings.recipe.training, *settings.training])}`"]
    for row in found:
        flags = ["--criterion", row.variant.criterion, *row.variant.flags]
        lines.append(f"- {row.variant.label}: `{shlex.join(flags)}`")
    scoring = [*settings.recipe.scoring, *settings.scoring]
    lines.append(f"- fairseq-eval-lm, {' and '.join(INHERITED)} as in training: `")
    lines[-1] += f"{shlex.join(scoring)}`"
    return "\n".join(lines)


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)


def _stages(found: Sequence[Row]) -> List[Dict[str, Any]]:
    return [o.stages for row in found for o in row.outcomes if o.stages is not None]


def _cells(row: Row) -> Dict[str, Any]:
    if len(row.failed) == len(row.outcomes):
        return {"failed": row.failed[-1].error}
    return {name: asdict(value) for name, value in row.cells.items()}


def _run(outcome: Outcome) -> Dict[str, Any]:
    run: Dict[str, Any] = {"label": outcome.variant.label, "criterion": outcome.variant.criterion}
    run.update(flags=list(outcome.variant.flags), seed=outcome.seed, folder=outcome.folder)
    if outcome.stages is None:
        return {**run, "failed": outcome.error}
    found = outcome.stages.get("normaliser", {})
    normaliser = {name: value for name, value in found.items() if name != "histogram"}
    return {**run, **measurements(outcome.stages), **outcome.stages, "normaliser": normaliser}


def strict(content: Any) -> Any:
    """JSON has no inf or nan: as strings, which say what came out."""
    if isinstance(content, dict):
        return {key: strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [strict(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
