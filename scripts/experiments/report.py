"""Reports of experiments: tables in Markdown, and JSON."""

import json
from pathlib import Path
from typing import Any, Sequence

import yaml  # a dependency of omegaconf, which fairseq needs

MIB = 2**20


def load(name: str) -> Any:
    """Return the content of a YAML file beside this module."""
    path = Path(__file__).with_name(f"{name}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def write(path: Path, parts: Sequence[str], content: Any) -> str:
    """Write paragraphs to PATH.md and ``content`` to PATH.json; return the paragraphs' text."""
    text = "\n\n".join(parts)
    path.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return text
