"""Numbers in command lines."""

from __future__ import annotations

import argparse
from typing import Callable, Optional


def at_least(least: int, most: Optional[int] = None) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from ``least`` to ``most``."""

    def whole_number(text: str) -> int:
        if int(text) < least or most is not None and int(text) > most:
            bounds = f"at least {least}" if most is None else f"{least} to {most:,}"
            raise argparse.ArgumentTypeError(f"required {bounds}, got {text}")
        return int(text)

    return whole_number
