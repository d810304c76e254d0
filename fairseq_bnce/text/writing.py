"""Write lines to standard output, or to a file that appears when it is complete."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Iterator, Optional, Union

from fairseq_bnce.text.reading import STDIN, file_errors, to_bytes

logger = logging.getLogger(__name__)


class Output:
    """A context manager that writes lines.

    A file is written under the name of :func:`part_of` and renamed at the end of the ``with``
    block. After an error the earlier file stays, and ``FILE.part`` keeps the lines written so far.
    Devices and pipes are written directly.

    Args:
        name: the file; None or ``-`` for standard output.

    Raises:
        InputError: naming the file, if it cannot be written.
    """

    def __init__(self, name: Optional[str] = None):
        self._is_stdout = name in (None, "", STDIN)
        self.name = "standard output" if self._is_stdout else str(name)
        is_direct = self._is_stdout or is_special(self.name)
        self._target = None if is_direct else os.path.realpath(self.name)
        self._path = part_of(self._target) if self._target else self.name
        with file_errors(self.name):
            self._stream = sys.stdout.buffer if self._is_stdout else open(self._path, "wb")  # noqa: SIM115

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        with file_errors(self.name):
            self._stream.flush()
            if self._is_stdout:
                return
            self._stream.close()
            if self._target and error is None:
                os.replace(self._path, self._target)
            elif self._target and os.path.getsize(self._path):
                logger.warning(f"{self._path}: has the lines that were written before the error")
            elif self._target:
                os.remove(self._path)

    def write(self, line: str) -> None:
        """Write a line, given without its line feed."""
        with file_errors(self.name):
            self._stream.write(to_bytes(line + "\n"))

    def flush(self) -> None:
        """Send what was written to the reader of a pipe."""
        with file_errors(self.name):
            self._stream.flush()


@contextlib.contextmanager
def replacing(path: Union[str, Path]) -> Iterator[str]:
    """Yield the name of a new file, which takes the place of ``path`` at the end of the block.

    After an error the earlier file stays, and the new one is removed.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{os.getpid()}.{name}")  # several ranks may write at once
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def is_special(name: str) -> bool:
    """Return whether a name is that of a device or a pipe, which is written to directly."""
    return os.path.exists(name) and not os.path.isfile(name)


def part_of(name: str) -> str:
    """Return the name that a file has until it is complete."""
    return f"{name}.part"


def say(line: str) -> None:
    """Print a line; characters that standard output cannot encode are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))
