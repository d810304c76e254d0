"""Lines of text as they come in: streamed, bad UTF-8 mended."""

from __future__ import annotations

import contextlib
import heapq
import io
import os
import random
import select
import stat
import sys
from collections import deque
from typing import Any, Deque, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.files import is_compressed, unpacked
from fairseq_bnce.text.lines import LINE_LIMIT, STDIN, decoded

_CHUNK = 2**16


class TextLines:
    """The lines of files, one after the other, without their line ends.

    Nothing is read ahead but what one system call returns, so that lines of a pipe are handed on
    as soon as they are there. Lines end where fairseq-preprocess cuts them: at a line feed, a
    carriage return, or both in this order. All else that stands between words is a space.

    Args:
        names: files, compressed or not; ``-`` is standard input, and so is an empty list.

    Attributes:
        bad_lines: how many lines so far were not UTF-8; in them U+FFFD stands for what was none.
        lone_returns: how many lines so far ended at a carriage return alone.
        read_bytes: how many bytes were read so far.
        total_bytes: how many there are; None if that cannot be known.

    Raises:
        InputError: for what can't be opened, here, before any other work; in the loop, for a
            line of more than ``LINE_LIMIT`` bytes, and see
            :func:`fairseq_bnce.text.files.unpacked`.
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
        self._stream: Optional[io.RawIOBase] = None

    def __iter__(self) -> Iterator[str]:
        return map(self._decode, self.undecoded())

    def undecoded(self) -> Iterator[bytes]:
        """The lines as bytes."""
        for name in self.names:
            with _open(name) as raw:
                self._stream = unpacked(raw, _named(name))
                yield from self._lines(self._stream, name)

    def is_ready(self) -> bool:
        """Whether the next line can be had, or its beginning, without waiting for a writer."""
        return bool(self._waiting) or self._stream is None or _has_data(self._stream)

    def _lines(self, stream: io.RawIOBase, name: str) -> Iterator[bytes]:
        rest: List[bytes] = []  # the parts of a line whose end is still to come
        size = 0
        for chunk in self._chunks(stream):
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

    def _chunks(self, stream: io.RawIOBase) -> Iterator[bytes]:
        """What is read, every line end a line feed; one in two parts is told by the first."""
        after_return = False
        for chunk in iter(lambda: stream.read(_CHUNK) or b"", b""):
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


def _input_error(name: str, error: OSError) -> InputError:
    return InputError(f"{_named(name)}: required a text file, got: {error.strerror or error}")


def _named(name: str) -> str:
    return f"input {quoted(name)}"


def _check_length(size: int, name: str) -> None:
    if size > LINE_LIMIT:
        raise InputError(
            f"{_named(name)}: required lines of at most {LINE_LIMIT:,} bytes, got a longer "
            "one; break it into sentences first"
        )


def _total_bytes(names: Sequence[str]) -> Optional[int]:
    if any(name == STDIN or is_compressed(name) for name in names):
        return None
    return sum(map(os.path.getsize, names)) if all(map(os.path.isfile, names)) else None


def _open(name: str) -> Any:
    """Unbuffered: a buffered reader would wait until its buffer is full."""
    if name != STDIN:
        try:
            return open(name, "rb", buffering=0)
        except OSError as error:
            raise _input_error(name, error) from None
    return contextlib.nullcontext(open(sys.stdin.fileno(), "rb", buffering=0, closefd=False))


def _has_data(stream: io.RawIOBase) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # no such thing as waiting for a file, on Windows for a pipe
        return True
