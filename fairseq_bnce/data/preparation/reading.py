"""Text files in chunks of lines, for workers: bytes, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Iterator

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.reading import STDIN, TextLines, is_compressed

CHUNK_BYTES = 1 << 18  # of text handed to a worker at a time: seconds of work, not minutes


def check_input(name: str) -> None:
    """Refuse, before any work is done, what cannot be read as lines of text."""
    if name == STDIN:
        return
    path = Path(name)
    if not path.exists() or path.is_dir():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"input: a text file is required, but {name} {kind}")
    # Reading ahead in a pipe would lose its beginning.
    if path.is_file() and b"\0" in _first_bytes(path) and not is_compressed(name):
        raise InputError(
            f"input: UTF-8 text is required, but {name} holds zero bytes: an archive, binary or "
            f"UTF-16 (convert it and pipe it in as '{STDIN}')"
        )


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(8192)
    except OSError as error:
        required = "input: a file that can be read is required"
        raise InputError(f"{required}, but {path}: {error.strerror}") from error


def read_chunks(names: Iterable[str]) -> Iterator[list[bytes]]:
    """Lists of lines, without their ends, of about ``CHUNK_BYTES``."""
    for name in names:
        chunk: list[bytes] = []
        size = 0
        for line in TextLines([name]).undecoded():
            chunk.append(line)
            size += len(line) + 1
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def total_bytes(names: Iterable[str]) -> int | None:
    """The size of all files together; None where one cannot be known (a pipe)."""
    return TextLines(list(names)).total_bytes
