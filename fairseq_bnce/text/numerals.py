"""Numbers as other programs write them: ASCII digits, and none of what Python reads besides.

``int`` and ``float`` also take 1_000 and the digits of other scripts, which no reader of n-best
lists does; ``str.isdigit`` is true of ², which ``int`` refuses, as it does 5,000 digits.
"""

from __future__ import annotations

import re
from typing import Optional

_WHOLE = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?|inf|infinity|nan)", re.IGNORECASE
)


def whole_number(text: str) -> Optional[int]:
    """The number that at most 18 digits stand for; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def decimal(text: str) -> Optional[float]:
    """The number that some text stands for, also ``inf`` and ``nan``; None for any other text."""
    return float(text) if text.isascii() and _DECIMAL.fullmatch(text) else None
