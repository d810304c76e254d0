"""The runs and the report of bench_vocab.py: output layers at several vocabulary sizes."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import statistics
import sys
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from rendering.cells import ratio

from . import logs, machine, plot, processes, run, tables
from .recipes import ADAPTIVE, SOFTMAX, criterion_flags, words
from .run import TRAIN, Outcome, Part, Run
from .tables import MIB, Line

PARTS = ("update", "train")
LEAST_UPDATES = 10  # timed updates of a training, however long they take
_INTERVALS = 10  # timed intervals; each is a line of the training log
_WARM_INTERVALS = 2
_LEAST_TOKENS = 400_000  # with fewer tokens, the unigram counts would miss all but common words
_OUT_OF_MEMORY = re.compile(r"OOM: (.*)")
_SPARSE = "_sparse"
_OWN = ("bnce", "shared_nce")
_COMMON = """
--task language_modeling --lr-scheduler fixed --max-epoch 1 --disable-validation --no-save
--required-batch-size-multiple 1 --distributed-world-size 1 --seed 1
--log-format json --no-progress-bar
"""
SYSTEMS = (SOFTMAX, ADAPTIVE, *(f"{name}{kind}" for name in _OWN for kind in ("", _SPARSE)))
_PANELS = {"update_ms": "training update (ms)", "update_mib": "memory of an update (MiB)"}
Numbers = Dict[str, Optional[float]]


class Recipe(NamedTuple):
    """A model and a batch.

    Attributes:
        name, about: the name for ``--recipe``, and one line for the report.
        training: flags of fairseq-train without those of batch and optimiser.
        optimizers: of dense and of row-sparse systems.
        batch: (sentences, tokens of each).
        has_bias: whether the output projection has one.
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

    def flags(self) -> List[str]:
        """Return the flags of fairseq-train that all systems share, except for the device."""
        sentences, tokens = map(str, self.batch)
        batch = ["--batch-size", sentences, "--tokens-per-sample", tokens]
        return [*self.training, *batch, *shlex.split(_COMMON)]

    def system_flags(self, system: str, vocab: int) -> List[str]:
        """Return the flags of fairseq-train in which systems differ."""
        is_sparse = system.endswith(_SPARSE)
        criterion = system[: -len(_SPARSE)] if is_sparse else system
        flags = ["--criterion", criterion, "--optimizer", self.optimizers[is_sparse]]
        flags += ["--row-sparse"] * is_sparse
        if criterion in _OWN and not self.has_bias:
            flags += ["--log-z", f"{math.log(vocab):.1f}"]  # where such a model starts
        return [*flags, *criterion_flags(criterion, vocab)]


RECIPES: Dict[str, Recipe] = {
    name: Recipe(name, **{**one, "training": words(one["training"])})
    for name, one in tables.load("recipes")["vocabulary"].items()
}


def make_data(settings: Any, vocab: int) -> Any:
    """Make the data of a vocabulary, with more tokens than any run reads, and return its folder."""
    tokens = max(_LEAST_TOKENS, settings.recipe.targets * (2 * settings.updates + 100))
    folder = settings.out / "data" / f"V{vocab}-tokens{tokens}"
    log = folder.with_name(f"{folder.name}.log")
    return run.make_data(folder, log, settings.threads, vocab=vocab, tokens=tokens)


