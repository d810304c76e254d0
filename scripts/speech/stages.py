"""Stages of an example, with results in a folder, and the files that they read and write."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from experiments.workshop import Workshop

Steps = Dict[str, Callable[["Run"], Any]]
say = functools.partial(print, flush=True)


class Run(Workshop):
    """The folder of results, its commands, and the data."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        self.data, self.folder = options.data.resolve(), self.out


def run_all(options: argparse.Namespace, steps: Steps) -> Optional[Dict[str, Any]]:
    """Run the chosen stages, or all of them, and return what the last stage found."""
    run, found = Run(options), None
    for name in options.only or steps:
        say(name)
        found = steps[name](run)
    return found


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file without their ends."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
