"""Stages that are done once each, with results in a folder."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, Optional

from experiments import command, processes

REPORT = "report"
FREE = ("only", "threads")  # options that do not change results
Steps = Dict[str, Callable[["Run"], Any]]


class Run:
    """The folder of results, and its commands."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.threads = options, options.threads
        self.data, self.folder = options.data.resolve(), options.out.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def at(self, folder: str, name: str) -> Path:
        """Return the path of a file, and make its folder."""
        (self.folder / folder).mkdir(exist_ok=True)
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
    """Do the chosen stages, the report always anew, and return 0.

    A finished stage has a file OUT/done/NAME, which holds its seconds.

    Raises:
        UsageError: for options that differ from those of the folder's results.
    """
    run = Run(options)
    _check_options(run)
    for name in options.only or steps:
        done, start = run.at("done", name), time.time()
        if name == REPORT:
            steps[name](run)
        elif done.exists():
            say(f"{name}: done before, {done.read_text().strip()} s")
        else:
            say(name)
            steps[name](run)
            done.write_text(f"{time.time() - start:.0f}\n")
    return 0


def _check_options(run: Run) -> None:
    path, options = run.folder / "chosen.json", vars(run.options).items()
    chosen = {k: v for k, v in options if k not in FREE and not isinstance(v, Path)}
    before = read_json(path) if path.is_file() else chosen
    for name, got in chosen.items():
        if got != before[name]:
            raise command.UsageError(
                f"--{name}: required {before[name]}, as for the results in {run.folder}, or "
                f"another --out; got {got}"
            )
    write_json(path, chosen)


def say(text: str) -> None:
    print(text, flush=True)


def _open(path: Path, mode: str) -> IO[Any]:
    """Open a text file, which may be gzipped."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    return opener(path, mode, encoding="utf-8")


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file without their ends."""
    with _open(path, "rt") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a file."""
    with _open(path, "wt") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, found: Any) -> str:
    """Write JSON and return its text."""
    text = json.dumps(found, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return text
