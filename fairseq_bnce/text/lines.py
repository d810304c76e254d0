"""Lines that can be written back byte for byte, whatever their encoding."""

from __future__ import annotations

import gzip
import sys
import weakref
import zlib
from contextlib import nullcontext
from typing import IO, Any, Iterator, NamedTuple

from fairseq_bnce.errors import InputError

STDIN = "-"
GZIPPED = ".gz"
LINE_LIMIT = 2**24  # bytes; a longer line is a file without line ends, and would fill the memory


class Line(NamedTuple):
    """A line without its line feed, and where it stands (from 1)."""

    text: str
    source: str
    number: int

    def error(self, required: str, got: object) -> InputError:
        """The error to raise about this line."""
        return InputError(f"{self.source}, line {self.number}: required {required}, got {got}")


class LineSource:
    """The lines of a file, of a gzipped one, or of standard input (``-``).

    Bytes that are no UTF-8 come as lone surrogates, which :func:`to_bytes` turns back into the
    same bytes and :func:`readable` into U+FFFD.

    Raises:
        InputError: for a file that can't be opened, here; in the loop, for a line of more than
            ``LINE_LIMIT`` bytes or a damaged gzip file.
    """

    def __init__(self, name: str):
        self.name = "standard input" if name == STDIN else name
        self._opened = _open(name)
        if name != STDIN:  # closed even if nobody comes to read it
            weakref.finalize(self, self._opened.close)

    def __iter__(self) -> Iterator[Line]:
        with self._opened as stream:
            for number, content in enumerate(iter(lambda: self._read(stream), b""), 1):
                text = content.decode("utf-8", "surrogateescape")
                line = Line(text[:-1] if text.endswith("\n") else text, self.name, number)
                if len(content) > LINE_LIMIT and not content.endswith(b"\n"):
                    raise line.error(f"at most {LINE_LIMIT:,} bytes", "more")
                yield line

    def _read(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.readline(LINE_LIMIT + 1)
        except (EOFError, OSError, zlib.error) as error:  # gzip: cut off, damaged, or in its data
            raise InputError(f"{self.name}: required readable lines, got: {error}") from error


def to_bytes(text: str) -> bytes:
    """The bytes that some text of a :class:`LineSource` was read from."""
    return text.encode("utf-8", "surrogateescape")


def readable(text: str) -> str:
    """The text with U+FFFD for what is no UTF-8, as a model or a metric can take it."""
    return to_bytes(text).decode("utf-8", "replace")


def unmarked(text: str) -> str:
    """The text without a byte order mark, which joined files have at the start of any line."""
    return text.lstrip("\ufeff")


def decoded(line: bytes) -> tuple[str, bool]:
    """A line's text, unmarked, U+FFFD for what is no UTF-8, and whether there was any of that."""
    try:
        return unmarked(line.decode("utf-8")), False
    except UnicodeDecodeError:
        return unmarked(line.decode("utf-8", "replace")), True


def _open(name: str) -> Any:
    if name == STDIN:
        if sys.stdin is None:
            raise InputError("standard input: required an open one, got a closed one")
        return nullcontext(sys.stdin.buffer)
    try:
        return gzip.open(name) if name.endswith(GZIPPED) else open(name, "rb")
    except OSError as error:
        raise InputError(f"{name}: required a file, got: {error.strerror}") from error
