"""Libraries that an adapter needs, and the package does without."""

from __future__ import annotations

import importlib
from typing import Any


def imported(module: str, distribution: str, adapter: str) -> Any:
    """A module of a library.

    Raises:
        ModuleNotFoundError: where it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{adapter}: required {distribution}, got no module {error.name}; run "
            f"pip install {distribution}",
            name=error.name,
        ) from None
