"""The papers' tables, one module each; scripts/recipe.py trains them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Dict

from .table import Table


def tables() -> Dict[str, Table]:
    """Every table by its name: that of the module, which calls it TABLE."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        table = getattr(importlib.import_module(f"{__name__}.{module.name}"), "TABLE", None)
        if table is not None:
            found[module.name] = table
    return found
