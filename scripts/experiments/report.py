"""Reports of experiments: tables in Markdown, and JSON."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import yaml  # a dependency of omegaconf, which fairseq needs
from rendering.cells import spread, table

MIB = 2**20


# Labels of a line, and the values of each number: several are shown as mean and deviation.
Line = Tuple[Sequence[str], Mapping[str, Sequence[Optional[float]]]]


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
        if any(set(columns) & set(numbers) for _, numbers in lines):
            rows = [
                [*labels, *(spread(numbers.get(n, ()), form) for n, (_, form) in columns.items())]
                for labels, numbers in lines
            ]
            text = "\n".join(table([*heads, *(title for title, _ in columns.values())], rows))
            found.append(f"## {title}\n\n{text}\n\n{shown['about'].strip()}")
    return found


def write(path: Path, parts: Sequence[str], content: Any) -> str:
    """Write paragraphs to PATH.md and ``content`` to PATH.json; return the paragraphs' text."""
    text = "\n\n".join(parts)
    path.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return text
