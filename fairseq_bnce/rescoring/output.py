"""Lines out: to standard output, or to a file that appears when it is whole."""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Optional

from fairseq_bnce.rescoring.errors import RescoringError
from fairseq_bnce.rescoring.lines import to_bytes


class Output:
    """A context manager; what is written by :meth:`write` are whole lines.

    A file is written under the name of :func:`part_of`, which it keeps if an error ends the work. A
    device or a pipe is written to as it is.

    Args:
        name: of the file; None for standard output.

    Raises:
        RescoringError: for a file that can't be written.
    """

    def __init__(self, name: Optional[str]):
        self.name = name
        is_special = name is not None and os.path.exists(name) and not os.path.isfile(name)
        self._path = name if is_special or name is None else part_of(name)
        self._stream = _open(name, self._path)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.name is None:
            return
        self._stream.close()
        if self._path == self.name:
            return
        if kind is None:
            os.replace(self._path, self.name)
        elif not os.path.getsize(self._path):
            os.remove(self._path)

    def write(self, line: str) -> None:
        """Write a line, without its line feed."""
        self._stream.write(to_bytes(line + "\n"))

    def flush(self) -> None:
        """Let who reads a pipe have what is there."""
        self._stream.flush()


def part_of(name: str) -> str:
    """The name that a file has until it is whole."""
    return f"{name}.part"


def _open(name: Optional[str], path: Optional[str]) -> IO[bytes]:
    if path is None:
        return sys.stdout.buffer
    try:
        return open(path, "wb")
    except OSError as error:
        raise RescoringError(f"{name}: required a file to write, got: {error.strerror}") from error
