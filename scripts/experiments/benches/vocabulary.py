"""What the size of the vocabulary costs."""

import math
import re
import statistics
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .. import logs, machine, report, run
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


def measure(options: Any) -> Numbers:
    """Return all runs, and how every system grows."""
    recipe = RECIPES[options.recipe]
    if options.sentences is not None:
        recipe = recipe._replace(batch=(options.sentences, recipe.batch[1]))
    settings = run.prepare(options, recipe=recipe)
    # All sizes of a system in a row: a drift of the machine would blur their fine ratios most.
    systems, vocabs = (dict.fromkeys(some) for some in (options.systems, options.vocab))
    runs = [Benchmark(settings, system, vocab) for system in systems for vocab in vocabs]
    rows = [row(one.complete()) for one in runs]
    points: Dict[str, List[Any]] = {system: [] for system in systems}
    for one in rows:
        points[one["system"]].append((one["vocab"], one.get("update_ms")))
    growth = {system: {"update_exponent": exponent(own)} for system, own in points.items()}
    about = {"device_name": settings.device_name, "recipe": recipe._asdict()}
    return {"settings": about, "growth": growth, "runs": rows}


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
        first, last = _WARM_INTERVALS * interval, (_INTERVALS + _WARM_INTERVALS) * interval
        limits = ["--log-interval", interval, "--max-update", last]
        training, ended = self.training(*self._arguments(), *limits)
        if last not in training.points:  # on a GPU, fairseq goes on without memory
            raise CommandFailed(f"required {last} updates, got {max(training.points, default=0)}")
        return speeds(training.points[first], training.points[last]), ended

    def _interval(self) -> int:
        """Return the updates between two lines of the training log."""
        if "update" not in self.stored:  # no update was timed: train as few as possible
            return LEAST_UPDATES // _INTERVALS
        fitting = 1000 * self.settings.max_seconds / self.stored["update"]["value"]["update_ms"]
        return math.ceil(max(LEAST_UPDATES, min(self.settings.updates, fitting)) / _INTERVALS)

    def _arguments(self) -> List[Any]:
        return [self.data, "--user-dir", machine.PLUGIN, "--save-dir", self.folder, *self.flags]


def speeds(first: logs.Point, last: logs.Point) -> Numbers:
    """Return words/s between two points of a training."""
    words, seconds = last.words - first.words, last.seconds - first.seconds
    spent, updates = last.processor_seconds - first.processor_seconds, last.update - first.update
    rates = {"words_per_second": words / seconds, "words_per_processor_second": words / spent}
    return {**rates, "update_ms": 1000 * seconds / updates, "updates": updates}


# ---------------------------------------------------------------- the result


def row(outcome: Outcome) -> Numbers:
    """Return a run with its numbers."""
    parts, about = outcome.parts, {"system": outcome.system, "vocab": outcome.case}
    found = {**about, "folder": outcome.folder, "parts": parts}
    found.update({"failed": outcome.error} if outcome.error else {})
    found.update(parts.get("train", {}).get("value", {}))
    if "update" in parts:
        found["update_mib"] = parts["update"]["value"]["peak_bytes"] / MIB
    return found


def exponent(points: Sequence[Tuple[float, Optional[float]]]) -> Optional[float]:
    """Return the b of cost = a V^b by least squares on logarithms; None for one size."""
    known = [(math.log(vocab), math.log(cost)) for vocab, cost in points if cost]
    if len(known) < 2:
        return None
    x, y = (statistics.fmean(values) for values in zip(*known))
    spread = sum((vocab - x) ** 2 for vocab, _ in known)
    return sum((vocab - x) * (cost - y) for vocab, cost in known) / spread
