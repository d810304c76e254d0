"""Numbers in command lines."""

from __future__ import annotations

import argparse
from typing import Callable


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from ``least``."""

    def whole_number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {text}")
        return int(text)

    return whole_number
