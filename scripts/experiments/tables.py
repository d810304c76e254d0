"""Tables in Markdown, and files of results."""

from __future__ import annotations

import functools
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, List, Mapping, Optional, Sequence

import yaml  # that of omegaconf, which fairseq needs
from rendering.cells import NONE, Columns, table

Numbers = Mapping[str, Any]
MIB = 2**20


@dataclass(frozen=True)
class Cell:
    """Mean and sample standard deviation (None for one value) over seeds."""

    mean: float
    deviation: Optional[float]
    count: int


@dataclass(frozen=True)
class Line:
    """A line of a table: its labels, and numbers by name, or why there are none.

    Attributes:
        error: what it died of.
    """

    labels: Sequence[str]
    numbers: Numbers
    error: Optional[str] = None


@functools.lru_cache(maxsize=None)
def load(name: str) -> Any:
    """A file of data beside this module."""
    path = Path(__file__).with_name(f"{name}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def section(
    title: str, found: Mapping[str, Any], heads: Sequence[str], lines: Iterable[Line], **values: Any
) -> str:
    """A table with its title and what it says of itself.

    Args:
        found: its columns, {name: [title, format]}, and text, as reports.yaml has them.
        heads: titles of the labels.
        **values: that the text has places for.
    """
    text = found["about"].format(**values).strip()
    return f"## {title}\n\n{measured(heads, columns(found['columns']), lines)}\n\n{text}"


def columns(found: Mapping[str, Sequence[str]]) -> Columns:
    """From {name: [title, format]}."""
    return [(title, name, form) for name, (title, form) in found.items()]


def measured(heads: Sequence[str], chosen: Columns, lines: Iterable[Line]) -> str:
    """A table of numbers."""
    titles = [*heads, *(title for title, _, _ in chosen)]
    return "\n".join(table(titles, [[*line.labels, *_cells(line, chosen)] for line in lines]))


def _cells(line: Line, chosen: Columns) -> List[str]:
    if line.error is not None:
        return [escaped(f"failed: {line.error}"), *("" for _ in chosen[1:])]
    return [shown(line.numbers.get(name), form) for _, name, form in chosen]


def shown(value: Any, form: str) -> str:
    """A number, a :class:`Cell`, a text or None as a cell has it."""
    if value is None:
        return NONE
    if not isinstance(value, Cell):
        return _number(value, form)
    deviation = "" if value.deviation is None else f" ± {_number(value.deviation, form)}"
    return _number(value.mean, form) + deviation


def _number(value: Any, form: str) -> str:
    """A perplexity of raw scores can have any size."""
    fits = form != ".2f" or 1 <= value < 1e6
    return format(value, form if fits else ".3g")


def escaped(text: Any) -> str:
    return str(text).replace("|", "\\|")


def joined(values: Iterable[Any]) -> str:
    """Each once, sorted."""
    return ", ".join(map(str, sorted(set(values)))) or NONE


def where(records: Sequence[Mapping[str, Any]]) -> str:
    """On which machines and days, and with what, runs were made; more if some are from disk.

    Args:
        records: each with hardware, date and versions.
    """
    machines = joined("{processor}, {cores} cores".format(**r["hardware"]) for r in records)
    dates = joined(record["date"] for record in records)
    versions = joined(
        ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
        for record in records
    )
    return f"Machine: {machines}. Date: {dates}. {versions}."


def load_average(loads: Sequence[float]) -> List[str]:
    """The line that says how busy the machine was; none for none."""
    if not loads:
        return []
    return [f"Load average around the runs: {min(loads):.1f} to {max(loads):.1f}."]


def flags(lines: Mapping[str, Sequence[str]]) -> str:
    """Command lines, by what they are for; nothing of empty ones."""
    return "\n".join(f"- {label}: `{shlex.join(some)}`" for label, some in lines.items() if some)


def failures(lines: Sequence[str]) -> List[str]:
    return ["## Failed", "\n".join(f"- {line}" for line in lines)] if lines else []


def write(path: Path, parts: Sequence[str], content: Any) -> None:
    """The report: PATH.md, of paragraphs, and PATH.json."""
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    text = json.dumps(strict(content), indent=1, allow_nan=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def strict(content: Any) -> Any:
    """JSON has no inf or nan: as strings, which say what came out."""
    if isinstance(content, dict):
        return {key: strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [strict(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
