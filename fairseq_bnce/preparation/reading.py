"""Text files as lines of bytes, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Iterable, Iterator

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.lines import LINE_LIMIT, STDIN

CHUNK_BYTES = 1 << 18  # of text handed to a worker at a time: seconds of work, not minutes


def check_input(name: str) -> None:
    """Refuse, before any work is done, what cannot be read as lines of text."""
    if name == STDIN:
        return
    path = Path(name)
    if not path.exists() or path.is_dir():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"input: a text file is required, but {name} {kind}")
    if path.is_file():  # reading ahead in a pipe would lose its beginning
        with path.open("rb") as stream:
            if b"\0" in stream.read(8192):
                raise InputError(
                    f"input: UTF-8 text is required, but {name} holds zero bytes: compressed, "
                    f"binary or UTF-16 (decompress or convert it and pipe it in as '{STDIN}')"
                )


def open_input(name: str) -> Any:
    """A context manager that gives the file (or standard input) as bytes."""
    if name == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    return open(name, "rb")


def read_lines(name: str) -> Iterator[bytes]:
    """The lines of a file, cut at line feeds only, as fairseq cuts them."""
    with open_input(name) as stream:
        while True:
            line = stream.readline(LINE_LIMIT + 1)
            if len(line) > LINE_LIMIT:
                raise InputError(
                    f"input: lines of at most {LINE_LIMIT:,} bytes are required, but {name} has a "
                    "longer one: break it into sentences first (or `fold -s -w 2000` it)"
                )
            if not line:
                return
            yield line


def read_chunks(names: Iterable[str]) -> Iterator[list[bytes]]:
    """Lists of lines of about ``CHUNK_BYTES``."""
    for name in names:
        chunk: list[bytes] = []
        size = 0
        for line in read_lines(name):
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def total_bytes(names: Iterable[str]) -> int | None:
    """The size of all files together; None where one cannot be known (a pipe)."""
    if not all(name != STDIN and os.path.isfile(name) for name in names):
        return None
    return sum(os.path.getsize(name) for name in names)
