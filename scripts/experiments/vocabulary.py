"""What bench_vocab.py measures: ways to do the output layer, each at several vocabulary sizes."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import logs, machine, processes, run, tables
from .recipes import ADAPTIVE, SOFTMAX, criterion_flags, words
from .run import TRAIN, Outcome, Part, Run, Say

PARTS = ("update", "train")
LEAST_UPDATES = 10  # timed ones of a training, however long they take
_INTERVALS = 10  # timed ones; as many lines of the training log
_WARM_INTERVALS = 2
_LEAST_TOKENS = 400_000  # below that, the unigram counts would be of little but common words
_OUT_OF_MEMORY = re.compile(r"OOM: (.*)")
_SPARSE = "_sparse"
_OWN = ("bnce", "shared_nce")
_COMMON = """
--task language_modeling --lr-scheduler fixed --max-epoch 1 --disable-validation --no-save
--required-batch-size-multiple 1 --distributed-world-size 1 --seed 1
--log-format json --no-progress-bar
"""
Measured = Tuple[Dict[str, Any], processes.Ended]


@dataclass(frozen=True)
class System:
    """One way to do the output layer.

    Attributes:
        name: what ``--systems`` calls it.
        criterion: fairseq's name for it.
    """

    name: str
    criterion: str

    @property
    def is_row_sparse(self) -> bool:
        return self.name.endswith(_SPARSE)

    @property
    def dense(self) -> Optional[str]:
        """The name of the system that differs in its dense gradients alone."""
        return self.name[: -len(_SPARSE)] if self.is_row_sparse else None

    @property
    def is_own(self) -> bool:
        """Whether it is this plugin's code, and not torch's or fairseq's."""
        return self.criterion in _OWN


SYSTEMS: Dict[str, System] = {
    system.name: system
    for system in (
        System(SOFTMAX, SOFTMAX),
        System(ADAPTIVE, ADAPTIVE),
        *(System(f"{name}{kind}", name) for name in _OWN for kind in ("", _SPARSE)),
    )
}


@dataclass(frozen=True)
class Recipe:
    """A model and a batch.

    Attributes:
        name: what ``--recipe`` calls it.
        about: one line for the report.
        training: flags of fairseq-train, those of the batch and the optimiser left out.
        optimizers: of the dense systems and of the row-sparse ones.
        batch: (sentences, tokens each).
        has_bias: of the output projection.
    """

    name: str
    about: str
    training: Tuple[str, ...]
    optimizers: Tuple[str, str]
    batch: Tuple[int, int]
    has_bias: bool

    @property
    def targets(self) -> int:
        """Target tokens of a batch."""
        return self.batch[0] * self.batch[1]

    def with_sentences(self, count: Optional[int]) -> Recipe:
        """The same with so many sentences a batch; as it is with None."""
        return self if count is None else replace(self, batch=(count, self.batch[1]))


RECIPES: Dict[str, Recipe] = {
    name: Recipe(name, **{**one, "training": words(one["training"])})
    for name, one in tables.load("recipes")["vocabulary"].items()
}


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

    @property
    def tokens(self) -> int:
        """Of the training data: no run comes to their end."""
        return max(_LEAST_TOKENS, self.recipe.targets * (2 * self.updates + 100))

    @property
    def flags(self) -> List[str]:
        """Of fairseq-train, the same for all systems."""
        sentences, tokens = self.recipe.batch
        batch = ["--batch-size", str(sentences), "--tokens-per-sample", str(tokens)]
        device = run.device_flags(self.device)
        return [*self.recipe.training, *batch, *shlex.split(_COMMON), *device]

    def data(self, vocab: int) -> Path:
        return self.out / "data" / f"V{vocab}-tokens{self.tokens}"


def own_flags(system: System, recipe: Recipe, vocab: int) -> List[str]:
    """What of fairseq-train's flags differs between systems."""
    optimizer = recipe.optimizers[system.is_row_sparse]
    flags = ["--criterion", system.criterion, "--optimizer", optimizer]
    if system.is_row_sparse:
        flags.append("--row-sparse")
    if system.is_own and not recipe.has_bias:
        flags += ["--log-z", f"{math.log(vocab):.1f}"]  # where such a model starts
    return [*flags, *criterion_flags(system.criterion, vocab)]


def make_data(settings: Settings, vocab: int) -> None:
    """Make the data of one vocabulary, unless they are there."""
    folder = settings.data(vocab)
    log = folder.with_name(f"{folder.name}.log")
    run.make_data(folder, log, settings.threads, vocab=vocab, tokens=settings.tokens)


class Benchmark(Run):
    """A system at one vocabulary: watched from within, and trained."""

    def __init__(self, settings: Settings, system: System, vocab: int):
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
        super().__init__(settings, system, vocab, f"{system.name}-V{vocab}", identity)

    @property
    def name(self) -> str:
        return f"{self.system.name} V={self.case:,}"

    def parts(self) -> Iterator[Part]:
        """One that dies leaves the other alone; an update says how many there is time for."""
        if "update" in self.settings.parts:
            yield "update", None, self._update
        if "train" in self.settings.parts:
            yield "train", self._interval(), self._train

    def _update(self) -> Measured:
        return self.measure("update", *self._limits(), *self._arguments())

    def _train(self) -> Measured:
        log, interval = self.folder / "train.log", self._interval()
        limits = ["--log-interval", str(interval)]
        limits += ["--max-update", str((_INTERVALS + _WARM_INTERVALS) * interval)]
        command = [sys.executable, TRAIN, *self._arguments(), *limits]
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

    def _limits(self) -> List[Any]:
        return ["--updates", self.settings.updates, "--seconds", self.settings.seconds]

    def _arguments(self) -> List[str]:
        """fairseq saves a model that crashes; without a folder to, it would hide why."""
        checkpoints = self.folder / "checkpoints"
        checkpoints.mkdir(parents=True, exist_ok=True)
        places = ["--user-dir", str(self.settings.plugin), "--save-dir", str(checkpoints)]
        return [str(self.data), *places, *self.flags]

    def complete(self, say: Say = print) -> Outcome:
        """Leaves no checkpoint behind."""
        try:
            return super().complete(say)
        finally:
            shutil.rmtree(str(self.folder / "checkpoints"), ignore_errors=True)


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
    total = sum(i.words for i in found)
    start = training.processor_seconds_at(found[0].first)
    end = training.processor_seconds_at(found[-1].last)
    clock = None if start is None or end is None else end - start
    return {
        "words_per_second": total / seconds,
        "words_per_processor_second": None if clock is None else total / clock,
        "slowest": min(speeds),
        "median": statistics.median(speeds),
        "fastest": max(speeds),
        "update_ms": 1000 * seconds / updates,
        "updates": updates,
    }
