"""Reports of experiments: tables in Markdown, and JSON."""

import json
from pathlib import Path
from typing import Any, List, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs
from rendering.cells import Line, measured

MIB = 2**20


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
        columns = [(head, name, form) for name, (head, form) in shown["columns"].items()]
        if any(name in numbers for _, name, _ in columns for _, numbers in lines):
            text = "\n".join(measured(heads, columns, lines))
            found.append(f"## {title}\n\n{text}\n\n{shown['about'].strip()}")
    return found


def write(path: Path, parts: Sequence[str], content: Any) -> str:
    """Write paragraphs to PATH.md and ``content`` to PATH.json; return the paragraphs' text."""
    text = "\n\n".join(parts)
    path.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return text
