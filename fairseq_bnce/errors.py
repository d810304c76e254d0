"""What a user has to mend; ``fairseq-bnce`` says each of these on one line, without a trace."""

from typing import Any

_SHOWN = 60  # characters


class InputError(ValueError):
    """Files, texts, data or options: names what was required, where, and what came."""


class ScoringError(ValueError):
    """What was asked for cannot be scored with this model."""


class CheckpointError(ScoringError):
    """A file that holds no language model that can be used, or no dictionary that fits it."""


class UnsupportedModelError(ValueError):
    """The model's output layer is not one that this plugin can take apart."""


def shown(value: Any) -> str:
    """A value that came in the place of another, for a message: short, whatever it is."""
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"a {type(value).__name__}"
    try:
        text = repr(value[: 2 * _SHOWN] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
