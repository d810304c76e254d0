"""The Markdown tables and the JSON of a benchmark."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .runs import LEAST_UPDATES, Outcome, Settings
from .summary import Claim, Row, claims, growth, rows
from .systems import own_flags

# (title, name of the number, format)
Columns = Sequence[Tuple[str, str, str]]
TRAINING: Columns = (
    ("words/s", "words_per_second", ",.0f"),
    ("words/processor s", "words_per_processor_second", ",.0f"),
    ("slowest interval", "slowest", ",.0f"),
    ("fastest", "fastest", ",.0f"),
    ("timed updates", "updates", ",.0f"),
    ("ms an update", "update_ms", ",.1f"),
    ("x softmax", "x_softmax", ",.2f"),
    ("x dense", "x_dense", ",.2f"),
    ("CPU %", "cpu_share", ",.0f"),
    ("process peak MiB", "process_mib", ",.0f"),
)
PHASES: Columns = (
    ("features ms", "features_phase_ms", ",.2f"),
    ("output layer ms", "output layer_phase_ms", ",.2f"),
    ("backward ms", "backward_phase_ms", ",.2f"),
    ("clip ms", "clip_phase_ms", ",.2f"),
    ("optimiser ms", "optimiser_phase_ms", ",.2f"),
    ("other ms", "other_phase_ms", ",.2f"),
    ("all ms", "phases_ms", ",.2f"),
)
MEMORY: Columns = (
    ("of an update MiB", "update_mib", ",.2f"),
    ("parameters MiB", "parameters_mib", ",.1f"),
    ("optimiser state MiB", "state_mib", ",.1f"),
    ("distinct targets a batch", "distinct_targets", ",.0f"),
)
LAYER: Columns = (
    ("ms", "layer_ms", ",.2f"),
    ("calls", "layer_calls", ",.0f"),
    ("x softmax", "layer_x_softmax", ",.2f"),
    ("x dense", "layer_x_dense", ",.2f"),
    ("memory MiB", "layer_mib", ",.2f"),
)
GROWTH: Columns = (
    ("exponent, training", "update_exponent", ".3f"),
    ("exponent, bare layer", "layer_exponent", ".3f"),
    ("words/s, largest V / smallest", "speed_kept", ".3f"),
    ("memory of an update, largest V / smallest", "memory_growth", ".3f"),
)

_ABOUT_TRAINING = f"""
fairseq-train itself, from its train_inner log lines: start-up, the first updates (two of twelve
intervals), validation and saving left out. At least {LEAST_UPDATES} timed updates, more as time
allows. x softmax and x dense: how many times as fast as cross_entropy, and as the same criterion
with dense gradients, at the same V. Words/processor s: over user and system time, which other work
on the machine lengthens least. CPU %: CPU time of fairseq-train over its time, start-up
included; well below 100 a thread, on the CPU, other work disturbed it. Process peak: its largest
resident set, on the host."""
_ABOUT_PHASES = """
Another process, fairseq's own Trainer.train_step with a clock in it; medians over the updates after
a warm-up. Features: the model up to its output projection; output layer: projection and loss;
backward: of both; clip: scaling, norm and clipping; optimiser: its step and zero_grad; other:
fairseq's seeding and statistics."""
_ABOUT_MEMORY = """
The peak of an update beyond what is held before it (parameters, optimiser state, tables of the
noise), gradients counted in: torch's own allocations, all of them traced, median over some
updates. The libraries that torch calls may use scratch space besides."""
_ABOUT_LAYER = """
Loss, gradients of features and weights, and an SGD update, without a model: {targets} targets of
the data a call, D = {features}; median over calls. x softmax, x dense and memory as above.
linear_cross_entropy is torch's, in chunks as its own LinearCrossEntropyOptions() choose them."""
_ABOUT_GROWTH = """
Cost = a V^b by least squares on logarithms over all V: b of the time of a training update and of a
call of the bare layer."""
_ABOUT_CLAIMS = """
Stated for V from 10^4 to 10^6 (over cross_entropy: V = 200,000) on the CPU; of another range this
table is a trial."""


def write(outcomes: Sequence[Outcome], settings: Settings) -> List[Row]:
    """Write ``benchmark.md`` and ``benchmark.json``; returns the rows of the tables."""
    found = rows(outcomes)
    (settings.out / "benchmark.md").write_text(markdown(found, settings), encoding="utf-8")
    content = json.dumps(as_json(found, settings), indent=1, allow_nan=False)
    (settings.out / "benchmark.json").write_text(content + "\n", encoding="utf-8")
    return found


def markdown(found: Sequence[Row], settings: Settings) -> str:
    """The whole report."""
    recipe = settings.recipe
    about_layer = _ABOUT_LAYER.format(targets=recipe.targets, features=recipe.features)
    trained = [row for row in found if row.outcome.system.criterion is not None]
    parts = [f"# Cost by vocabulary, {recipe.name}: {recipe.about}", _conditions(found, settings)]
    for part, title, columns, shown, about in (
        ("train", "Training", TRAINING, trained, _ABOUT_TRAINING),
        ("update", "Where an update's time goes", PHASES, trained, _ABOUT_PHASES),
        ("update", "Memory", MEMORY, trained, _ABOUT_MEMORY),
        ("layer", "Bare output layer", LAYER, found, about_layer),
    ):
        if part in settings.parts:
            parts += [f"## {title}", _table(part, columns, shown), about.strip()]
    parts += ["## Growth with V", _growth(found), _ABOUT_GROWTH.strip()]
    parts += ["## What it is to show", _claims(claims(found)), _ABOUT_CLAIMS.strip()]
    parts += _failures(found)
    return "\n\n".join([*parts, "## Flags", _flags(found, settings)]) + "\n"


