"""How far the work is, on standard error: a bar on a terminal, lines as fairseq's in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from tqdm import tqdm

EVERY = 10.0  # seconds between lines


def progress_bar(label: str, total: int | None = None, unit: str = "B", initial: int = 0) -> tqdm:
    """A bar over ``total`` bytes (B) or others; None: it counts without an end."""
    return _Progress(
        total=total, desc=label, unit=unit, initial=initial, unit_scale=True, disable=None
    )


class _Progress(tqdm):
    """A bar that writes a line from time to time where standard error is no terminal."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._options = options
        self._start = self._written = time.monotonic()

    def update(self, n: float | None = 1) -> bool | None:
        shown = super().update(n)
        if self.disable:  # tqdm counts nothing then
            self.n += n or 0
            if time.monotonic() - self._written >= EVERY:
                self._written = time.monotonic()
                self._write_line()
        return shown

    def _write_line(self) -> None:
        names = ("unit", "unit_scale", "initial")
        options = {name: self._options[name] for name in names}
        meter = tqdm.format_meter(
            self.n,
            self.total,
            self._written - self._start,
            ncols=0,
            prefix=self._options["desc"],
            **options,
        )
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                print(f"{now} | INFO | fairseq_bnce | {meter}", file=sys.stderr, flush=True)
