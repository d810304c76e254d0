#!/usr/bin/env python3
"""fairseq-train, with what was trained so far on a line before each message of its log.

The line has the update, the words, and the seconds of the clock and of the processor (user and
system time of the whole process, which other work on the machine lengthens far less). Both leave
out start-up, validation and saving.
"""

import contextlib
import json
import logging
import os
import sys
import time
from typing import Any, Callable, Iterator, List

CLOCK = "=== trained "
_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # fairseq's own


class Clock(logging.Formatter):
    """Puts what was trained, and how long the clock ran, before every message."""

    update = words = 0

    def __init__(self) -> None:
        super().__init__(_FORMAT, "%Y-%m-%d %H:%M:%S")
        self._before, self._since = [0.0, 0.0], _now()
        self._runs = False

    def format(self, record: logging.LogRecord) -> str:
        trained = [self.update, self.words, *self._read()]
        return f"{CLOCK}{json.dumps(trained)}\n{super().format(record)}"

    @contextlib.contextmanager
    def running(self, runs: bool) -> Iterator[None]:
        """Let the clock run, or stand; afterwards it does the reverse. Also a decorator."""
        self._turn(runs)
        yield
        self._turn(not runs)

    def _turn(self, runs: bool) -> None:
        self._before, self._since, self._runs = self._read(), _now(), runs

    def _read(self) -> List[float]:
        more = _now() if self._runs else self._since
        return [spent + t - t0 for spent, t, t0 in zip(self._before, more, self._since)]

    def counting(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return Trainer.train_step; updates and words are counted."""

        def counted(trainer: Any, samples: Any, **kwargs: Any) -> Any:
            found = step(trainer, samples, **kwargs)
            self.update = trainer.get_num_updates()
            self.words += sum(int(sample["ntokens"]) for sample in samples if sample)
            return found

        return counted


def _now() -> List[float]:
    return [time.perf_counter(), time.process_time()]


def main() -> None:
    """Run fairseq-train with this process's command line."""
    clock, handler = Clock(), logging.StreamHandler(sys.stdout)
    handler.setFormatter(clock)
    # Before fairseq, whose own call does nothing then.
    logging.basicConfig(level=os.environ.get("LOGLEVEL", "INFO").upper(), handlers=[handler])
    from fairseq.trainer import Trainer
    from fairseq_cli import train

    train.train = clock.running(True)(train.train)
    train.validate_and_save = clock.running(False)(train.validate_and_save)
    Trainer.train_step = clock.counting(Trainer.train_step)
    train.cli_main()


if __name__ == "__main__":
    main()
