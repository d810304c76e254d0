"""Runs: parts that are done once, each in its own process, with results kept in a folder."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from . import machine, processes
from .command import UsageError
from .logs import UnreadableLog

# (name; key: a stored part with another key is done again; function that makes the value)
Part = Tuple[str, Any, Callable[[], Tuple[Any, processes.Ended]]]
HERE = Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        system, case: what was run, and with which seed or size.
        folder: relative to the folder of the experiment.
        parts: values by the name of the part.
        errors: reasons for failed parts; the name is "" where the failure ended the run.
    """

    system: Any
    case: Any
    folder: str = ""
    parts: Dict[str, Any] = field(default_factory=dict)
    errors: Dict[str, str] = field(default_factory=dict)

    @property
    def error(self) -> Optional[str]:
        """The first error."""
        return next(iter(self.errors.values()), None)


class Run:
    """A run and its folder. The folder's name ends in a hash of ``identity``.

    A changed recipe is therefore another run, and the same recipe resumes.

    Args:
        settings: of all runs: ``out``, ``plugin``, ``threads`` and more.
        label: the first part of the folder's name.
        identity: everything that can change the result.
    """

    ends_at_first_error = False

    def __init__(self, settings: Any, system: Any, case: Any, label: str, identity: Any):
        self.settings, self.system, self.case, self.identity = settings, system, case, identity
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
        self.folder = settings.out / "runs" / f"{label}-{key}"
        self.place = str(self.folder.relative_to(settings.out))
        self.name = f"{system} {case}"
        self._stored = _read(self.folder / "result.json")

    def parts(self) -> Iterable[Part]:
        raise NotImplementedError

    def complete(self, say: Callable[[str], None] = print) -> Outcome:
        """Do the parts that are not done yet.

        Args:
            say: called with the name of each part, and with the reason of a failure.
        """
        found: Dict[str, Any] = {}
        errors: Dict[str, str] = {}
        for name, key, do in self.parts():
            try:
                found[name] = self.read(name, self._part(name, key, do, say))
            except (processes.CommandFailed, UnreadableLog) as error:
                part = "" if self.ends_at_first_error else name
                errors[part] = str(error)
                say(f"{self.name}: {f'{part} failed'.strip()}: {error}, in {self.place}")
                if self.ends_at_first_error:
                    break
        return Outcome(self.system, self.case, self.place, found, errors)

    def read(self, name: str, stored: Dict[str, Any]) -> Dict[str, Any]:
        """Return the value of a stored part."""
        return stored

    def measure(self, name: str, *arguments: Any) -> Tuple[Any, processes.Ended]:
        """Run a measure of measure.py."""
        return measure(name, self.folder / f"{name}.json", self.settings.threads, *arguments)

    def _part(
        self, name: str, key: Any, do: Callable[[], Any], say: Callable[[str], None]
    ) -> Dict[str, Any]:
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


def measure(name: str, found: Path, threads: int, *arguments: Any) -> Tuple[Any, processes.Ended]:
    """Return the content of the file ``found``, which measure.py writes, and how that ended."""
    command = [sys.executable, str(HERE / "measure.py"), name, "--out", str(found)]
    ended = processes.run([*command, *map(str, arguments)], found.with_suffix(".log"), threads)
    return json.loads(found.read_text(encoding="utf-8")), ended


def prepare(options: argparse.Namespace, **others: Any) -> argparse.Namespace:
    """Complete the options of a command line; make the folder of ``--out``.

    A child asks torch for the device, so that this process stays small.

    Returns:
        them, with a resolved ``out``, ``plugin``, ``device``, ``device_name`` and ``others``.

    Raises:
        UsageError: for a GPU that is not available.
    """
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    gpu = None
    if options.device != "cpu":
        gpu = measure("device", options.out / "device.json", options.threads)[0]["cuda"]
    if options.device == "cuda" and gpu is None:
        raise UsageError("--device cuda: required a GPU that torch can use, got none")
    options.device = "cpu" if gpu is None else "cuda"
    options.device_name = gpu or str(machine.hardware()["processor"])
    options.plugin = machine.plugin_folder()
    vars(options).update(others)
    return options


def device_flags(device: str) -> List[str]:
    """Return the flag that keeps fairseq's commands on the CPU."""
    return ["--cpu"] if device == "cpu" else []


def make_data(folder: Path, log: Path, threads: int, **flags: Any) -> Path:
    """Make a corpus with measures/data.py unless it exists.

    Args:
        flags: of measures/data.py.
    """
    if not folder.is_dir():
        print(f"{folder.name}: making data", file=sys.stderr, flush=True)
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, str(HERE / "measures" / "data.py"), "--out", str(folder)]
        processes.run([*command, *words], log, threads)
    return folder


def complete_all(
    runs: Sequence[Run], write: Callable[[List[Outcome]], None], report: Path
) -> List[Outcome]:
    """Complete one run after the other; a failed run is an outcome, too.

    Args:
        write: writes the report, after every run.
        report: is printed at the end.
    """
    found: List[Outcome] = []
    for place, run in enumerate(runs, start=1):
        said: List[str] = []
        start = time.perf_counter()

        def say(text: str, said: List[str] = said, place: int = place) -> None:
            said.append(text)
            print(f"[{place}/{len(runs)}]", text, flush=True)

        outcome = run.complete(say)
        if not outcome.errors:
            seconds = time.perf_counter() - start
            say(f"{run.name}: {f'done in {seconds:.0f} s' if said else 'taken from disk'}")
        found.append(outcome)
        write(found)
    print(report.read_text(encoding="utf-8"))
    return found


def _read(path: Path) -> Dict[str, Any]:
    """Return the results of an earlier call; nothing where there are none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _write(path: Path, content: Any) -> None:
    """Write beside the file, then rename: an interruption leaves the old file."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(str(unfinished), str(path))
