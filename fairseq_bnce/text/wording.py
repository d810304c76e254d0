"""How messages quote what came: short, and on one line whatever is in it."""

from __future__ import annotations

QUOTED = 80  # characters of what came: enough to find it again
MESSAGE = 600  # of a whole message, which names files and what was required, too


def quoted(value: object, limit: int = QUOTED) -> str:
    """``repr`` of a text or another value, cut where it is longer than ``limit``."""
    # What is far too long is cut before: repr of a line of 16 MB takes a while.
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def one_line(text: str, limit: int = MESSAGE) -> str:
    """A message without line breaks and control characters, its end cut if it has no end."""
    joined = " ".join(line.strip() for line in text[: 10 * limit].splitlines())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in joined)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
