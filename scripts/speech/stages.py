"""Stages of an example, with results in a folder, and the files that they read and write."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from experiments import command, processes

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

    def python(self, *arguments: Any, printed: Optional[Path] = None) -> None:
        """Run a command of this Python. Its output goes to OUT/log, or to ``printed``."""
        processes.run([sys.executable, *arguments], self.folder / "log", self.threads, printed)


def parser(about: str, steps: Steps, out: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of both examples; ``out`` is the default of ``--out``."""
    made = command.parser(about, default=Path(out))
    add = made.add_argument
    add("--data", type=Path, required=True, help="folder that fairseq-bnce get-data mscc made")
    add("--only", nargs="+", choices=steps, metavar="STAGE", help=", ".join(steps))
    return made


def run_all(options: argparse.Namespace, steps: Steps) -> int:
    """Run the chosen stages, or all of them, and return 0."""
    run = Run(options)
    for name in options.only or steps:
        say(name)
        steps[name](run)
    return 0


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file without their ends."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_json(path: Path, found: Any) -> None:
    """Write JSON, and print it."""
    write(path, [json.dumps(found, indent=1)])
    say(path.read_text(encoding="utf-8"))
