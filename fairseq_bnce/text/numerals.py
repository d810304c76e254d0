"""Types for argparse: numbers within bounds."""

from __future__ import annotations

import argparse
import math
import re
from typing import Callable, Optional

# Replaces argparse's pattern of values that are not flags, which knows no exponents.
NEGATIVE = re.compile(r"-(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)\Z", re.IGNORECASE)


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from ``least`` on."""

    def whole_number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {text}")
        return int(text)

    return whole_number


def finite(text: str) -> float:
    """Return a finite number: a type for argparse."""
    if not math.isfinite(float(text)):
        raise argparse.ArgumentTypeError(f"required a finite number, got {text}")
    return float(text)


def decimal(text: str) -> Optional[float]:
    """Return the number that a text is, or None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None
