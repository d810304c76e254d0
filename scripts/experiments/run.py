"""Runs: parts that are done once, each in a process of its own, in a folder that keeps them."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Type, TypeVar

from . import machine, processes
from .command import UsageError
from .logs import UnreadableLog

Say = Callable[[str], None]
# (name, key: another one makes a stored part stale, what makes its value)
Part = Tuple[str, Any, Callable[[], Tuple[Any, processes.Ended]]]
T = TypeVar("T")
HERE = Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")
DATA, AS_TEXT = (str(HERE / "measures" / name) for name in ("data.py", "as_text.py"))


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        system: what was run; ``case``: the seed or the size that it was run with.
        folder: relative to the experiment's.
        parts: what was found, by the part's name.
        errors: what parts died of, by name; by no name ("") if that was the end of the run.
    """

    system: Any
    case: Any
    folder: str = ""
    parts: Dict[str, Any] = field(default_factory=dict)
    errors: Dict[str, str] = field(default_factory=dict)

    @property
    def error(self) -> Optional[str]:
        """The first one."""
        return next(iter(self.errors.values()), None)


class Run:
    """A run and its folder, whose name ends in a hash of what could change its result.

    So a changed recipe is another run, and the same one goes on where it was.

    Args:
        settings: of all runs, with ``out``, ``plugin`` and ``threads``.
        label: the beginning of the folder's name.
        identity: what could change the result.
    """

    ends_at_first_error = False

    def __init__(self, settings: Any, system: Any, case: Any, label: str, identity: Any):
        self.settings, self.system, self.case, self.identity = settings, system, case, identity
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
        self.folder = settings.out / "runs" / f"{label}-{key}"
        self._stored = _read(self.folder / "result.json")

    @property
    def name(self) -> str:
        raise NotImplementedError

    def parts(self) -> Iterable[Part]:
        raise NotImplementedError

    def complete(self, say: Say = print) -> Outcome:
        """Go through the parts that are not done yet.

        Args:
            say: called with what is about to be done, and with why it failed.
        """
        found: Dict[str, Any] = {}
        errors: Dict[str, str] = {}
        for name, key, do in self.parts():
            try:
                found[name] = self.read(name, self._part(name, key, do, say))
            except (processes.CommandFailed, UnreadableLog) as error:
                part = "" if self.ends_at_first_error else name
                errors[part] = str(error)
                say(f"{self.name}: {failed(part)}: {error}, in {self._place}")
                if self.ends_at_first_error:
                    break
        return Outcome(self.system, self.case, self._place, found, errors)

    def read(self, name: str, stored: Dict[str, Any]) -> Dict[str, Any]:
        """What is made of a part as it was stored."""
        return stored

    def measure(self, name: str, *arguments: Any) -> Tuple[Any, processes.Ended]:
        """What a measure of measure.py finds."""
        return measure(name, self.folder / f"{name}.json", self.settings.threads, *arguments)

    @property
    def _place(self) -> str:
        return str(self.folder.relative_to(self.settings.out))

    def _part(self, name: str, key: Any, do: Callable[[], Any], say: Say) -> Dict[str, Any]:
        stored = self._stored.get(name)
        if stored is None or stored.get("key") != key:
            say(f"{self.name}: {name}")
            value, ended = do()
            stored = self._stored[name] = {
                "value": value,
                "ended": asdict(ended),
                "hardware": machine.hardware(),
                "date": time.strftime("%Y-%m-%d"),
                "versions": machine.versions(),
                "plugin": machine.plugin_fingerprint(self.settings.plugin),
                **({} if key is None else {"key": key}),
            }
            _write(self.folder / "result.json", self._stored)
        return stored


def failed(part: str) -> str:
    return f"{part} failed".strip()


def measure(name: str, found: Path, threads: int, *arguments: Any) -> Tuple[Any, processes.Ended]:
    """What a measure of measure.py writes to the file ``found``, and how its process ended."""
    command = [sys.executable, str(HERE / "measure.py"), name, "--out", str(found)]
    ended = processes.run([*command, *map(str, arguments)], found.with_suffix(".log"), threads)
    return json.loads(found.read_text(encoding="utf-8")), ended


def find_device(options: argparse.Namespace) -> Dict[str, str]:
    """``device`` (cpu or cuda) and ``device_name``, for settings.

    torch is asked in a child, so that this process stays small. Makes the folder of ``--out``.

    Raises:
        UsageError: for a GPU that is not there.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"cuda": None}
    if options.device != "cpu":
        found, _ = measure("device", options.out / "device.json", options.threads)
    if found["cuda"] is not None:
        return {"device": "cuda", "device_name": found["cuda"]}
    if options.device == "cuda":
        raise UsageError("--device cuda: required a GPU that torch can use, got none")
    return {"device": "cpu", "device_name": str(machine.hardware()["processor"])}


def device_flags(device: str) -> List[str]:
    """What fairseq's commands must be told to stay on the CPU."""
    return ["--cpu"] if device == "cpu" else []


def make_data(folder: Path, log: Path, threads: int, **flags: Any) -> Path:
    """Make a corpus, unless it is there.

    Args:
        flags: of measures/data.py.

    Raises:
        processes.CommandFailed: if that did not succeed.
    """
    if not folder.is_dir():
        print(f"{folder.name}: making data", file=sys.stderr, flush=True)
        said = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        processes.run([sys.executable, DATA, "--out", str(folder), *said], log, threads)
    return folder


def complete_all(
    runs: Sequence[Run], write: Callable[[List[Outcome]], None], report: Path
) -> List[Outcome]:
    """Run after run. One that dies is one of the outcomes, and the others are still made.

    Args:
        write: writes the report of the runs so far; called after each, so that a long experiment
            can be watched.
        report: what is printed in the end.
    """
    found: List[Outcome] = []
    for place, run in enumerate(runs, start=1):
        found.append(_outcome(run, f"[{place}/{len(runs)}]"))
        write(found)
    print(report.read_text(encoding="utf-8"))
    return found


def settings(kind: Type[T], options: argparse.Namespace, **others: Any) -> T:
    """An experiment's settings: what the command line has by the same names, and ``others``."""
    places = {"out": options.out.resolve(), "plugin": machine.plugin_folder()}
    names = [name for name in inspect.signature(kind).parameters if hasattr(options, name)]
    said = {name: getattr(options, name) for name in names}
    chosen = {**said, **places, **others}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()})


def _outcome(run: Run, position: str) -> Outcome:
    said: List[str] = []
    start = time.perf_counter()

    def say(text: str) -> None:
        said.append(text)
        print(position, text, flush=True)

    outcome = run.complete(say)
    if not outcome.errors:
        took = f"done in {time.perf_counter() - start:.0f} s" if said else "taken from disk"
        print(f"{position} {run.name}: {took}", flush=True)
    return outcome


def _read(path: Path) -> Dict[str, Any]:
    """What an earlier call stored; nothing if that was cut off or is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _write(path: Path, content: Any) -> None:
    """All at once, so that an interruption leaves the old file or the new one."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(str(unfinished), str(path))
