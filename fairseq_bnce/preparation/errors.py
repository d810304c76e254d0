"""What stops the preparation of text."""

from __future__ import annotations

import contextlib
from typing import Iterator

from fairseq_bnce.errors import InputError


@contextlib.contextmanager
def failures_named() -> Iterator[None]:
    """Tell of files that fail as InputError."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed: not a file's failure
        raise
    except OSError as error:
        raise InputError(str(error)) from error
