#!/usr/bin/env python3
"""fairseq-train, with the processor time spent so far on a line before each message of its log.

A command of its own, as fairseq-train is; the time is user and system time of the whole process.
Other work on the machine, which lengthens wall-clock time, lengthens it far less.
"""

from __future__ import annotations

import logging
import time

CLOCK = "=== processor seconds "


class Clocked(logging.Formatter):
    """Messages as ``inner`` writes them, each after a line with the time."""

    def __init__(self, inner: logging.Formatter):
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return f"{CLOCK}{time.process_time():.3f}\n{self._inner.format(record)}"


def main() -> None:
    from fairseq_cli import train  # which sets the log up

    for handler in logging.getLogger().handlers:
        handler.setFormatter(Clocked(handler.formatter or logging.Formatter()))
    train.cli_main()


if __name__ == "__main__":
    main()