def as_json(found: Sequence[Row], settings: Settings) -> Dict[str, Any]:
    """Everything of the report, and each run's own parts."""
    shared = asdict(settings)
    shared.update(out=settings.out.name, plugin=settings.plugin.name)
    return {
        "settings": shared,
        "growth": growth(found),
        "claims": [asdict(claim) for claim in claims(found)],
        "runs": [_run(row) for row in found],
    }


def _run(row: Row) -> Dict[str, Any]:
    outcome = row.outcome
    run: Dict[str, Any] = {"system": row.system, "vocab": row.vocab, "folder": outcome.folder}
    if outcome.skipped is not None:
        return {**run, "skipped": outcome.skipped}
    if outcome.errors:
        run["failed"] = outcome.errors
    return {**run, **row.numbers, "parts": outcome.parts}


def _table(part: str, columns: Columns, found: Sequence[Row]) -> str:
    head = ["system", "V", *(title for title, _, _ in columns)]
    lines = [_line(head), _line(["---", *("---:" for _ in head[1:])])]
    lines += [_line([r.system, f"{r.vocab:,}", *_values(part, columns, r)]) for r in found]
    return "\n".join(lines)


def _values(part: str, columns: Columns, row: Row) -> List[str]:
    reason = row.outcome.errors.get(part)
    text = f"failed: {reason}" if reason is not None else row.outcome.skipped
    if text is not None:
        return [_escaped(text), *("" for _ in columns[1:])]
    return [_shown(row.numbers.get(name), form) for _, name, form in columns]


def _growth(found: Sequence[Row]) -> str:
    head = ["system", *(title for title, _, _ in GROWTH)]
    lines = [_line(head), _line(["---", *("---:" for _ in GROWTH)])]
    for system, numbers in growth(found).items():
        lines.append(_line([system, *(_shown(numbers[name], form) for _, name, form in GROWTH)]))
    return "\n".join(lines)


def _claims(stated: Sequence[Claim]) -> str:
    lines = [_line(["", "required", "found", ""]), _line(["---", "---:", "---:", "---"])]
    for claim in stated:
        verdict = {True: "met", False: "**not met**", None: "not measured"}[claim.is_met]
        lines.append(_line([claim.text, claim.required, _shown(claim.found, ".3f"), verdict]))
    return "\n".join(lines)


def _failures(found: Sequence[Row]) -> List[str]:
    lines = [
        f"- {row.system} V={row.vocab:,}: {part} failed: {_escaped(error)}, in {row.outcome.folder}"
        for row in found
        for part, error in row.outcome.errors.items()
    ]
    return ["## Failed", "\n".join(lines)] if lines else []


def _flags(found: Sequence[Row], settings: Settings) -> str:
    """Those of the largest V; another one's differ in what follows from it."""
    largest = max(row.vocab for row in found)
    lines = [f"- all: `{shlex.join(settings.flags)}`"]
    for system in dict.fromkeys(row.outcome.system for row in found):
        flags = own_flags(system, settings.recipe, largest)
        if flags:
            lines.append(f"- {system.name}, V = {largest:,}: `{shlex.join(flags)}`")
    return "\n".join(lines)


def _conditions(found: Sequence[Row], settings: Settings) -> str:
    """Where and when; more than one machine or day if a run was taken from disk."""
    parts = [part for row in found for part in row.outcome.parts.values()]
    machines = {"{processor}, {cores} cores".format(**part["hardware"]) for part in parts}
    versions = {
        ", ".join(f"{name} {version}" for name, version in part["versions"].items())
        for part in parts
    }
    loads = [load for part in parts for load in part["ended"]["load"]]
    exponent, shift = settings.zipf
    lines = [
        f"Device: {settings.device} ({settings.device_name}), {settings.threads} thread(s). "
        f"Machine: {_joined(machines)}. Date: {_joined(p['date'] for p in parts)}. "
        f"{_joined(versions)}.",
        f"{settings.recipe.targets} targets a batch. Data: words of rank r as 1 / (r + {shift:g})^"
        f"{exponent:g}, independent; {settings.tokens:,} training tokens, seed {settings.seed}.",
    ]
    if loads:
        lines.append(f"Load average around the runs: {min(loads):.1f} to {max(loads):.1f}.")
    own = {p["plugin"] for r in found if r.outcome.system.is_own for p in r.outcome.parts.values()}
    if len(own) > 1:
        lines.append("**The runs were made with different sources of fairseq_bnce.**")
    return "\n".join(lines)


def _joined(values: Any) -> str:
    return ", ".join(sorted(set(values))) or "–"


def _shown(value: Optional[float], form: str) -> str:
    return "–" if value is None else format(value, form)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
