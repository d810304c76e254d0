"""A function of every chunk of some files, in order, by several processes."""

from __future__ import annotations

import math
import signal
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Sequence

from fairseq_bnce.preparation import reading
from fairseq_bnce.preparation.progress import progress_bar

_shared: Any = None  # in a worker process: what all its chunks need, sent once


def _start_worker(shared: Any) -> None:
    global _shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _shared = shared


def _work(function: Callable[[Any, list[bytes]], Any], lines: list[bytes]) -> Any:
    return function(_shared, lines)


def _pooled(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    chunks: Iterable[list[bytes]],
    workers: int,
) -> Iterator[tuple[list[bytes], Any]]:
    # Not Pool.imap: it reads its whole input ahead, here gigabytes, and waits for ever
    # for a worker that was killed.
    pending: deque = deque()
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(shared,)) as pool:
        for chunk in chunks:
            pending.append((chunk, pool.submit(_work, function, chunk)))
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
