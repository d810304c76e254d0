#!/usr/bin/env python3
"""fairseq-train, with the processor time spent so far on a line before each message of its log.

A command of its own, as fairseq-train is; the time is user and system time of the whole process.
Other work on the machine lengthens it far less than it does wall-clock time.
"""

import logging
import os
import sys
import time

CLOCK = "=== processor seconds "
_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own


class Clocked(logging.Formatter):
    """Every message after a line with the time."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{CLOCK}{time.process_time():.3f}\n{super().format(record)}"


def main() -> None:
    """Run fairseq-train with this process's command line."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Clocked(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    # Before fairseq, whose own call does nothing then.
    logging.basicConfig(level=os.environ.get("LOGLEVEL", "INFO").upper(), handlers=[handler])
    from fairseq_cli import train

    train.cli_main()


if __name__ == "__main__":
    main()
