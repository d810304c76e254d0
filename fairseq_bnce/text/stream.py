"""Lines of text as they come in: streamed, bad UTF-8 mended."""

from __future__ import annotations

import contextlib
import gzip
import heapq
import os
import random
import select
import stat
import sys
import zlib
from collections import deque
from typing import IO, Any, Deque, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.lines import GZIPPED, LINE_LIMIT, STDIN, decoded

_CHUNK = 2**16
# How other kinds of files begin; UTF-32's little-endian mark begins with UTF-16's.
_MARKS = {
    b"\x1f\x8b": "gzip (as *.gz it is read)",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\3\4": "a zip archive",
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class TextLines:
    """The lines of files, one after the other, without their line ends.

    Nothing is read ahead but what one system call returns, so that lines of a pipe are handed on
    as soon as they are there. Lines end where fairseq-preprocess cuts them: at a line feed, a
    carriage return, or both in this order. All else that stands between words is a space.

    Args:
        names: files, also gzipped (*.gz); ``-`` is standard input, and so is an empty list.

    Attributes:
        bad_lines: how many lines so far were not UTF-8; in them U+FFFD stands for what was none.
        lone_returns: how many lines so far ended at a carriage return alone.
        read_bytes: how many bytes were read so far.
        total_bytes: how many there are; None if that cannot be known.

    Raises:
        InputError: for what can't be opened, here, before any other work; in the loop, for a
            line of more than ``LINE_LIMIT`` bytes, what can't be read, or is no UTF-8 by its
            first bytes.
    """

    def __init__(self, names: Sequence[str]):
        self.names = list(names) or [STDIN]
        for name in self.names:
            _check_readable(name)
        if self.names.count(STDIN) > 1:
            raise InputError(f"input: required standard input ({STDIN!r}) once, got it twice")
        self.bad_lines = self.lone_returns = self.read_bytes = 0
        self.total_bytes = _total_bytes(self.names)
        self._waiting: Deque[bytes] = deque()
        self._stream: Optional[IO[bytes]] = None

    def __iter__(self) -> Iterator[str]:
        return map(self._decode, self.undecoded())

    def undecoded(self) -> Iterator[bytes]:
        """The lines as bytes."""
        for name in self.names:
            with _open(name) as stream:
                self._stream = stream
                yield from self._lines(stream, name)

    def is_ready(self) -> bool:
        """Whether the next line can be had, or its beginning, without waiting for a writer."""
        return bool(self._waiting) or self._stream is None or _has_data(self._stream)

    def _lines(self, stream: IO[bytes], name: str) -> Iterator[bytes]:
        rest: List[bytes] = []  # the parts of a line whose end is still to come
        size = 0
        for chunk in self._chunks(stream, name):
            first, *parts = chunk.split(b"\n")
            rest.append(first)
            size += len(first)
            _check_length(size, name)
            if parts:
                self._waiting.append(b"".join(rest))
                rest, size = parts[-1:], len(parts[-1])
                self._waiting.extend(parts[:-1])
            while self._waiting:
                yield self._waiting.popleft()
        if size:
            yield b"".join(rest)

    def _chunks(self, stream: IO[bytes], name: str) -> Iterator[bytes]:
        """What is read, every line end a line feed; one in two parts is told by the first."""
        after_return, start = False, self.read_bytes
        for chunk in iter(lambda: _read(stream, name), b""):
            if self.read_bytes == start:
                _check_encoding(chunk, name)
            self.read_bytes += len(chunk)
            if after_return and chunk.startswith(b"\n"):
                chunk = chunk[1:]
                self.lone_returns -= 1
            after_return = chunk.endswith(b"\r")
            if b"\r" in chunk:
                self.lone_returns += chunk.count(b"\r") - chunk.count(b"\r\n")
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield chunk

    def _decode(self, line: bytes) -> str:
        text, is_mended = decoded(line)
        self.bad_lines += is_mended
        return text


def sampled(lines: Iterable[str], tokens: int, seed: int = 1) -> List[str]:
    """Lines of so many tokens or just above, ``</s>`` counted in; all lines where there are less.

    They are the first ones of a random order of all lines, in it, and were chosen in one pass, in
    which no more is kept than is returned.
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


def _check_readable(name: str) -> None:
    if name == STDIN:
        if sys.stdin is None:
            raise InputError("standard input: required an open one, got a closed one")
        return
    try:
        # Whoever writes into a pipe would end if it was opened and closed.
        if not stat.S_ISFIFO(os.stat(name).st_mode):
            with open(name, "rb"):
                pass
    except OSError as error:
        raise _input_error(name, error) from None


def _input_error(name: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"input {quoted(name)}: required a text file, got: {reason}")


def _read(stream: IO[bytes], name: str) -> bytes:
    """What is there of a chunk; nothing at the end."""
    try:
        while True:
            chunk = stream.read(_CHUNK)
            if chunk is not None:
                return chunk
            select.select([stream], [], [])  # it was opened not to wait
    except (EOFError, OSError, zlib.error) as error:  # gzip: cut off, damaged, or in its data
        raise _input_error(name, error) from None


def _check_encoding(start: bytes, name: str) -> None:
    """Refuse what its first bytes say is something else."""
    kind = next((kind for mark, kind in _MARKS.items() if start.startswith(mark)), None)
    if kind is None and 4 * start.count(0) > len(start):  # without a mark
        kind = "as many zero bytes as UTF-16 has"
    if kind is not None:
        raise InputError(f"input {quoted(name)}: required UTF-8 text, got {kind}")


def _check_length(size: int, name: str) -> None:
    if size > LINE_LIMIT:
        raise InputError(
            f"input {quoted(name)}: required lines of at most {LINE_LIMIT:,} bytes, got a longer "
            "one; break it into sentences first"
        )


def _total_bytes(names: Sequence[str]) -> Optional[int]:
    if any(name == STDIN or name.endswith(GZIPPED) for name in names):
        return None
    return sum(map(os.path.getsize, names)) if all(map(os.path.isfile, names)) else None


def _open(name: str) -> Any:
    """Unbuffered: a buffered reader would wait until its buffer is full."""
    if name != STDIN:
        try:
            return gzip.open(name) if name.endswith(GZIPPED) else open(name, "rb", buffering=0)
        except OSError as error:
            raise _input_error(name, error) from None
    return contextlib.nullcontext(open(sys.stdin.fileno(), "rb", buffering=0, closefd=False))


def _has_data(stream: IO[bytes]) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # no such thing as waiting for a file, on Windows for a pipe
        return True
