"""A function of every chunk of some files, in order, by several processes."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import queue
import signal
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterable, Iterator, Sequence

from fairseq_bnce.data.preparation import reading
from fairseq_bnce.data.preparation.progress import progress_bar
from fairseq_bnce.errors import InputError


def _serve(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    pipe: Connection,
    other_end: Connection,
) -> None:
    """A worker process: answers every chunk, until the parent ends."""
    # Ctrl-C, and the end of the terminal, are the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    other_end.close()  # a fork's copy of it would keep the pipe open
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(function(shared, pipe.recv()))


@contextlib.contextmanager
def _workers(
    function: Callable[[Any, list[bytes]], Any], shared: Any, count: int
) -> Iterator[Callable[[list[bytes]], Any]]:
    """What has a chunk worked on by the next free process; these end when the work here does."""
    free: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    processes = []

    def ask(chunk: list[bytes]) -> Any:
        pipe = free.get()
        try:
            pipe.send(chunk)
            return pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise InputError(
                "a worker process was killed (out of memory? try fewer --workers)"
            ) from error
        finally:
            free.put(pipe)

    try:
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            arguments = (function, shared, theirs, ours)
            process = multiprocessing.Process(target=_serve, args=arguments, daemon=True)
            processes.append(process)
            process.start()
            theirs.close()
            free.put(ours)
        yield ask
    finally:
        # But for one that could not be started: its error is told.
        started = [process for process in processes if process.pid is not None]
        for process in started:
            process.kill()  # not SIGTERM, which Python forgets in a fork that has hardly begun
        for process in started:
            process.join()


def _pooled(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    chunks: Iterable[list[bytes]],
    workers: int,
) -> Iterator[tuple[list[bytes], Any]]:
    # Not Pool.imap: it reads its whole input ahead, here gigabytes. Not ProcessPoolExecutor: where
    # its workers are killed in the middle of a chunk, before Python 3.12, it waits for ever.
    pending: deque = deque()
    # Threads wait for the processes, which end first: no thread waits for an answer then.
    with ThreadPoolExecutor(workers) as threads, _workers(function, shared, workers) as ask:
        for chunk in chunks:
            pending.append((chunk, threads.submit(ask, chunk)))
            if len(pending) > 2 * workers:
                done, future = pending.popleft()
                yield done, future.result()
        for done, future in pending:
            yield done, future.result()


def needed_workers(workers: int, size: int | None) -> int:
    """No more workers than there are chunks of work."""
    return workers if size is None else max(1, min(workers, math.ceil(size / reading.CHUNK_BYTES)))


def map_chunks(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    names: Sequence[str],
    *,
    workers: int,
    label: str,
) -> Iterator[Any]:
    """``function(shared, lines)`` of every chunk of the files, in order, with a progress bar."""
    size = reading.total_bytes(names)
    workers = needed_workers(workers, size)
    chunks = reading.read_chunks(names)
    results: Iterator[tuple[list[bytes], Any]]
    if workers == 1:
        results = ((chunk, function(shared, chunk)) for chunk in chunks)
    else:
        results = _pooled(function, shared, chunks, workers)
    with progress_bar(label, size) as progress:
        for chunk, result in results:
            progress.update(sum(map(len, chunk)) + len(chunk))
            yield result
