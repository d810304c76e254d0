"""What stops the preparation of text."""

from __future__ import annotations

import contextlib
from concurrent.futures.process import BrokenProcessPool
from typing import Iterator


class PrepareError(Exception):
    """What the user has to mend, in words that name it."""


@contextlib.contextmanager
def failures_named() -> Iterator[None]:
    """Tell of files that fail, and of workers that were killed, as PrepareError."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed: not a file's failure
        raise
    except OSError as error:
        raise PrepareError(str(error)) from error
    except BrokenProcessPool as error:
        raise PrepareError(
            "a worker process was killed (out of memory? try fewer --workers)"
        ) from error
