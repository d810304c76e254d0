#!/usr/bin/env python3
"""Write docs/flags.md: every flag of this plugin, with its default and its help.

    list_flags.py            # prints the page
    list_flags.py --check    # exit status 2 if docs/flags.md says something else

fairseq-train --help stops before it knows which architecture, criterion and optimiser are asked
for, and lists none of their flags.
"""

import argparse
import dataclasses
from enum import Enum
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence

import environment  # noqa: F401
from experiments.command import UsageError, start
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig

import fairseq_bnce
import fairseq_bnce.models
from fairseq_bnce.tasks.language_modeling import SelfNormalizedLanguageModelingConfig

_OURS = f"{fairseq_bnce.__name__}."
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "flags.md"
_HEAD = """# Flags

These are the flags that the plugin adds to `fairseq-train`, whose `--help` does not list them.
Defaults are in parentheses; switches are off by default. Presets of architectures, and the flags
that they set, are in `fairseq_bnce/models`.
"""


def page() -> str:
    """Return the text of docs/flags.md."""
    parts = [_HEAD]
    for title, flag, registry in (
        ("Criteria", "--criterion", CRITERION_DATACLASS_REGISTRY),
        ("Architectures", "--arch", MODEL_DATACLASS_REGISTRY),
        ("Optimisers", "--optimizer", OPTIMIZER_DATACLASS_REGISTRY),
    ):
        own = [name for name in sorted(registry) if registry[name].__module__.startswith(_OURS)]
        ours = {name: _rows(registry[name]) for name in own}
        parts += [f"## {title}\n", f"`{flag}`: {_names(ours)}.\n", _lists(ours)]
    fairseqs = _rows(LanguageModelingConfig)
    rows = [row for row in _rows(SelfNormalizedLanguageModelingConfig) if row not in fairseqs]
    return "\n".join([*parts, "## The task\n", _lists({"--task language_modeling": rows})])


def _rows(config: Any) -> List[str]:
    """Return a line for each field that is a flag; interpolations are not this plugin's."""
    fields = [f for f in dataclasses.fields(config) if not f.name.startswith("_")]
    return [_row(field) for field in fields if not str(field.default).startswith("${")]


def _row(field: Any) -> str:
    default = getattr(field.default, "value", field.default)
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    shown = "" if default is None or isinstance(default, bool) else f" (`{shown}`)"
    text = field.metadata.get("help", "")
    if isinstance(field.type, type) and issubclass(field.type, Enum):
        text += f". One of {_names(choice.value for choice in field.type)}"
    return f"- `--{field.name.replace('_', '-')}`{shown}: {text}"


def _lists(rows: Dict[str, List[str]]) -> str:
    """Return the lines under the names that have the flag, most names first."""
    flags = dict.fromkeys(row for own in rows.values() for row in own)
    owners = {row: [name for name, own in rows.items() if row in own] for row in flags}
    groups: Dict[str, List[str]] = {}
    for row in sorted(owners, key=lambda row: -len(owners[row])):
        is_all = len(owners[row]) == len(rows) > 1
        title = "All have" if is_all else f"Flags of {_names(owners[row])}"
        groups.setdefault(title, []).append(row)
    return "\n".join(line for title, own in groups.items() for line in (f"{title}:\n", *own, ""))


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of printing")
    if not parser.parse_args(arguments).check:
        print(page(), end="")
    elif _PAGE.read_text(encoding="utf-8") != page():
        raise UsageError(f"{_PAGE}: required what list_flags.py prints, got another text")
    return 0


if __name__ == "__main__":
    start(main)
