"""Lines out: to standard output, or to a file that appears when it is whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from typing import IO, Any, ContextManager, Optional, Tuple

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.lines import GZIPPED, LINE_LIMIT, STDIN, to_bytes

STDOUT = "standard output"
_KEPT = "kept"  # an attribute of errors
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class Output:
    """A context manager; what is written by :meth:`write` are whole lines.

    A file is written under the name of :func:`part_of`, which it keeps if an error ends the work,
    with the whole lines until then; :func:`kept` tells of it. What an earlier error left there goes
    with the first line. No other run can write it meanwhile. A device or a pipe is written to as it
    is, and for a link the file that it names.

    Args:
        name: of the file; None or ``-`` for standard output.

    Raises:
        InputError: for a name that is empty or a file that can't be written, or is being written
            by another run, here; later, where there is no more room.
    """

    def __init__(self, name: Optional[str]):
        if name == "":
            raise InputError("output: required a file's name, got an empty one")
        self.name = name = None if name == STDIN else name
        # What it is called until it is whole, and then; None for what is written to as it is.
        self._names: Optional[Tuple[str, str]] = None
        if name is not None and not is_special(name):
            _refuse_gzip(name)
            real = os.path.realpath(name) if os.path.islink(name) else name
            self._names = part_of(real), real
        self._lock: ContextManager = contextlib.nullcontext()
        if self._names:
            self._lock = claimed(self.name, self._names[0])
        self._stream = _open(name, self._names[0] if self._names else name)
        self._is_begun = self._names is None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], _: Any) -> None:
        if self.name is not None:
            with self._lock:
                self._end(error)

    def _end(self, error: Optional[BaseException]) -> None:
        try:
            self._close(is_whole=error is None)
        except BaseException as problem:
            self._keep(error or problem)
            if error is None:
                raise
        else:
            if error is not None:
                self._keep(error)

    def write(self, line: str) -> None:
        """Write a line, without its line feed."""
        try:
            self._begin()
            self._stream.write(to_bytes(line + "\n"))
        except OSError as error:
            raise self._failure(error) from error

    def flush(self) -> None:
        """Let who reads a pipe have what is there."""
        try:
            self._stream.flush()
        except OSError as error:
            raise self._failure(error) from error

    def _begin(self) -> None:
        if not self._is_begun:
            self._stream.truncate(0)
            self._is_begun = True

    def _failure(self, error: OSError) -> Exception:
        if self.name is None:
            discard_stdout()
        return write_error(self.name, error)

    def _close(self, is_whole: bool) -> None:
        try:
            if is_whole:
                self._begin()
            self._stream.close()
            if is_whole and self._names is not None:
                os.replace(*self._names)
        except OSError as error:
            raise write_error(self.name, error) from error

    def _keep(self, error: BaseException) -> None:
        """Leave whole lines behind, if there are any, and let the error tell of them."""
        if self._names is None:
            return
        part = self._names[0]
        with contextlib.suppress(OSError):
            if not self._is_begun and os.path.getsize(part):
                return  # that of an earlier error
            if _cut_to_whole_lines(part):
                setattr(error, _KEPT, (*kept(error), part))
            else:
                os.remove(part)


def is_special(name: str) -> bool:
    """Whether it is a device or a pipe, or one of the names of an open file, as /dev/stdout is."""
    ends = [name, os.readlink(name)] if os.path.islink(name) else [name]
    if any(os.path.abspath(end).startswith(_OPEN_FILES) for end in ends):
        return True
    return os.path.exists(name) and not os.path.isfile(name)


def part_of(name: str) -> str:
    """The name that a file has until it is whole."""
    return f"{name}.part"


def claimed(name: Optional[str], part: str) -> IO[bytes]:
    """The file of what is unfinished, locked until this is closed.

    Args:
        name: what it is called once it is whole.
        part: what it is called until then.

    Raises:
        InputError: where it can't be written, or another run has it, or has finished it since it
            was opened.
    """
    file = _open(name, part)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(os.fstat(file.fileno()), os.stat(part))
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    except OSError:  # a file system without locks
        is_ours = True
    if not is_ours:
        file.close()
        raise InputError(
            f"{name}: required a file that no other run is writing, got one whose {part} another "
            "has open"
        )
    return file


def kept(error: BaseException) -> Tuple[str, ...]:
    """The files in which there is what was done before an error."""
    return getattr(error, _KEPT, ())


def write_error(name: Optional[str], error: OSError) -> Exception:
    """What to raise for a file (None: standard output) that can't be written any more.

    Returns:
        an InputError that names it, or BrokenPipeError as it is.
    """
    if isinstance(error, BrokenPipeError):
        return error
    reason = error.strerror or str(error)
    return InputError(f"{name or STDOUT}: required room to write, got: {reason}")


def say(line: str) -> None:
    """Print a line of what was done; what standard output's encoding lacks is escaped.

    Raises:
        InputError: where there is no room to write.
    """
    if sys.stdout is None:  # closed: nobody is to be told
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(line.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        discard_stdout()
        raise write_error(None, error) from error


def discard_stdout() -> None:
    """Let what still waits go nowhere, or the interpreter's last flush would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open(name: Optional[str], path: Optional[str]) -> IO[bytes]:
    if path is None:
        if sys.stdout is None:
            raise InputError(f"{STDOUT}: required an open one, got a closed one")
        return sys.stdout.buffer
    try:
        # Nothing is cut down: /dev/stdout may be a file that has something already.
        return open(path, "ab")
    except OSError as error:
        raise InputError(f"{name}: required a file to write, got: {error.strerror}") from error


def _refuse_gzip(name: str) -> None:
    if name.endswith(GZIPPED):
        raise InputError(
            f"{name}: required a name without .gz, since plain text is written, got this one"
        )


def _cut_to_whole_lines(path: str) -> int:
    """Take off what is behind the last line feed; the size then, bytes."""
    with open(path, "r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LINE_LIMIT)
        file.seek(start)
        return file.truncate(start + file.read().rfind(b"\n") + 1)