class Benchmark(Run):
    """A system with a vocabulary: phases of an update, and words/s of a training.

    Args:
        settings: those of run.prepare, and ``recipe``, ``parts`` (of PARTS), ``updates`` (timed
            updates of a training) and ``max_seconds`` (for each part of a run).
    """

    def __init__(self, settings: Any, system: str, vocab: int):
        self.data, recipe = make_data(settings, vocab), settings.recipe
        self.flags = [*recipe.flags(), *run.device_flags(settings.device)]
        self.flags += recipe.system_flags(system, vocab)
        plugin = machine.plugin_fingerprint(settings.plugin)
        identity = {
            "flags": self.flags,
            "recipe": recipe.name,
            "data": self.data.name,
            "threads": settings.threads,
            "device": settings.device_name,
            "versions": machine.versions(),
            "limits": [settings.updates, settings.max_seconds],
            "plugin": plugin if system.startswith(_OWN) else None,
        }
        super().__init__(settings, system, vocab, f"{system}-V{vocab}", identity)
        self.name = f"{system} V={vocab:,}"

    def parts(self) -> Iterator[Part]:
        """The time of an update decides how many updates are trained."""
        if "update" in self.settings.parts:
            yield "update", None, self._update
        if "train" in self.settings.parts:
            yield "train", self._interval(), self._train

    def complete(self, say: Callable[[str], None] = print) -> Outcome:
        """Do what is missing; leave no checkpoint behind."""
        try:
            return super().complete(say)
        finally:
            shutil.rmtree(str(self.folder / "checkpoints"), ignore_errors=True)

    def _update(self) -> Any:
        limits = ["--updates", self.settings.updates, "--seconds", self.settings.max_seconds]
        return self.measure("update", *limits, *self._arguments())

    def _train(self) -> Any:
        log, interval = self.folder / "train.log", self._interval()
        limits = ["--log-interval", str(interval)]
        limits += ["--max-update", str((_INTERVALS + _WARM_INTERVALS) * interval)]
        command = [sys.executable, TRAIN, *self._arguments(), *limits]
        ended = processes.run(command, log, self.settings.threads)
        return read_speed("\n".join(processes.last_attempt(log)), interval), ended

    def _interval(self) -> int:
        """Return the updates between two lines of the training log."""
        measured = self._stored.get("update")
        if measured is None:  # no update was timed: train as few as possible
            return LEAST_UPDATES // _INTERVALS
        fitting = self.settings.max_seconds / (measured["value"]["update_ms"] / 1000)
        updates = max(LEAST_UPDATES, min(self.settings.updates, fitting))
        return math.ceil(updates / _INTERVALS)

    def _arguments(self) -> List[str]:
        """Return fairseq-train's arguments; after a crash fairseq needs a folder to save to."""
        checkpoints = self.folder / "checkpoints"
        checkpoints.mkdir(parents=True, exist_ok=True)
        places = ["--user-dir", str(self.settings.plugin), "--save-dir", str(checkpoints)]
        return [str(self.data), *places, *self.flags]


def read_speed(log: str, interval: int) -> Dict[str, Any]:
    """Return words/s over the timed intervals of a training log, without the first intervals.

    Args:
        interval: updates between two lines.

    Raises:
        logs.UnreadableLog: for too few intervals; on a GPU, fairseq goes on without memory.
    """
    training = logs.read_training(log)
    first = _WARM_INTERVALS * interval
    found = [i for i in training.intervals if i.exact and i.first >= first]
    if len(found) < _INTERVALS:
        reason = _OUT_OF_MEMORY.search(log)
        missing = f"required {_INTERVALS} timed intervals of training, got {len(found)}"
        raise logs.UnreadableLog(reason.group(1) if reason else missing)
    speeds = [i.words / i.seconds for i in found]
    updates, seconds = sum(i.last - i.first for i in found), sum(i.seconds for i in found)
    total = sum(i.words for i in found)
    start = training.processor_seconds_at(found[0].first)
    end = training.processor_seconds_at(found[-1].last)
    return {
        "words_per_second": total / seconds,
        "words_per_processor_second": None
        if start is None or end is None
        else total / (end - start),
        "slowest": min(speeds),
        "median": statistics.median(speeds),
        "fastest": max(speeds),
        "update_ms": 1000 * seconds / updates,
        "updates": updates,
    }


# ---------------------------------------------------------------- numbers


def numbers(outcomes: Sequence[Outcome]) -> List[Numbers]:
    """Return the numbers of each run, with ratios to other systems at the same V."""
    own = {(o.system, o.case): _numbers(o.parts) for o in outcomes}
    for (system, vocab), found in own.items():
        dense = system[: -len(_SPARSE)] if system.endswith(_SPARSE) else None
        for name, other in (("x_softmax", SOFTMAX), ("x_dense", dense)):
            reference = own.get((other, vocab), {}).get("words_per_second")
            found[name] = ratio(found.get("words_per_second"), reference)
    return list(own.values())


def _numbers(parts: Mapping[str, Any]) -> Numbers:
    found: Numbers = {}
    if "train" in parts:
        ended = parts["train"]["ended"]
        found.update(parts["train"]["value"], process_mib=ended["peak_bytes"] / MIB)
        share = ratio(ended["cpu_seconds"], ended["seconds"])
        found["cpu_share"] = None if share is None else 100 * share
    if "update" in parts:
        value = parts["update"]["value"]
        found.update({f"{name}_phase_ms": ms for name, ms in value["milliseconds"].items()})
        found.update(phases_ms=value["update_ms"], distinct_targets=value["distinct_targets"])
        for name, of in (("update", "peak"), ("parameters", "parameter"), ("state", "state")):
            found[f"{name}_mib"] = value[f"{of}_bytes"] / MIB
    return found


