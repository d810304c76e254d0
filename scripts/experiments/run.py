"""Runs: parts that are done once, each in its own process, with results kept in a folder."""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import logs, machine, processes

Measured = Tuple[Any, processes.Ended]
Part = Tuple[str, Callable[[], Measured]]  # name, and the function that makes the value
TRAIN = Path(__file__).with_name("train.py")


class Outcome(NamedTuple):
    """The result of a run.

    Attributes:
        system, case: what was run, and with which seed or size.
        folder: relative to the folder of the experiment.
        parts: the stored parts by their names, up to the one that failed.
        error: the reason of a failure.
    """

    system: Any
    case: Any
    folder: str
    parts: Dict[str, Any]
    error: Optional[str] = None


class Run:
    """A run and its folder. The folder's name ends in a hash of ``identity``.

    A changed recipe is therefore another run, and the same recipe resumes.

    Args:
        settings: of all runs: ``out``, ``threads`` and more.
        system, case: what is run, and with which seed or size.
        name: the run's name, which begins the folder's name.
        identity: everything that can change the result.
    """

    def __init__(self, settings: Any, system: Any, case: Any, name: str, identity: Any):
        self.settings, self.system, self.case, self.name = settings, system, case, name
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
        self.folder = settings.out / "runs" / f"{name}-{key}"
        self._results = self.folder / "result.json"
        has_results = self._results.is_file()
        self.stored = json.loads(self._results.read_text("utf-8")) if has_results else {}

    def parts(self) -> Iterable[Part]:
        """Return the parts in their order; each may need those before."""
        raise NotImplementedError

    def complete(self) -> Outcome:
        """Do the parts that are not done yet, up to the first failure."""
        parts: Dict[str, Any] = {}
        error = None
        try:
            for name, do in self.parts():
                if name not in self.stored:
                    print(f"{self.name}: {name}", flush=True)
                    self._store(name, *do())
                parts[name] = self.stored[name]
        except processes.CommandFailed as failure:
            error = str(failure)
            print(f"{self.name}: failed: {error}", flush=True)
        return self.outcome(parts, error)

    def outcome(self, parts: Dict[str, Any], error: Optional[str] = None) -> Outcome:
        """Return the outcome with some of the stored parts."""
        place = str(self.folder.relative_to(self.settings.out))
        return Outcome(self.system, self.case, place, parts, error)

    def measure(self, name: str, **arguments: Any) -> Measured:
        """Call a function of measures/."""
        out, function = self.folder / f"{name}.json", f"experiments.measures.{name}"
        return processes.call(function, out, self.settings.threads, **arguments)

    def training(self, *arguments: Any) -> Measured:
        """Train afresh with ``--log-format json``; return what train.py logs, and how it ended."""
        log = self.folder / "train.log"
        log.unlink(missing_ok=True)
        ended = processes.run([sys.executable, TRAIN, *arguments], log, self.settings.threads)
        return logs.read_training(log), ended

    def _store(self, name: str, value: Any, ended: processes.Ended) -> None:
        self.stored[name] = {
            "value": value,
            "ended": ended._asdict(),
            "hardware": machine.hardware(),
            "date": time.strftime("%Y-%m-%d"),
            "versions": machine.versions(),
            "plugin": machine.plugin_fingerprint(),
        }
        # Written beside the file, then renamed: an interruption leaves the old file.
        part = self._results.with_name("part.json")
        part.write_text(json.dumps(self.stored, indent=1), encoding="utf-8")
        part.replace(self._results)


def prepare(options: argparse.Namespace, **others: Any) -> argparse.Namespace:
    """Complete the options of a command line; make the folder of ``--out``.

    A child asks torch for the device, so that this process stays small.

    Returns:
        them, with a resolved ``out``, ``device``, ``device_name`` and ``others``.
    """
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    gpu = None
    if options.device != "cpu":
        out = options.out / "device.json"
        gpu, _ = processes.call("experiments.measures.meter.device", out, options.threads)
    options.device = "cpu" if gpu is None else "cuda"
    options.device_name = gpu or str(machine.hardware()["processor"])
    vars(options).update(others)
    return options


def device_flags(device: str) -> List[str]:
    """Return the flag that keeps fairseq's commands on the CPU."""
    return ["--cpu"] if device == "cpu" else []


def complete_all(runs: Sequence[Run], write: Callable[[List[Outcome]], str]) -> int:
    """Complete one run after the other; a failed run is an outcome, too.

    Args:
        write: writes the report after every run, and returns its text; the last is printed.

    Returns:
        the exit status: 1 if a run failed.
    """
    found: List[Outcome] = []
    text = ""
    for place, run in enumerate(runs, start=1):
        print(f"[{place}/{len(runs)}] {run.name}", flush=True)
        found.append(run.complete())
        text = write(found)
    print(text)
    return int(any(outcome.error for outcome in found))


def failures(outcomes: Sequence[Outcome]) -> List[str]:
    """Return a paragraph about each failed run."""
    return [f"{one.folder} failed: {one.error}" for one in outcomes if one.error]
