"""Texts as bytes, whatever their names: compressed files are unpacked, other kinds are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import select
import zlib
from typing import Any, Callable, Dict

from fairseq_bnce.errors import InputError

_FIRST = 2**16  # bytes that are looked at
# How compressed files begin, and what reads them.
_COMPRESSED: Dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
# How other kinds of files begin; UTF-32's little-endian mark begins with UTF-16's.
_REFUSED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\3\4": "a zip archive",
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


def is_compressed(name: str) -> bool:
    """Whether a file is compressed; False for a pipe, whose first bytes can be read only once."""
    if not os.path.isfile(name):
        return False
    try:
        with open(name, "rb") as file:
            return file.read(max(map(len, _COMPRESSED))).startswith(tuple(_COMPRESSED))
    except OSError:  # whoever reads it says so
        return False


def unpacked(stream: Any, name: str) -> io.RawIOBase:
    """The bytes of a text, unpacked if the first ones say that they are compressed.

    Nothing is read ahead but what one system call returns. Closing the result leaves ``stream``
    open.

    Args:
        stream: the file, opened for bytes.
        name: the file's name in messages.

    Raises:
        InputError: here for another kind of file by its first bytes; here and later for a damaged
            one.
    """
    text = _Text(stream, name)
    start = text.start()
    for mark, opener in _COMPRESSED.items():
        if start.startswith(mark):
            return unpacked(opener(text), name)
    _refuse_other_kinds(start, name)
    return text


class _Text(io.RawIOBase):
    """A stream whose first bytes can be looked at before they are read."""

    def __init__(self, stream: Any, name: str):
        self._stream, self._name = stream, name
        self._waiting = b""

    def start(self) -> bytes:
        """The first bytes, which stay there to be read."""
        self._waiting = self._some(_FIRST)
        return self._waiting

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        found = self._waiting or self._some(size)
        self._waiting = found[size:]
        buffer[: len(found[:size])] = found[:size]
        return len(found[:size])

    def _some(self, size: int) -> bytes:
        """What one system call returns; nothing at the end."""
        read = getattr(self._stream, "read1", self._stream.read)
        try:
            while True:
                found = read(size)
                if found is not None:
                    return found
                select.select([self._stream], [], [])  # it was opened not to wait
        except _DAMAGED as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{self._name}: required readable text, got: {reason}") from None


def _refuse_other_kinds(start: bytes, name: str) -> None:
    kind = next((kind for mark, kind in _REFUSED.items() if start.startswith(mark)), None)
    if kind is None and 4 * start.count(0) > len(start):  # without a mark
        kind = "as many zero bytes as UTF-16 has"
    if kind is not None:
        raise InputError(f"{name}: required UTF-8 text, got {kind}")
