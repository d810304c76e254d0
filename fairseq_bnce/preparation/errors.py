"""What stops the preparation of text."""

from __future__ import annotations

import contextlib
from concurrent.futures.process import BrokenProcessPool
from typing import Iterator

from fairseq_bnce.errors import InputError


@contextlib.contextmanager
def failures_named() -> Iterator[None]:
    """Tell of files that fail, and of workers that were killed, as InputError."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed: not a file's failure
        raise
    except OSError as error:
        raise InputError(str(error)) from error
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed (out of memory? try fewer --workers)"
        ) from error
