"""A folder with the results of stages, each of which is done once."""

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
# Options that a folder's results are not of; what folders are called, neither: they may be moved.
FREE = ("only", "threads", "out")
Steps = Dict[str, Callable[["Run"], Any]]


class Run:
    """A folder with results, and how commands are run for it."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.data, self.folder = options.data.resolve(), options.out.resolve()
        self.threads, self.plugin = options.threads, machine.plugin_folder()
        self.folder.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Do it unless it was done; a file OUT/done/NAME tells, with the seconds that it took."""
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
        """The options that results depend on; for a folder of other results, those of its own."""
        found: Dict[str, Any] = {}
        for name, value in vars(self.options).items():
            if not isinstance(value, Path):
                found[name] = value
            elif (value / CHOSEN).is_file():
                found[name] = json.loads((value / CHOSEN).read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if name not in FREE}

    def check_chosen(self) -> None:
        """Raise UsageError for other options than those that the folder's results are of."""
        path = self.folder / CHOSEN
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for name, got in self.chosen().items():
            if got != before.get(name, got):
                raise command.UsageError(
                    f"--{name}: required {before[name]}, which the results in {self.folder} are "
                    f"of, or another --out; got {got}"
                )

    def at(self, folder: str, name: str) -> Path:
        """The path of a file; its folder is made."""
        (self.folder / folder).mkdir(exist_ok=True)
        return self.folder / folder / name

    def python(self, *arguments: Any, printed: Optional[Path] = None) -> None:
        """A command of this Python; what it prints goes to OUT/log, or standard output elsewhere.

        Raises:
            processes.CommandFailed: if it did not succeed.
        """
        line = [sys.executable, *map(str, arguments)]
        processes.run(line, self.folder / "log", self.threads, printed)


def parser(about: str, steps: Steps, out: str) -> argparse.ArgumentParser:
    """With the flags of every example of the novels; ``out``: the default of ``--out``."""
    made = command.parser(about, default=Path(out))
    add = made.add_argument
    add("--data", type=Path, required=True, help="folder that fairseq-bnce get-data mscc made")
    add("--only", nargs="+", choices=steps, metavar="STAGE", help=", ".join(steps))
    return made


def run_all(options: argparse.Namespace, steps: Steps) -> int:
    """Those that are chosen, and the exit status; a report whether or not it was made before."""
    run = Run(options)
    return command.status(lambda: _run(run, steps, options.only or list(steps)))


def _run(run: Run, steps: Steps, chosen: Sequence[str]) -> int:
    run.check_chosen()
    for name in chosen:
        try:
            if name == REPORT:
                steps[name](run)
            else:
                run.stage(name, partial(steps[name], run))
        except FileNotFoundError as error:  # of a folder that was named, or of an earlier stage
            raise command.UsageError(
                f"{name}: required {error.filename}, got no such file"
            ) from error
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def opened(path: Path, mode: str) -> IO[Any]:
    """A text file that may be gzipped."""
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.GzipFile(path, mode), encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def lines_of(path: Path) -> Iterator[str]:
    """Without their ends."""
    with opened(path, "r") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """The file appears when it is whole."""
    part = path.with_name(f"part.{path.name}")
    with opened(part, "w") as out:
        out.writelines(f"{line}\n" for line in lines)
    part.replace(path)


def write_json(path: Path, found: Any) -> str:
    """As it is written, indented."""
    text = json.dumps(found, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return text
