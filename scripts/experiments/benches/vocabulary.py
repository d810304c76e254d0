"""What the size of the vocabulary costs: runs and report."""

import json
import math
import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from rendering.cells import SOFTMAX, ratio

from .. import logs, machine, plot, report, run
from ..command import UsageError
from ..processes import CommandFailed
from ..recipes import adaptive_cutoffs, criterion_flags, words
from ..report import MIB
from ..run import Measured, Outcome, Part, Run
from ..workshop import make_data

LEAST_UPDATES = 10  # timed updates of a training, however long they take
_INTERVALS = 10  # timed intervals; each is a line of the training log
_WARM_INTERVALS = 2
_LEAST_TOKENS = 400_000  # with fewer tokens, the unigram counts would miss all but common words
KIND = re.compile("_sparse$|_bands$")  # of a system with row-sparse gradients
_OWN = ("bnce", "shared_nce")
_PANELS = {"update_ms": "training update (ms)", "update_mib": "memory of an update (MiB)"}
Numbers = Dict[str, Any]


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

    def flags(self) -> List[str]:
        """Return the flags of fairseq-train that all systems share, except for the device."""
        sentences, tokens = map(str, self.batch)
        batch = ["--batch-size", sentences, "--tokens-per-sample", tokens]
        return [*self.training, *batch, *_COMMON]

    def system_flags(self, system: str, vocab: int) -> List[str]:
        """Return the flags of fairseq-train in which systems differ."""
        criterion, is_sparse = KIND.sub("", system), bool(KIND.search(system))
        flags = ["--criterion", criterion, "--optimizer", self.optimizers[is_sparse]]
        flags += ["--row-sparse"] * is_sparse
        if system.endswith("_bands"):
            if "transformer_lm" not in " ".join(self.training):  # lstm_lm has a plain layer
                raise UsageError(f"{system}: required a recipe of transformer_lm, got {self.name}")
            flags += adaptive_cutoffs(vocab)
        if criterion in _OWN and not self.has_bias:
            flags += ["--log-z", f"{math.log(vocab):.1f}"]  # where such a model starts
        return [*flags, *criterion_flags(criterion, vocab)]


_LOADED = report.load("recipes")["vocabulary"]
_COMMON = words(_LOADED.pop("common"))
RECIPES: Dict[str, Recipe] = {
    name: Recipe(name, **{**one, "training": words(one["training"])})
    for name, one in _LOADED.items()
}


def measure(options: Any) -> int:
    """Return the exit status: 1 if a run failed."""
    recipe = RECIPES[options.recipe]
    if options.sentences is not None:
        recipe = recipe._replace(batch=(options.sentences, recipe.batch[1]))
    settings = run.prepare(options, recipe=recipe)
    # All sizes of a system in a row: a drift of the machine would blur their fine ratios most.
    systems, vocabs = (dict.fromkeys(some) for some in (options.systems, options.vocab))
    runs = [Benchmark(settings, system, vocab) for system in systems for vocab in vocabs]
    status = run.complete_all(runs, lambda done: write(done, settings))
    print(draw(settings.out / "benchmark.json"))
    return status


class Benchmark(Run):
    """A system with a vocabulary: phases of an update, and words/s of a training.

    Args:
        settings: those of run.prepare, and ``recipe``, ``parts``, ``updates`` (timed updates of
            a training) and ``max_seconds`` (for each part of a run).
    """

    def __init__(self, settings: Any, system: str, vocab: int):
        recipe = settings.recipe
        # More tokens than any run reads.
        tokens = max(_LEAST_TOKENS, math.prod(recipe.batch) * (2 * settings.updates + 100))
        folder = settings.out / "data" / f"V{vocab}-tokens{tokens}"
        self.data = make_data(folder, settings.threads, vocab=vocab, tokens=tokens)
        # The recipe's flags come last: it may have cutoffs of its own.
        self.flags = [*recipe.system_flags(system, vocab), *recipe.flags()]
        self.flags += run.device_flags(settings.device)
        own = [folder.name, settings.threads, settings.device_name, machine.versions()]
        own += [settings.updates, settings.max_seconds]
        own += [machine.plugin_fingerprint()] * system.startswith(_OWN)
        super().__init__(settings, system, vocab, f"{system}-V{vocab}", [self.flags, *own])

    def parts(self) -> Iterator[Part]:
        """Yield the parts; the time of an update decides how many updates are trained."""
        if "update" in self.settings.parts:
            limits = {"updates": self.settings.updates, "seconds": self.settings.max_seconds}
            flags = self._arguments()
            yield "update", partial(self.measure, "updates.update", flags=flags, **limits)
        if "train" in self.settings.parts:
            yield "train", self._train

    def _train(self) -> Measured:
        interval = self._interval()
        limits = ["--log-interval", interval]
        limits += ["--max-update", (_INTERVALS + _WARM_INTERVALS) * interval]
        warm_up = _WARM_INTERVALS * interval
        training, ended = self.training(*self._arguments(), *limits, warm_up=warm_up)
        found = [one for one in training.intervals if one.steady]
        if len(found) < _INTERVALS:  # on a GPU, fairseq goes on without memory
            raise CommandFailed(f"required {_INTERVALS} timed intervals, got {len(found)}")
        return speeds(found, training.processor), ended

    def _interval(self) -> int:
        """Return the updates between two lines of the training log."""
        if "update" not in self.stored:  # no update was timed: train as few as possible
            return LEAST_UPDATES // _INTERVALS
        fitting = 1000 * self.settings.max_seconds / self.stored["update"]["value"]["update_ms"]
        return math.ceil(max(LEAST_UPDATES, min(self.settings.updates, fitting)) / _INTERVALS)

    def _arguments(self) -> List[Any]:
        return [self.data, "--user-dir", machine.PLUGIN, "--save-dir", self.folder, *self.flags]


