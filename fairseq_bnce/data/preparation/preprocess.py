"""fairseq-preprocess, for :mod:`binarising`: it ends where one of its workers is killed.

By itself it waits for ever for what such a worker was to do. A program, to be run by its path and
as the leader of its process group.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

_join = BaseProcess.join


def _join_and_look(process: BaseProcess, timeout: float | None = None) -> None:
    """Which a pool calls once a worker has ended."""
    _join(process, timeout)
    if process.exitcode == -signal.SIGKILL:  # as by a machine that is out of memory
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    # This folder's modules are no top-level ones.
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
    from fairseq_cli.preprocess import cli_main

    BaseProcess.join = _join_and_look  # type: ignore
    cli_main()
