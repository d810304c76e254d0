"""Run a function over the lines of text files: in order, by several processes, with a bar."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Iterable, Iterator

from tqdm import tqdm

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.reading import TextLines

CHUNK_BYTES = 1 << 18  # of text that one worker gets at a time


def progress_bar(label: str, total: int | None = None, unit: str = "B", initial: int = 0) -> tqdm:
    """Show progress on standard error; where that is a log, at most every ten seconds."""
    is_log = sys.stderr is None or not sys.stderr.isatty()
    interval = 10.0 if is_log else 0.1
    return tqdm(
        total=total,
        desc=label,
        unit=unit,
        unit_scale=True,
        initial=initial,
        mininterval=interval,
        delay=interval,
        disable=sys.stderr is None,
    )


def max_workers(workers: int, size: int | None) -> int:
    """Limit the number of processes to the number of chunks in ``size`` bytes, if it is known."""
    return workers if size is None else min(workers, 1 + size // CHUNK_BYTES)


def map_lines(
    function: Callable[[list[str]], Any], text: TextLines, *, workers: int, label: str
) -> Iterator[Any]:
    """Yield ``function(lines)`` for each chunk of lines, in the order of the text."""
    workers = max_workers(workers, text.total_bytes)
    results: Iterator[Any] = map(function, _chunks(text))
    if workers > 1:
        results = _map_in_pool(function, _chunks(text), workers)
    with progress_bar(label, text.total_bytes) as bar:
        for result in results:
            bar.update(text.read_bytes - bar.n)
            yield result


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    lines = iter(lines)
    for first in lines:
        chunk, size = [first], len(first)
        while size < CHUNK_BYTES:
            more = list(itertools.islice(lines, 100))
            if not more:
                break
            chunk += more
            size += sum(map(len, more))
        yield chunk


def _map_in_pool(
    function: Callable[[list[str]], Any], chunks: Iterable[list[str]], workers: int
) -> Iterator[Any]:
    """Map in order; unlike ``Executor.map``, read only a few chunks ahead."""
    pending: deque[Future] = deque()
    with ProcessPoolExecutor(workers, initializer=_follow_parent) as pool:
        try:
            for chunk in chunks:
                pending.append(pool.submit(function, chunk))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "a worker process was killed (out of memory? try fewer --workers)"
            ) from error
        finally:
            for future in pending:
                future.cancel()


def _follow_parent() -> None:
    """Leave signals to the parent process, and end when it has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
