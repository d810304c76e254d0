"""Lines that can be written back byte for byte, whatever their encoding."""

from __future__ import annotations

import io
import logging
import sys
import weakref
from contextlib import nullcontext
from typing import Any, Iterator, NamedTuple

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.files import unpacked

logger = logging.getLogger(__name__)

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
    """The lines of a file, compressed or not, or of standard input (``-``).

    Bytes that are no UTF-8 come as lone surrogates, which :func:`to_bytes` turns back into the
    same bytes and :func:`readable` into U+FFFD.

    Attributes:
        name: of the file, for messages.
        bad_lines: how many lines so far were not UTF-8.

    Raises:
        InputError: for a file that can't be opened, here; in the loop, for a line of more than
            ``LINE_LIMIT`` bytes, and see :func:`fairseq_bnce.text.files.unpacked`.
    """

    def __init__(self, name: str):
        self.name = "standard input" if name == STDIN else name
        self.bad_lines = 0
        self._opened = _open(name)
        if name != STDIN:  # closed even if nobody comes to read it
            weakref.finalize(self, self._opened.close)

    def __iter__(self) -> Iterator[Line]:
        with self._opened as raw:
            stream = io.BufferedReader(unpacked(raw, self.name))
            read = iter(lambda: stream.readline(LINE_LIMIT + 1), b"")
            for number, content in enumerate(read, 1):
                text = self._decode(content)
                line = Line(text[:-1] if text.endswith("\n") else text, self.name, number)
                if len(content) > LINE_LIMIT and not content.endswith(b"\n"):
                    raise line.error(f"at most {LINE_LIMIT:,} bytes", "more")
                yield line

    def warn_of_bad_lines(self) -> None:
        """Log how many lines were not UTF-8, if any."""
        warn_of_bad_lines(self.name, self.bad_lines)

    def _decode(self, content: bytes) -> str:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            self.bad_lines += 1
            return content.decode("utf-8", "surrogateescape")


def warn_of_bad_lines(name: str, count: int) -> None:
    """Log how many lines of a file were not UTF-8, if any."""
    if count:
        logger.warning(
            f"{name}: {count:,} line(s) were not UTF-8: they are read with U+FFFD for other bytes"
        )


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
        return open(name, "rb")
    except OSError as error:
        raise InputError(f"{name}: required a file, got: {error.strerror}") from error
