"""Stages of an example, with results in a folder, and the files that they read and write."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from experiments import processes

Steps = Dict[str, Callable[["Run"], Any]]
say = functools.partial(print, flush=True)


class Run:
    """The folder of results, and its commands."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.threads = options, options.threads
        self.data, self.folder = options.data.resolve(), options.out.resolve()

    def at(self, folder: str, name: str) -> Path:
        """Return the path of a file, and make its folder."""
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        return self.folder / folder / name

    def command(self, *command: Any, printed: Optional[Path] = None) -> processes.Ended:
        """Run a command. Its output goes to OUT/log, or to ``printed``."""
        return processes.run(command, self.folder / "log", self.threads, printed)

    def python(self, *arguments: Any, printed: Optional[Path] = None) -> processes.Ended:
        """Run a command of this Python."""
        return self.command(sys.executable, *arguments, printed=printed)


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
