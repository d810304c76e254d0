"""Reports of experiments: tables in Markdown, and JSON."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs
from rendering.cells import spread, table

MIB = 2**20


class Line(NamedTuple):
    """A line of a table: labels, and the values of each number, or the error of a failed run."""

    labels: Sequence[str]
    numbers: Mapping[str, Sequence[Optional[float]]]
    error: Optional[str] = None


@functools.lru_cache(maxsize=None)
def load(name: str) -> Any:
    """Return the content of a YAML file beside this module."""
    path = Path(__file__).with_name(f"{name}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def sections(kind: str, heads: Sequence[str], lines: Sequence[Line]) -> List[str]:
    """Return the tables of reports.yaml that have a number, with their explanations.

    Args:
        kind: a key of reports.yaml.
        heads: titles of the labels.
    """
    found = []
    for title, shown in load("reports")[kind].items():
        columns = shown["columns"]
        if any(set(columns) & set(line.numbers) for line in lines):
            titles = [*heads, *(title for title, _ in columns.values())]
            rows = [[*line.labels, *_cells(line, columns)] for line in lines]
            text = "\n".join(table(titles, rows))
            found.append(f"## {title}\n\n{text}\n\n{shown['about'].strip()}")
    return found


def _cells(line: Line, columns: Mapping[str, Sequence[str]]) -> List[str]:
    if line.error is not None and not line.numbers:
        reason = f"failed: {line.error}".replace("|", "\\|")
        return [reason, *[""] * (len(columns) - 1)]
    return [spread(line.numbers.get(name, ()), form) for name, (_, form) in columns.items()]


def conditions(parts: Iterable[Mapping[str, Any]]) -> str:
    """Say where, when and with which versions parts of runs were made."""
    lines: Dict[str, None] = {}
    for part in parts:
        about = {**part["hardware"], **part["versions"], "date": part["date"]}
        lines[", ".join(f"{name} {value}" for name, value in about.items())] = None
    return "\n".join(lines)


def write(path: Path, parts: Sequence[str], content: Any) -> None:
    """Write the report: paragraphs to PATH.md, ``content`` to PATH.json."""
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    text = json.dumps(content, indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
