"""Libraries that only an adapter needs."""

from __future__ import annotations

import importlib
from typing import Any


def import_library(module: str, distribution: str, adapter: str) -> Any:
    """Import a module; an error of a missing library names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{adapter}: required {distribution}, got no module {error.name}; run "
            f"pip install {distribution}",
            name=error.name,
        ) from None