def growth(outcomes: Sequence[Outcome]) -> Dict[str, Numbers]:
    """Return the growth of each system with V: a fit, and the largest V against the smallest."""
    found: Dict[str, Dict[int, Numbers]] = {}
    for outcome, one in zip(outcomes, numbers(outcomes)):
        found.setdefault(outcome.system, {})[outcome.case] = one
    vocabs = {outcome.case for outcome in outcomes}
    grown: Dict[str, Numbers] = {}
    for system, own in found.items():
        first, last = own.get(min(vocabs), {}), own.get(max(vocabs), {})
        points = [(vocab, some.get("update_ms")) for vocab, some in own.items()]
        grown[system] = {"update_exponent": exponent(points)}
        for name, of in (("speed_kept", "words_per_second"), ("memory_growth", "update_mib")):
            grown[system][name] = ratio(last.get(of), first.get(of)) if len(vocabs) > 1 else None
    return grown


def exponent(points: Sequence[Tuple[float, Optional[float]]]) -> Optional[float]:
    """Return the b of cost = a V^b by least squares on logarithms; None for one size."""
    known = [(math.log(vocab), math.log(cost)) for vocab, cost in points if cost]
    if len({vocab for vocab, _ in known}) < 2:
        return None
    x, y = (statistics.fmean(values) for values in zip(*known))
    spread = sum((vocab - x) ** 2 for vocab, _ in known)
    return sum((vocab - x) * (cost - y) for vocab, cost in known) / spread


# ---------------------------------------------------------------- the report


def write(outcomes: Sequence[Outcome], settings: Any) -> None:
    """Write ``benchmark.md`` and ``benchmark.json``."""
    content = {"settings": _settings(settings), "growth": growth(outcomes)}
    runs = []
    for o, own in zip(outcomes, numbers(outcomes)):
        failed = {"failed": o.errors} if o.errors else {}
        named = {"system": o.system, "vocab": o.case, "folder": o.folder}
        runs.append({**named, **failed, **own, "parts": o.parts})
    parts = _markdown(outcomes, settings)
    tables.write(settings.out / "benchmark", parts, {**content, "runs": runs})


def _settings(settings: Any) -> Dict[str, Any]:
    names = ("updates", "max_seconds", "device", "device_name", "threads", "parts")
    chosen = {name: getattr(settings, name) for name in names}
    return {**chosen, "recipe": settings.recipe._asdict()}


def _markdown(outcomes: Sequence[Outcome], settings: Any) -> List[str]:
    recipe = settings.recipe
    title = f"# Cost by vocabulary, {recipe.name}: {recipe.about}"
    parts = [title, _conditions(outcomes, settings)]
    for title, shown in tables.load("reports")["vocabulary"].items():
        part = shown.get("part")
        if part is None:
            lines = [Line([system], found) for system, found in growth(outcomes).items()]
            parts.append(tables.section(title, shown, ["system"], lines))
        elif part in settings.parts:
            lines = [
                Line([o.system, f"{o.case:,}"], own, o.errors.get(part))
                for o, own in zip(outcomes, numbers(outcomes))
            ]
            heads = ["system", "V"]
            parts.append(tables.section(title, shown, heads, lines, least=LEAST_UPDATES))
    failed = {
        f"{o.system} V={o.case:,}: {part}": (error, o.folder)
        for o in outcomes
        for part, error in o.errors.items()
    }
    largest = max(o.case for o in outcomes)
    flags = {"all": [*recipe.flags(), *run.device_flags(settings.device)]}
    for system in dict.fromkeys(o.system for o in outcomes):
        flags[f"{system}, V = {largest:,}"] = recipe.system_flags(system, largest)
    return [*parts, *tables.failures(failed), "## Flags", tables.flags(flags)]


def _conditions(outcomes: Sequence[Outcome], settings: Any) -> str:
    parts = [
        part if o.system.startswith(_OWN) else {**part, "plugin": None}
        for o in outcomes
        for part in o.parts.values()
    ]
    about = [
        f"Device: {settings.device} ({settings.device_name}), {settings.threads} thread(s).",
        f"{settings.recipe.targets} targets a batch. Data: Zipf-distributed words, independent.",
    ]
    return tables.conditions(about, parts, [load for one in parts for load in one["ended"]["load"]])


def draw(outcomes: Sequence[Outcome], settings: Any) -> str:
    """Draw time and memory against V; return what was done, or why it was not."""
    panels = []
    for name, label in _PANELS.items():
        lines: Dict[str, List[Any]] = {o.system: [] for o in outcomes}
        for o, own in zip(outcomes, numbers(outcomes)):
            lines[o.system] += [(o.case, own[name])] if own.get(name) else []
        axes = {"xscale": "log", "yscale": "log", "xlabel": "vocabulary V", "ylabel": label}
        panels.append(plot.Panel([(name, sorted(line)) for name, line in lines.items()], axes))
    title = f"{settings.recipe.about}, {settings.recipe.targets} targets, {settings.device_name}"
    return plot.lines(panels, title, settings.out / "benchmark.png")
