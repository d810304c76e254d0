"""How the commands that prepare text end."""

from __future__ import annotations

import sys
from concurrent.futures.process import BrokenProcessPool
from typing import Callable

from .errors import PrepareError


def exit_status(program: str, run: Callable[[], None], *errors: type[Exception]) -> int:
    """Of a command that does ``run``: 0, 1 with a message on standard error, 130 if interrupted.

    Args:
        program: its name, for the message.
        run: the work.
        *errors: beside PrepareError and OSError, what is told to the user in its own words.
    """
    try:
        run()
    except (PrepareError, OSError, *errors) as error:
        return _failed(program, str(error))
    except BrokenProcessPool:
        return _failed(program, "a worker process was killed (out of memory? try fewer --workers)")
    except KeyboardInterrupt:
        return 130
    return 0


def _failed(program: str, message: str) -> int:
    print(f"{program}: error: {message}", file=sys.stderr)
    return 1
