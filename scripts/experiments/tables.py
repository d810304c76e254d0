"""Reports: tables in Markdown, and JSON."""

from __future__ import annotations

import functools
import json
import math
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs
from rendering.cells import NONE, Columns, table

MIB = 2**20


@dataclass(frozen=True)
class Cell:
    """Mean and sample standard deviation (None for one value) over seeds."""

    mean: float
    deviation: Optional[float]
    count: int

    @classmethod
    def over(cls, values: Iterable[Optional[float]]) -> Optional[Cell]:
        """Return the cell of several runs, or None where no run has the number."""
        known = [value for value in values if value is not None]
        deviation = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), deviation, len(known)) if known else None


class Line(NamedTuple):
    """A line of a table: labels, and numbers by name, or the error of a failed run."""

    labels: Sequence[str]
    numbers: Mapping[str, Any]
    error: Optional[str] = None


@functools.lru_cache(maxsize=None)
def load(name: str) -> Any:
    """Return the content of a YAML file beside this module."""
    path = Path(__file__).with_name(f"{name}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def section(
    title: str, found: Mapping[str, Any], heads: Sequence[str], lines: Iterable[Line], **values: Any
) -> str:
    """Return a table with its title and explanation.

    Args:
        found: columns and text, as in reports.yaml.
        heads: titles of the labels.
        **values: for the placeholders of the text.
    """
    text = found["about"].format(**values).strip()
    return f"## {title}\n\n{measured(heads, columns(found['columns']), lines)}\n\n{text}"


def columns(found: Mapping[str, Sequence[str]]) -> Columns:
    """Return the columns of {name: [title, format]}."""
    return [(title, name, form) for name, (title, form) in found.items()]


def measured(heads: Sequence[str], chosen: Columns, lines: Iterable[Line]) -> str:
    """Return a table of numbers."""
    titles = [*heads, *(title for title, _, _ in chosen)]
    return "\n".join(table(titles, [[*line.labels, *_cells(line, chosen)] for line in lines]))


def _cells(line: Line, chosen: Columns) -> List[str]:
    if line.error is not None:
        return [escaped(f"failed: {line.error}"), *("" for _ in chosen[1:])]
    return [_shown(line.numbers.get(name), form) for _, name, form in chosen]


def _shown(value: Any, form: str) -> str:
    if value is None:
        return NONE
    if not isinstance(value, Cell):
        return _number(value, form)
    deviation = "" if value.deviation is None else f" ± {_number(value.deviation, form)}"
    return _number(value.mean, form) + deviation


def _number(value: Any, form: str) -> str:
    """Format a number; a perplexity of raw scores can have any size."""
    fits = form != ".2f" or 1 <= value < 1e6
    return format(value, form if fits else ".3g")


def escaped(text: Any) -> str:
    return str(text).replace("|", "\\|")


def joined(values: Iterable[Any]) -> str:
    """List distinct values in order."""
    return ", ".join(map(str, sorted(set(values)))) or NONE


def conditions(
    about: Sequence[str], parts: Sequence[Mapping[str, Any]], loads: Sequence[float]
) -> str:
    """Say where, when and with which versions runs were made.

    Args:
        about: the first lines.
        parts: with hardware, date and versions, and the plugin's fingerprint where it matters.
        loads: load averages around the runs.
    """
    machines = joined("{processor}, {cores} cores".format(**part["hardware"]) for part in parts)
    versions = joined(
        ", ".join(f"{name} {version}" for name, version in part["versions"].items() if version)
        for part in parts
    )
    dates = joined(part["date"] for part in parts)
    lines = [*about, f"Machine: {machines}. Date: {dates}. {versions}."]
    if loads:
        lines.append(f"Load average around the runs: {min(loads):.1f} to {max(loads):.1f}.")
    if len({part["plugin"] for part in parts if part.get("plugin")}) > 1:
        lines.append(
            "**The runs were made with different sources of fairseq_bnce** (plugin in the JSON\n"
            "file beside this report); delete the folder of a run to make it again."
        )
    return "\n".join(lines)


def flags(lines: Mapping[str, Sequence[str]]) -> str:
    """List command lines by their purpose, without empty ones."""
    return "\n".join(f"- {label}: `{shlex.join(some)}`" for label, some in lines.items() if some)


def failures(lines: Mapping[str, Any]) -> List[str]:
    """List failed runs: their names with the part, and (error, folder)."""
    shown = [f"- {name} failed: {escaped(why)}, in {place}" for name, (why, place) in lines.items()]
    return ["## Failed", "\n".join(shown)] if shown else []


def write(path: Path, parts: Sequence[str], content: Any) -> None:
    """Write the report: paragraphs to PATH.md, ``content`` to PATH.json."""
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    text = json.dumps(strict(content), indent=1, allow_nan=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def strict(content: Any) -> Any:
    """Turn inf and nan, which JSON does not have, into strings."""
    if isinstance(content, dict):
        return {key: strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [strict(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