def speeds(intervals: Sequence[logs.Interval], processor: Dict[int, float]) -> Numbers:
    """Return words/s over intervals of a training.

    Args:
        processor: processor seconds up to an update.
    """
    words, seconds = sum(i.words for i in intervals), sum(i.seconds for i in intervals)
    first, last = intervals[0].first, intervals[-1].last
    return {
        "words_per_second": words / seconds,
        "words_per_processor_second": words / (processor[last] - processor[first]),
        "update_ms": 1000 * seconds / (last - first),
        "updates": last - first,
    }


# ---------------------------------------------------------------- the report


def numbers(outcomes: Sequence[Outcome]) -> List[Numbers]:
    """Return each run with its numbers, and ratios to other systems at the same V."""
    found: List[Numbers] = []
    for o in outcomes:
        row = {"system": o.system, "vocab": o.case, "folder": o.folder}
        row.update({"failed": o.error} if o.error else {})
        row.update(o.parts.get("train", {}).get("value", {}))
        if "update" in o.parts:
            row["update_mib"] = o.parts["update"]["value"]["peak_bytes"] / MIB
        found.append(row)
    speeds = {(row["system"], row["vocab"]): row.get("words_per_second") for row in found}
    for row in found:
        dense = KIND.sub("", row["system"]) if row["system"].endswith("_sparse") else None
        for name, other in (("x_softmax", SOFTMAX), ("x_dense", dense)):
            row[name] = ratio(row.get("words_per_second"), speeds.get((other, row["vocab"])))
    return found


def growth(runs: Sequence[Numbers]) -> Dict[str, Numbers]:
    """Return the growth of each system with V: a fit, and the largest V against the smallest."""
    grown: Dict[str, Numbers] = {}
    for system in dict.fromkeys(one["system"] for one in runs):
        own = [one for one in runs if one["system"] == system]
        own.sort(key=lambda one: one["vocab"])
        grown[system] = {
            "update_exponent": exponent([(one["vocab"], one.get("update_ms")) for one in own])
        }
        for name, of in (("speed_kept", "words_per_second"), ("memory_growth", "update_mib")):
            grown[system][name] = ratio(own[-1].get(of), own[0].get(of))
    return grown


def exponent(points: Sequence[Tuple[float, Optional[float]]]) -> Optional[float]:
    """Return the b of cost = a V^b by least squares on logarithms; None for one size."""
    known = [(math.log(vocab), math.log(cost)) for vocab, cost in points if cost]
    if len(known) < 2:
        return None
    x, y = (statistics.fmean(values) for values in zip(*known))
    spread = sum((vocab - x) ** 2 for vocab, _ in known)
    return sum((vocab - x) * (cost - y) for vocab, cost in known) / spread


def write(outcomes: Sequence[Outcome], settings: Any) -> str:
    """Write ``benchmark.md`` and ``benchmark.json``, and return the former."""
    names = ("updates", "max_seconds", "device", "device_name", "threads", "parts")
    chosen = {name: getattr(settings, name) for name in names}
    recipe, runs = settings.recipe, numbers(outcomes)
    grown = growth(runs)
    content = {
        "settings": {**chosen, "recipe": recipe._asdict()},
        "growth": grown,
        "runs": [{**one, "parts": o.parts} for one, o in zip(runs, outcomes)],
    }
    lines = [([one["system"], f"{one['vocab']:,}"], one) for one in runs]
    growing = [([system], found) for system, found in grown.items()]
    parts = [f"# Cost by vocabulary, {recipe.name}: {recipe.about}"]
    parts += report.sections("vocabulary", ["system", "V"], lines)
    parts += [*report.sections("growth", ["system"], growing), *run.failures(outcomes)]
    return report.write(settings.out / "benchmark", parts, content)


def draw(results: Path) -> str:
    """Draw time and memory against V beside a benchmark.json; return what was done."""
    content, panels = json.loads(results.read_text(encoding="utf-8")), []
    for name, label in _PANELS.items():
        lines: Dict[str, List[Any]] = {one["system"]: [] for one in content["runs"]}
        for one in (one for one in content["runs"] if one.get(name)):
            lines[one["system"]].append((one["vocab"], one[name]))
        axes = {"xscale": "log", "yscale": "log", "xlabel": "vocabulary V", "ylabel": label}
        panels.append(plot.Panel([(name, sorted(line)) for name, line in lines.items()], axes))
    settings = content["settings"]
    title = f"{settings['recipe']['about'].replace(' x ', ' × ')}, {settings['device_name']}"
    return plot.draw(partial(plot.lines, panels, title), results.with_name("benchmark.png"))
