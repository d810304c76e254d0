"""One system at one vocabulary: measured from within, trained, and its bare output layer."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from experiments import logs, machine, processes, train

from .systems import Recipe, System, own_flags, recipe_flags

PARTS = ("update", "train", "layer")
LEAST_UPDATES = 10  # timed ones of a training, however long they take
_INTERVALS = 10  # timed ones; as many lines of the training log
_WARM_INTERVALS = 2
_LEAST_TOKENS = 400_000  # below that, the unigram counts would be of little but common words
_TRAIN = Path(train.__file__).resolve()
_HERE = Path(__file__).resolve().parent
_OUT_OF_MEMORY = re.compile(r"OOM: (.*)")
_COMMON = """
--task language_modeling --lr-scheduler fixed --max-epoch 1 --disable-validation --no-save
--required-batch-size-multiple 1 --distributed-world-size 1 --seed 1
--log-format json --no-progress-bar
"""


@dataclass(frozen=True)
class Settings:
    """What all runs of a benchmark share.

    Attributes:
        out: the folder that everything is written to.
        plugin: for ``--user-dir``.
        updates: timed updates of a training, unless they would take over ``seconds``.
        seconds: for each part of a run, its start left out; LEAST_UPDATES may take longer.
        device: cpu or cuda, and ``device_name``.
        threads: OMP_NUM_THREADS.
        parts: which of PARTS.
        zipf: (exponent, shift) of the data; ``seed`` is theirs, too.
    """

    out: Path
    plugin: Path
    recipe: Recipe
    updates: int
    seconds: float
    device: str
    device_name: str
    threads: int = 1
    parts: Tuple[str, ...] = PARTS
    zipf: Tuple[float, float] = (1.1, 2.7)
    seed: int = 1

    @property
    def tokens(self) -> int:
        """Of the training data: no run comes to their end."""
        return max(_LEAST_TOKENS, self.recipe.targets * (2 * self.updates + 100))

    @property
    def flags(self) -> List[str]:
        """Of fairseq-train, the same for all systems."""
        device = ["--cpu"] if self.device == "cpu" else []
        return [*recipe_flags(self.recipe), *shlex.split(_COMMON), *device]

    def data(self, vocab: int) -> Path:
        exponent, shift = self.zipf
        name = f"V{vocab}-zipf{exponent:g}+{shift:g}-tokens{self.tokens}-seed{self.seed}"
        return self.out / "data" / name


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        folder: relative to the benchmark's.
        parts: by name, each with its ``value``, and where and when it was measured.
        errors: of the parts that died, by name.
        skipped: why nothing was run.
    """

    system: System
    vocab: int
    folder: str = ""
    parts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    errors: Dict[str, str] = field(default_factory=dict)
    skipped: Optional[str] = None


def make_data(settings: Settings, vocab: int, say: Callable[[str], None]) -> None:
    """Make the data of one vocabulary, unless they are there.

    Raises:
        processes.CommandFailed: if that did not succeed.
    """
    folder = settings.data(vocab)
    if folder.is_dir():
        return
    say(f"V={vocab:,}: making data")
    exponent, shift = settings.zipf
    command = [sys.executable, str(_HERE / "data.py"), "--out", str(folder)]
    command += ["--vocab", str(vocab), "--tokens", str(settings.tokens)]
    command += ["--seed", str(settings.seed), "--exponent", str(exponent), "--shift", str(shift)]
    processes.run(command, settings.out / "data" / f"{folder.name}.log", settings.threads)


