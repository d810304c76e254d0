"""Stages that are done once each, with results in a folder."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, Optional, Sequence

from experiments import command, machine, processes

REPORT = "report"
CHOSEN = "chosen.json"
# Options that do not change results. Names of folders do not, either: folders may be moved.
FREE = ("only", "threads", "out")
Steps = Dict[str, Callable[["Run"], Any]]


class Run:
    """The folder of results, and its commands."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.data, self.folder = options.data.resolve(), options.out.resolve()
        self.threads, self.plugin = options.threads, machine.plugin_folder()
        self.folder.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Do a stage unless OUT/done/NAME exists, which holds the seconds of the stage."""
        done = self.at("done", name)
        if done.exists():
            return say(f"{name}: done before, {done.read_text().strip()} s")
        say(name)
        start = time.time()
        work()
        done.write_text(f"{time.time() - start:.0f}\n")
        write_json(self.folder / CHOSEN, self.chosen())
        say(f"{name}: {time.time() - start:.0f} s")

    def chosen(self) -> Dict[str, Any]:
        """Return the options that results depend on; for a folder with results, its own options."""
        found: Dict[str, Any] = {}
        for name, value in vars(self.options).items():
            if not isinstance(value, Path):
                found[name] = value
            elif (value / CHOSEN).is_file():
                found[name] = json.loads((value / CHOSEN).read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if name not in FREE}

    def check_chosen(self) -> None:
        """Raise UsageError for options that differ from those of the folder's results."""
        path = self.folder / CHOSEN
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for name, got in self.chosen().items():
            if got != before.get(name, got):
                raise command.UsageError(
                    f"--{name}: required {before[name]}, as for the results in {self.folder}, or "
                    f"another --out; got {got}"
                )

    def at(self, folder: str, name: str) -> Path:
        """Return the path of a file, and make its folder."""
        (self.folder / folder).mkdir(exist_ok=True)
        return self.folder / folder / name

    def python(self, *arguments: Any, printed: Optional[Path] = None) -> None:
        """Run a command of this Python. Its output goes to OUT/log, or to ``printed``."""
        line = [sys.executable, *map(str, arguments)]
        processes.run(line, self.folder / "log", self.threads, printed)


def parser(about: str, steps: Steps, out: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of both examples; ``out`` is the default of ``--out``."""
    made = command.parser(about, default=Path(out))
    add = made.add_argument
    add("--data", type=Path, required=True, help="folder that fairseq-bnce get-data mscc made")
    add("--only", nargs="+", choices=steps, metavar="STAGE", help=", ".join(steps))
    return made


def run_all(options: argparse.Namespace, steps: Steps) -> int:
    """Do the chosen stages, the report always anew, and return the exit status."""
    run = Run(options)
    return command.status(lambda: _run(run, steps, options.only or list(steps)))


def _run(run: Run, steps: Steps, chosen: Sequence[str]) -> int:
    run.check_chosen()
    for name in chosen:
        if name == REPORT:
            steps[name](run)
        else:
            run.stage(name, partial(steps[name], run))
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def opened(path: Path, mode: str) -> IO[Any]:
    """Open a text file, which may be gzipped."""
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.GzipFile(path, mode), encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file without their ends."""
    with opened(path, "r") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write beside the file, then rename."""
    part = path.with_name(f"part.{path.name}")
    with opened(part, "w") as out:
        out.writelines(f"{line}\n" for line in lines)
    part.replace(path)


def write_json(path: Path, found: Any) -> str:
    """Write JSON and return its text."""
    text = json.dumps(found, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return text
