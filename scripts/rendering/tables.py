"""Every table, as tables.yaml describes it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Union

import yaml  # a dependency of omegaconf, which fairseq needs

from . import rows, trainings
from .cells import cell, measured, table


def _function(name: str) -> Callable[..., Any]:
    return getattr(rows, name, None) or getattr(trainings, name)


def _rendered(about: Union[str, Dict[str, Any]], *files: Any) -> List[str]:
    """Return the lines of a table."""
    if isinstance(about, str):
        return _function(about)(*files)
    heads, columns = about.get("heads", [""]), about["columns"]
    if "lines" in about:
        return table(heads, [[column[0], cell(files[0], column)] for column in columns])
    if isinstance(about["rows"], str):
        return measured(heads, columns, _function(about["rows"])(*files))
    named = [([label], {"{}": name}) for name, label in about["rows"].items()]
    return measured(heads, columns, named, files)


_ABOUT = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TABLES: Dict[str, Callable[..., List[str]]] = {
    name: partial(_rendered, about) for name, about in _ABOUT.items()
}
