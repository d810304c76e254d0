"""Read text from files, pipes and standard input, compressed or not.

:class:`TextLines` streams the lines of a text, as fairseq-preprocess cuts them. :class:`LineSource`
numbers the lines of one file and keeps their bytes, so that they can be written back unchanged.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import heapq
import logging
import lzma
import os
import random
import select
import stat
import sys
import zlib
from collections import deque
from typing import Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError

logger = logging.getLogger(__name__)

STDIN = "-"
_CHUNK = 2**16  # bytes
_COMPRESSED: Dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_REFUSED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\3\4": "a zip archive",
    b"\xff\xfe": "UTF-16 or UTF-32",
    b"\xfe\xff": "UTF-16",
}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


@contextlib.contextmanager
def open_text(name: str) -> Iterator[Any]:
    """Open a text as bytes; decompress it if its first bytes are those of gzip, bzip2 or xz.

    Args:
        name: a file, or ``-`` for standard input.

    Raises:
        InputError: naming the file, if it cannot be opened or read, or is not UTF-8 text by its
            first bytes.
    """
    with _read_errors(name), _open(name) as raw:
        start = raw.peek(1)
        openers = [opener for mark, opener in _COMPRESSED.items() if start.startswith(mark)]
        stream = openers[0](raw) if openers else raw
        _refuse_other_kinds(name, stream.peek(_CHUNK))
        yield stream


def is_compressed(name: str) -> bool:
    """Return whether a file is compressed; False for a pipe, whose first bytes come only once."""
    if not os.path.isfile(name):
        return False
    with _read_errors(name), open(name, "rb") as file:
        return file.read(6).startswith(tuple(_COMPRESSED))


def check_readable(name: str) -> None:
    """Raise InputError unless a file can be opened.

    A named pipe is not opened: its writer would stop if it was opened and closed.
    """
    with _read_errors(name):
        if name != STDIN and not stat.S_ISFIFO(os.stat(name).st_mode):
            open(name, "rb").close()


class TextLines:
    """The lines of files, one after the other, without their line ends.

    Lines from a pipe are returned as soon as they arrive. As in fairseq-preprocess, a line ends at
    a line feed, a carriage return, or a carriage return and a line feed.

    Args:
        names: files, compressed or not; ``-`` or an empty list is standard input.

    Attributes:
        bad_lines: number of lines so far that were not UTF-8; they contain U+FFFD instead.
        lone_returns: number of lines so far that ended at a carriage return alone.
        read_bytes: number of bytes read so far.
        total_bytes: number of bytes of all files; None if unknown.

    Raises:
        InputError: for a file that cannot be opened. See also :func:`open_text`.
    """

    def __init__(self, names: Sequence[str]):
        self.names = list(names) or [STDIN]
        for name in self.names:
            check_readable(name)
        if self.names.count(STDIN) > 1:
            raise InputError(f"input: required standard input ({STDIN!r}) once, got it twice")
        self.bad_lines = self.lone_returns = self.read_bytes = 0
        self.total_bytes = _total_bytes(self.names)
        self._waiting: Deque[bytes] = deque()
        self._stream: Any = None

    def __iter__(self) -> Iterator[str]:
        for line in self.undecoded():
            text, is_bad = decoded(line)
            self.bad_lines += is_bad
            yield text

    def undecoded(self) -> Iterator[bytes]:
        """Yield the lines as bytes."""
        for name in self.names:
            with open_text(name) as self._stream:
                rest = b""
                for chunk in self._chunks():
                    *lines, rest = (rest + chunk).split(b"\n")
                    self._waiting.extend(lines)
                    while self._waiting:
                        yield self._waiting.popleft()
                if rest:
                    yield rest

    def is_ready(self) -> bool:
        """Return whether the next line, or its beginning, is available without waiting."""
        return bool(self._waiting) or self._stream is None or _has_data(self._stream)

    def _chunks(self) -> Iterator[bytes]:
        """Yield what each read returns, with every line end as a line feed."""
        after_return = False
        for chunk in iter(lambda: self._stream.read1(_CHUNK), b""):
            self.read_bytes += len(chunk)
            if after_return and chunk.startswith(b"\n"):  # a line end in two chunks
                chunk = chunk[1:]
                self.lone_returns -= 1
            after_return = chunk.endswith(b"\r")
            if b"\r" in chunk:
                self.lone_returns += chunk.count(b"\r") - chunk.count(b"\r\n")
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield chunk


class Line(NamedTuple):
    """A line without its line feed, the name of its file, and its number (from 1)."""

    text: str
    source: str
    number: int

    def error(self, required: str, got: object) -> InputError:
        """Return an error that names the file and the line."""
        return InputError(f"{self.source}, line {self.number}: required {required}, got {got}")


class LineSource:
    """The numbered lines of a file, or of standard input (``-``), cut at line feeds.

    Bytes that are not UTF-8 become lone surrogates, which :func:`to_bytes` turns back into the
    same bytes and :func:`readable` into U+FFFD.

    Attributes:
        name: the file's name in messages.
        bad_lines: number of lines so far that were not UTF-8.

    Raises:
        InputError: for a file that cannot be opened. See also :func:`open_text`.
    """

    def __init__(self, name: str):
        check_readable(name)
        self.name = "standard input" if name == STDIN else name
        self._file = name
        self.bad_lines = 0

    def __iter__(self) -> Iterator[Line]:
        with open_text(self._file) as stream:
            for number, content in enumerate(stream, 1):
                text = content.decode("utf-8", "surrogateescape")
                self.bad_lines += text != readable(text)
                yield Line(text[:-1] if text.endswith("\n") else text, self.name, number)

    def warn_of_bad_lines(self) -> None:
        """Log how many lines were not UTF-8, if any."""
        warn_of_bad_lines(self.name, self.bad_lines)


def warn_of_bad_lines(name: str, count: int) -> None:
    """Log how many lines of a file were not UTF-8, if any."""
    if count:
        logger.warning(
            f"{name}: {count:,} line(s) were not UTF-8: they are read with U+FFFD for other bytes"
        )


def to_bytes(text: str) -> bytes:
    """Return the bytes that a text of a :class:`LineSource` was read from."""
    return text.encode("utf-8", "surrogateescape")


def readable(text: str) -> str:
    """Return a text of a :class:`LineSource` with U+FFFD for bytes that are not UTF-8."""
    return text if text.isascii() else to_bytes(text).decode("utf-8", "replace")


def strip_bom(text: str) -> str:
    """Return a text without a byte order mark, which joined files have at the start of any line."""
    return text.lstrip("\ufeff")


def decoded(line: bytes) -> Tuple[str, bool]:
    """Return a line without a byte order mark, and whether U+FFFD stands for some of its bytes."""
    try:
        return strip_bom(line.decode("utf-8")), False
    except UnicodeDecodeError:
        return strip_bom(line.decode("utf-8", "replace")), True


def sampled(lines: Iterable[str], tokens: int, seed: int = 1) -> List[str]:
    """Draw lines at random, in one pass, until they have this many tokens.

    ``</s>`` counts as a token. All lines are returned if they have fewer tokens.
    """
    rng = random.Random(seed)
    kept: List[Tuple[float, int, str]] = []  # a heap: (place in the order, negative; tokens; line)
    total = 0
    for line in lines:
        place = -rng.random()
        if total < tokens or place > kept[0][0]:
            size = len(line.split()) + 1
            heapq.heappush(kept, (place, size, line))
            total += size
            while total - kept[0][1] >= tokens:
                total -= heapq.heappop(kept)[1]
    return [line for *_, line in sorted(kept, reverse=True)]


@contextlib.contextmanager
def _read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name}: required readable text, got: {reason}") from None


def _refuse_other_kinds(name: str, start: bytes) -> None:
    kinds = [kind for mark, kind in _REFUSED.items() if start.startswith(mark)]
    if not kinds and 4 * start.count(0) > len(start):
        kinds = ["as many zero bytes as UTF-16 has"]
    if kinds:
        raise InputError(f"{name}: required UTF-8 text, got {kinds[0]}")


def _open(name: str) -> Any:
    if name != STDIN:
        return open(name, "rb")
    # A read from a non-blocking pipe would look like the end of the text.
    os.set_blocking(sys.stdin.fileno(), True)
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _total_bytes(names: Sequence[str]) -> Optional[int]:
    if not all(map(os.path.isfile, names)) or any(map(is_compressed, names)):
        return None
    return sum(map(os.path.getsize, names))


def _has_data(stream: Any) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # Windows cannot wait for files
        return True
