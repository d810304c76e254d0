"""Write lines to standard output, or to a file that appears when it is complete."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any, Iterator, Optional

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.reading import STDIN, to_bytes

logger = logging.getLogger(__name__)

STDOUT = "standard output"


class Output:
    """A context manager that writes lines.

    A file is written under the name of :func:`part_of` and renamed at the end of the ``with``
    block. After an error the earlier file stays, and ``FILE.part`` keeps the lines written so far
    until the next run writes its first line. Devices and pipes are written directly.

    Args:
        name: the file; None or ``-`` for standard output.

    Raises:
        InputError: naming the file, if it cannot be written.
    """

    def __init__(self, name: Optional[str]):
        is_stdout = name in (None, "", STDIN)
        self.name = STDOUT if is_stdout else str(name)
        self._target = None if is_stdout or is_special(self.name) else os.path.realpath(self.name)
        self._part = part_of(self._target) if self._target else ""
        self._is_begun = self._target is None
        with write_errors(self.name):
            # Append: a device may be a file that has content, and an earlier .part is kept.
            path = self._part or self.name
            self._stream = sys.stdout.buffer if is_stdout else open(path, "ab")  # noqa: SIM115

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if self.name == STDOUT:
            return
        try:
            self._close(is_complete=error is None)
        finally:
            if self._part and os.path.exists(self._part):
                self._keep_part(self._part)

    def write(self, line: str) -> None:
        """Write a line, given without its line feed."""
        with write_errors(self.name):
            self._begin()
            self._stream.write(to_bytes(line + "\n"))

    def flush(self) -> None:
        """Send what was written to the reader of a pipe."""
        with write_errors(self.name):
            self._stream.flush()

    def _begin(self) -> None:
        if not self._is_begun:
            self._stream.truncate(0)
            self._is_begun = True

    def _close(self, is_complete: bool) -> None:
        with write_errors(self.name):
            if is_complete:
                self._begin()
            self._stream.close()
            if is_complete and self._target:
                os.replace(self._part, self._target)

    def _keep_part(self, part: str) -> None:
        if not os.path.getsize(part):
            os.remove(part)
        elif self._is_begun:
            logger.warning(f"{part}: has the lines that were written before the error")


def is_special(name: str) -> bool:
    """Return whether a name is that of a device, a pipe or an open file, as /dev/stdout."""
    ends = [name, os.readlink(name)] if os.path.islink(name) else [name]
    if any(os.path.abspath(end).startswith(("/dev/std", "/dev/fd/", "/proc/")) for end in ends):
        return True
    return os.path.exists(name) and not os.path.isfile(name)


def part_of(name: str) -> str:
    """Return the name that a file has until it is complete."""
    return f"{name}.part"


@contextlib.contextmanager
def write_errors(name: str) -> Iterator[None]:
    """Turn an OSError of writing into an InputError that names the file; a broken pipe stays."""
    try:
        yield
    except OSError as error:
        if name == STDOUT:  # else the interpreter's last flush would fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        reason = error.strerror or error
        raise InputError(f"{name}: required a file with room to write, got: {reason}") from None


def say(line: str) -> None:
    """Print a line; characters that standard output cannot encode are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with write_errors(STDOUT):
        print(line.encode(encoding, "backslashreplace").decode(encoding))
