"""What a user has to mend, and how it is worded: what was required, what came, on one line.

``fairseq-bnce`` prints these errors without a trace.
"""

from __future__ import annotations

from typing import Sequence

QUOTED = 80  # characters of what came: enough to find it again
_MESSAGE = 600  # of a whole message, which names files and what was required, too
_TOLD = 500  # of somebody else's error, some of which come with thousands of names


class InputError(ValueError):
    """Files, texts, data or options: names what was required, where, and what came."""


class FlagsError(ValueError, SystemExit):
    """Flags that a training cannot be run with: a line for each of ``problems``.

    It is a SystemExit, too, so that fairseq's commands end with its message alone, without a
    traceback, and with an exit status other than 0.
    """

    def __init__(self, problems: Sequence[str]):
        super().__init__("\n  ".join(["fairseq_bnce cannot train with these flags:", *problems]))
        self.code = str(self)


class ScoringError(ValueError):
    """What was asked for cannot be scored with this model."""


class CheckpointError(ScoringError):
    """A file that holds no language model that can be used, or no dictionary that fits it."""


class UnsupportedModelError(ValueError):
    """The model is not one that this plugin can take apart."""


def require(name: str, required: str, got: object, fits: bool) -> None:
    """Raise unless ``fits``.

    Raises:
        ValueError: naming the flag or argument, what was required and what came.
    """
    if not fits:
        raise ValueError(f"{name}: required {required}, got {got}")


def quoted(value: object, limit: int = QUOTED) -> str:
    """A value as Python writes it, at most ``limit`` characters; of what holds others, its type."""
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"a {type(value).__name__}"
    try:
        # What is far too long is cut before: repr of a line of 16 MB takes a while.
        text = repr(value[: limit + 1] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return _cut(text, limit)


def one_line(text: str, limit: int = _MESSAGE) -> str:
    """A message without line breaks and control characters, its end cut if it has no end."""
    joined = " ".join(line.strip() for line in text[: 10 * limit].splitlines())
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in joined), limit)


def told(error: Exception) -> str:
    """Somebody else's error, on one line."""
    return one_line(f"{type(error).__name__}: {error}", _TOLD)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
