"""Errors for users: each names what was required and what came, on one line.

``fairseq-bnce`` prints these errors without a traceback.
"""

import argparse
from typing import Callable, Sequence

_QUOTED = 80  # characters of a quoted value: enough to find it again
_MESSAGE = 600  # characters; another library's message may hold thousands of names


class InputError(ValueError):
    """Files, texts, data or options do not fit."""


class FlagsError(ValueError):
    """Flags that a training cannot run with: a line for each of ``problems``."""

    def __init__(self, problems: Sequence[str]):
        super().__init__("\n  ".join(["fairseq_bnce cannot train with these flags:", *problems]))


class ScoringError(ValueError):
    """This model cannot score what was asked for.

    Args:
        argument: of the function that was called.
        required, got: what was required of the argument, and what came.
        value: of the argument, to be named beside it.
    """

    def __init__(self, argument: str, required: str, got: object, value: object = ""):
        super().__init__(argument, required, got, value)
        self.argument, self.required, self.got, self.value = argument, required, got, value

    def __str__(self) -> str:
        name = f"{self.argument} {self.value}".strip()
        return f"{name}: required {self.required}, got {self.got}"


class CheckpointError(ScoringError):
    """A file without a usable language model, or without a dictionary that fits the model."""


class UnsupportedModelError(ValueError):
    """This plugin does not know the model's output layer."""


def require(name: str, required: str, got: object, fits: bool) -> None:
    """Raise unless ``fits``.

    Raises:
        ValueError: naming the flag or argument, what was required and what came.
    """
    if not fits:
        raise ValueError(f"{name}: required {required}, got {got}")


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from ``least``."""

    def whole_number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {text}")
        return int(text)

    return whole_number


def quoted(value: object) -> str:
    """Return a value as Python writes it, in at most 80 characters; a container's type."""
    if not isinstance(value, (str, bytes, int, float, type(None))):
        return f"a {type(value).__name__}"
    # Cut before repr, which is slow for a line of 16 MB.
    return _cut(repr(value[: _QUOTED + 1] if isinstance(value, (str, bytes)) else value), _QUOTED)


def one_line(text: str) -> str:
    """Return a message without line breaks and control characters, cut at 600 characters."""
    joined = " ".join(line.strip() for line in text[: 10 * _MESSAGE].splitlines())
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in joined), _MESSAGE)


def describe_error(error: Exception) -> str:
    """Return another library's error on one line."""
    return one_line(f"{type(error).__name__}: {error}")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
