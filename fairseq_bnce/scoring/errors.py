"""What can be wrong with a model or with what it is asked for."""

from typing import Any

_SHOWN = 60  # characters


class ScoringError(ValueError):
    """What was asked for cannot be scored with this model."""


class CheckpointError(ScoringError):
    """A file that holds no language model that can be used, or no dictionary that fits it."""


def shown(value: Any) -> str:
    """A value that came in the place of another, for a message: short, whatever it is."""
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"a {type(value).__name__}"
    try:
        text = repr(value[: 2 * _SHOWN] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
