"""Numbers as other programs write them: ASCII digits, and none of what Python reads besides.

``int`` and ``float`` also take 1_000 and the digits of other scripts, which no reader of n-best
lists does; ``str.isdigit`` is true of ², which ``int`` refuses, as it does 5,000 digits.
"""

from __future__ import annotations

import argparse
import math
import re
from typing import Any, Optional

from fairseq_bnce.errors import quoted

_WHOLE = re.compile(r"[0-9]{1,18}")
_UNSIGNED = r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?|inf|infinity|nan)"
_DECIMAL = re.compile(f"[+-]?{_UNSIGNED}", re.IGNORECASE)
# What argparse is not to take for a flag: by itself it knows of no exponents.
NEGATIVE = re.compile(rf"-{_UNSIGNED}\Z", re.IGNORECASE)


def at_least(least: int, most: int = 10**9) -> Any:
    """An argparse type: whole numbers from ``least`` to ``most``."""

    def parse(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"required a whole number from {least:,} to {most:,}, got {quoted(text)}"
            )
        return number

    return parse


def finite(text: str) -> float:
    """An argparse type: numbers that are not infinite."""
    number = decimal(text)
    if number is None or not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"required a finite number, got {quoted(text)}")
    return number


def decimal(text: str) -> Optional[float]:
    """The number that some text stands for, also ``inf`` and ``nan``; None for any other text."""
    return float(text) if text.isascii() and _DECIMAL.fullmatch(text) else None
