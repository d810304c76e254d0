"""Read text from files, pipes and standard input, compressed or not.

:class:`TextLines` streams the lines of a text, cut as fairseq-preprocess cuts them.
:func:`numbered_lines` keeps the bytes of lines, so that they can be written back unchanged.
"""

import bz2
import codecs
import contextlib
import functools
import gzip
import heapq
import io
import itertools
import logging
import lzma
import os
import random
import select
import stat
import sys
import zlib
from collections import deque
from typing import IO, Any, Deque, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_bnce.errors import InputError

logger = logging.getLogger(__name__)

STDIN, BOM = "-", "\ufeff"  # standard input; a byte order mark
_CHUNK = 2**16  # bytes
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_NOT_TEXT = (b"\x28\xb5\x2f\xfd", b"PK\3\4", b"\xff\xfe", b"\xfe\xff")  # zstd, zip, UTF-16


@contextlib.contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Turn an error of reading or writing into an InputError that names the file."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output has ended
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name}: required a file to read or write, got: {reason}") from None


@contextlib.contextmanager
def open_text(name: str) -> Iterator[IO[bytes]]:
    """Open a text as bytes, decompressed if it begins like a gzip, bzip2 or xz file.

    Args:
        name: a file, or ``-`` for standard input.

    Raises:
        InputError: naming the file, if it cannot be read or is not UTF-8 text.
    """
    place = sys.stdin.fileno() if name == STDIN else name
    with file_errors(name), open(place, "rb", closefd=name != STDIN) as file:
        start = file.peek(1)
        openers: List[Any] = [_OPENERS[mark] for mark in _OPENERS if start.startswith(mark)]
        stream = openers[0](file) if openers else file
        start = stream.peek(_CHUNK)
        # A quarter of zero bytes: UTF-16 or UTF-32 without a mark.
        if start.startswith(_NOT_TEXT) or 4 * start.count(0) > len(start):
            raise InputError(f"{name}: required UTF-8 text (gzip, bzip2, xz), got other bytes")
        yield stream


class TextLines:
    """The lines of files, one after the other, without their line ends.

    Lines from a pipe are returned as soon as they arrive. As in fairseq-preprocess, a line ends at
    a line feed, a carriage return, or a carriage return and a line feed. The end of the text logs
    how many lines were not UTF-8, if any.

    Args:
        names: files, compressed or not; ``-`` or an empty list is standard input.

    Attributes:
        bad_lines: number of lines so far that were not UTF-8; they contain U+FFFD instead.
        read_bytes: number of bytes read so far.
        total_bytes: number of bytes of all files, as they are on the disk; None if unknown.

    Raises:
        InputError: for a file that cannot be opened. See also :func:`open_text`.
    """

    def __init__(self, names: Sequence[str]):
        self.names = list(names) or [STDIN]
        for name in self.names:
            # The writer of a named pipe would stop if the pipe was opened and closed.
            with file_errors(name):
                if name != STDIN and not stat.S_ISFIFO(os.stat(name).st_mode):
                    open(name, "rb").close()
        self.bad_lines = self.read_bytes = 0
        has_sizes = all(map(os.path.isfile, self.names))
        self.total_bytes = sum(map(os.path.getsize, self.names)) if has_sizes else None
        self._waiting: Deque[str] = deque()
        self._stream: Any = None

    def __iter__(self) -> Iterator[str]:
        try:
            for name in self.names:
                with open_text(name) as self._stream:
                    rest = ""
                    for chunk in self._chunks():
                        *lines, rest = (rest + chunk).split("\n")
                        self._waiting.extend(lines)
                        while self._waiting:
                            yield self._text(self._waiting.popleft())
                    if rest:
                        yield self._text(rest)
        finally:
            _warn(" ".join(self.names), self.bad_lines)

    def is_ready(self) -> bool:
        """Return whether the next line, or its beginning, is available without waiting."""
        if self._waiting or self._stream is None:
            return True
        return bool(select.select([self._stream], [], [], 0)[0])

    def _chunks(self) -> Iterator[str]:
        """Yield what each read returns, with every line end as a line feed."""
        utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
        reads = iter(lambda: self._stream.read1(_CHUNK), b"")
        for content in itertools.chain(reads, [b""]):
            self.read_bytes += len(content)
            yield decoder.decode(content, final=not content)

    def _text(self, line: str) -> str:
        text = readable(line)
        self.bad_lines += text != line
        return strip_bom(text)


class Line(NamedTuple):
    """A line without its line feed, the name of its file, and its number (from 1)."""

    text: str
    source: str
    number: int

    def error(self, required: str, got: object) -> InputError:
        """Return an error that names the file and the line."""
        return InputError(f"{self.source}, line {self.number}: required {required}, got {got}")


def numbered_lines(name: str) -> Iterator[Line]:
    """Yield the lines of a file, or of standard input (``-``), cut at line feeds.

    Bytes that are not UTF-8 become lone surrogates, which :func:`to_bytes` turns back into the
    same bytes and :func:`readable` into U+FFFD. The end of the file logs how many lines had any.
    See :func:`open_text` for errors.
    """
    source, bad_lines = "standard input" if name == STDIN else name, 0
    with open_text(name) as stream:
        for number, content in enumerate(stream, 1):
            text = content.decode("utf-8", "surrogateescape")
            bad_lines += not text.isascii() and text != readable(text)
            yield Line(text[:-1] if text.endswith("\n") else text, source, number)
    _warn(source, bad_lines)


@functools.lru_cache(maxsize=None)  # warn once where a text is read twice
def _warn(names: str, bad_lines: int) -> None:
    if bad_lines:
        replaced = "line(s) were not UTF-8: U+FFFD replaces the other bytes"
        logger.warning(f"{names}: {bad_lines:,} {replaced}")


def to_bytes(text: str) -> bytes:
    """Return the bytes that a text of :func:`numbered_lines` was read from."""
    return text.encode("utf-8", "surrogateescape")


def readable(text: str) -> str:
    """Return a text of :func:`numbered_lines` with U+FFFD for bytes that are not UTF-8."""
    return text if text.isascii() else to_bytes(text).decode("utf-8", "replace")


def strip_bom(text: str) -> str:
    """Return a text without a byte order mark, which joined files have at the start of any line."""
    return text.lstrip(BOM)


def sampled(lines: Iterable[str], tokens: int, seed: int = 1) -> List[str]:
    """Draw lines at random, in one pass, until they have this many tokens.

    ``</s>`` counts as a token. All lines are returned if they have fewer tokens.
    """
    rng = random.Random(seed)
    kept: List[Tuple[float, int, str]] = []  # a heap: (place in the order, negative; tokens; line)
    total = 0
    for line in lines:
        size = len(line.split()) + 1
        heapq.heappush(kept, (-rng.random(), size, line))
        total += size
        while total - kept[0][1] >= tokens:
            total -= heapq.heappop(kept)[1]
    return [line for *_, line in sorted(kept, reverse=True)]