class Run:
    """A run and its folder, whose name ends in a hash of what could change its result."""

    def __init__(self, settings: Settings, system: System, vocab: int):
        self.settings, self.system, self.vocab = settings, system, vocab
        self.data = settings.data(vocab)
        self.flags = [*settings.flags, *own_flags(system, settings.recipe, vocab)]
        identity = {
            "flags": self.flags,
            "recipe": settings.recipe.name,
            "data": self.data.name,
            "threads": settings.threads,
            "device": settings.device_name,
            "versions": machine.versions(),
            "limits": [settings.updates, settings.seconds],
            # A changed plugin is measured again; what is torch's or fairseq's stays as it is.
            "plugin": machine.plugin_fingerprint(settings.plugin) if system.is_own else None,
        }
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
        self.folder = settings.out / "runs" / f"{system.name}-V{vocab}-{key}"
        self._stored = _read(self.folder / "result.json")

    @property
    def name(self) -> str:
        return f"{self.system.name} V={self.vocab:,}"

    def complete(self, say: Callable[[str], None]) -> Outcome:
        """Go through the parts that are not done yet; one that dies leaves the others alone.

        Args:
            say: called with what is about to be done, and with why it failed.
        """
        errors: Dict[str, str] = {}
        for part in self._parts():
            try:
                self._complete(part, say)
            except (processes.CommandFailed, logs.UnreadableLog) as error:
                errors[part] = str(error)
                say(f"{self.name}: {part} failed: {error}")
        found = {part: self._stored[part] for part in self._parts() if part in self._stored}
        folder = str(self.folder.relative_to(self.settings.out))
        return Outcome(self.system, self.vocab, folder, found, errors)

    def _parts(self) -> List[str]:
        trains = self.system.criterion is not None
        return [part for part in self.settings.parts if trains or part == "layer"]

    def _complete(self, part: str, say: Callable[[str], None]) -> None:
        if part in self._stored:
            return
        say(f"{self.name}: {part}")
        do = {"update": self._update, "train": self._train, "layer": self._layer}[part]
        # fairseq saves a model that crashes; without a place to, it would hide why.
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        try:
            value, ended = do()
        finally:
            shutil.rmtree(str(self._checkpoints), ignore_errors=True)
        self._stored[part] = {
            "value": value,
            "ended": asdict(ended),
            "hardware": machine.hardware(),
            "date": time.strftime("%Y-%m-%d"),
            "versions": machine.versions(),
            "plugin": machine.plugin_fingerprint(self.settings.plugin),
        }
        _write(self.folder / "result.json", self._stored)

    def _update(self) -> Tuple[Dict[str, Any], processes.Ended]:
        return self._measure("update", *self._arguments())

    def _layer(self) -> Tuple[Dict[str, Any], processes.Ended]:
        settings = self.settings
        arguments = ["--system", self.system.name, "--recipe", settings.recipe.name]
        arguments += ["--sentences", str(settings.recipe.batch[0])]
        arguments += ["--user-dir", str(settings.plugin), "--device", settings.device]
        return self._measure("layer", *arguments, str(self.data))

    def _measure(self, name: str, *arguments: str) -> Tuple[Dict[str, Any], processes.Ended]:
        settings, found = self.settings, self.folder / f"{name}.json"
        command = [sys.executable, str(_HERE / "measure.py"), name, "--out", str(found)]
        command += ["--updates", str(settings.updates), "--seconds", str(settings.seconds)]
        ended = processes.run([*command, *arguments], self.folder / f"{name}.log", settings.threads)
        return json.loads(found.read_text(encoding="utf-8")), ended

    def _train(self) -> Tuple[Dict[str, Any], processes.Ended]:
        log, interval = self.folder / "train.log", self._interval()
        limits = ["--log-interval", str(interval)]
        limits += ["--max-update", str((_INTERVALS + _WARM_INTERVALS) * interval)]
        command = [sys.executable, str(_TRAIN), *self._arguments(), *limits]
        ended = processes.run(command, log, self.settings.threads)
        return read_speed("\n".join(processes.last_attempt(log)), interval), ended

    def _interval(self) -> int:
        """Updates between two lines of the training log, from how long an update took."""
        measured = self._stored.get("update")
        if measured is None:  # it died, or was not asked for: with care
            return LEAST_UPDATES // _INTERVALS
        fitting = self.settings.seconds / (measured["value"]["update_ms"] / 1000)
        updates = max(LEAST_UPDATES, min(self.settings.updates, fitting))
        return math.ceil(updates / _INTERVALS)

    def _arguments(self) -> List[str]:
        places = ["--user-dir", str(self.settings.plugin), "--save-dir", str(self._checkpoints)]
        return [str(self.data), *places, *self.flags]

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"


def read_speed(log: str, interval: int) -> Dict[str, Any]:
    """Words/s over the timed intervals of a training log, the first ones left out.

    Args:
        interval: updates between two lines.

    Raises:
        logs.UnreadableLog: if updates are missing; on a GPU fairseq goes on when memory runs out.
    """
    first = _WARM_INTERVALS * interval
    training = logs.read_training(log)
    found = [i for i in training.intervals if i.exact and i.first >= first]
    if len(found) < _INTERVALS:
        reason = _OUT_OF_MEMORY.search(log)
        raise logs.UnreadableLog(
            reason.group(1)
            if reason
            else f"required {_INTERVALS} timed intervals of training, got {len(found)}"
        )
    speeds = [i.words / i.seconds for i in found]
    updates, seconds = sum(i.last - i.first for i in found), sum(i.seconds for i in found)
    words = sum(i.words for i in found)
    clock = [training.processor_seconds_at(update) for update in (found[0].first, found[-1].last)]
    return {
        "words_per_second": words / seconds,
        "words_per_processor_second": None if None in clock else words / (clock[1] - clock[0]),
        "slowest": min(speeds),
        "median": statistics.median(speeds),
        "fastest": max(speeds),
        "update_ms": 1000 * seconds / updates,
        "updates": updates,
    }


def failed(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.errors for outcome in outcomes)


def _read(path: Path) -> Dict[str, Any]:
    """What an earlier benchmark stored; nothing if that was cut off or is damaged."""
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
