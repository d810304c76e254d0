"""What is trained: recipes, and the variants of a recipe that are compared."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Dict, Iterable, List, Sequence, Tuple, Union

from rendering.cells import SOFTMAX

from . import tables
from .command import UsageError

ADAPTIVE = "adaptive_loss"
# Trained by fairseq's own criteria: no constant, so that they are scored with a softmax alone.
NORMALISED = (SOFTMAX, ADAPTIVE)
DEFAULT_CRITERIA = (SOFTMAX, "shared_nce", "bnce", "nce_regularized")

CommandLine = Union[str, Sequence[str]]

# What compare.py and recipe.py set themselves, and to what.
OWN_FLAGS = {
    "--criterion": "the compared ones",
    "--seed": "that of the run",
    "--save-dir": "a folder in --out",
    "--user-dir": "the checkout's fairseq_bnce",
    "--log-format": "json, which is read",
    "--path": "the checkpoint that was trained",
    "--gen-subset": "valid and test",
    "--unnormalized": "both ways of scoring",
    "--log-z-shift": "none, and the mu_z of the validation data",
}

# Of fairseq-train's flags, those that fairseq-eval-lm must be given, too: it reads them from its
# own command line, and skips blocks that are longer than the model's training had them.
INHERITED = ("--tokens-per-sample", "--sample-break-mode")


@dataclass(frozen=True)
class Recipe:
    """fairseq-train's flags, the same for every criterion.

    Attributes:
        name: what ``--recipe`` calls it.
        about: one line for the report.
        training: flags of fairseq-train, the criterion's own left out.
        scoring: flags of fairseq-eval-lm, besides those of INHERITED.
    """

    name: str
    about: str
    training: Tuple[str, ...]
    scoring: Tuple[str, ...] = ()


def recipe(name: str, about: str, training: CommandLine, scoring: CommandLine) -> Recipe:
    """From command lines' words."""
    return Recipe(name, about, words(training), words(scoring))


def words(flags: CommandLine) -> Tuple[str, ...]:
    """Of a command line in one part or several."""
    return tuple(shlex.split(flags if isinstance(flags, str) else " ".join(flags)))


RECIPES = {name: recipe(name, **one) for name, one in tables.load("recipes")["compare"].items()}


@dataclass(frozen=True)
class Variant:
    """One line of the comparison.

    Attributes:
        label: its name in the report; the criterion's unless one is trained in several ways.
        criterion: the registered name.
        flags: flags of fairseq-train that it alone has.
    """

    label: str
    criterion: str
    flags: Tuple[str, ...] = ()


def variants(names: Iterable[str], flags_for: Sequence[Tuple[str, List[str]]]) -> List[Variant]:
    """The variants that ``--criteria`` and ``--flags-for`` ask for.

    Args:
        names: each a criterion, or LABEL=CRITERION.
        flags_for: pairs of a label and flags.

    Raises:
        UsageError: for a repeated or unusable label, or flags for a label that is not there.
    """
    pairs = [_split_label(name) for name in names]
    labels = [label for label, _ in pairs]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(f"--criteria: required each label once, got {label!r} twice")
    for label, flags in flags_for:
        if label not in labels:
            raise UsageError(f"--flags-for: required one of {', '.join(labels)}, got {label!r}")
        refuse_own_flags(flags, f"--flags-for {label}")
    return [Variant(label, criterion, _own(label, flags_for)) for label, criterion in pairs]


def grid(chosen: Sequence[Variant], rates: Sequence[str]) -> List[Variant]:
    """Every variant with every learning rate, LABEL@RATE; the variants themselves for no rates."""
    if not rates:
        return list(chosen)
    return [
        Variant(f"{one.label}@{rate}", one.criterion, (*one.flags, "--lr", rate))
        for one in chosen
        for rate in rates
    ]


def cutoffs(vocab: int) -> List[int]:
    """Where the adaptive softmax cuts a vocabulary of so many types, commonest first.

    At 2,000, 10,000 and 50,000 words as long as that is at most half of the types: 2,000 and 10,000
    for 52,595. A fourth cut would leave a layer of 200 features no dimension for its last words
    (200 / 4^4). Fewer than 4,000 types are cut once, at a fifth.
    """
    found = [cut for cut in (2_000, 10_000, 50_000) if 2 * cut <= vocab]
    return found or [max(vocab // 5, 1)]


def criterion_flags(criterion: str, vocab: int) -> List[str]:
    """What fairseq-train must be told with a criterion; others override it.

    The adaptive softmax insists on its flag for DistributedDataParallel on one process, too.
    """
    if criterion != ADAPTIVE:
        return []
    cuts = ",".join(map(str, cutoffs(vocab)))
    return ["--adaptive-softmax-cutoff", cuts, "--ddp-backend", "legacy_ddp"]


def refuse_own_flags(flags: Iterable[str], where: str) -> None:
    """Raise UsageError for a flag that the script sets itself: one of the two would be ignored."""
    for flag in flags:
        own = OWN_FLAGS.get(flag.split("=")[0])
        if own is not None:
            raise UsageError(f"{where}: {flag} is set by this script ({own})")


def inherited(training: Sequence[str]) -> List[str]:
    """The flags of INHERITED as they hold for a training: the last of several."""
    values: Dict[str, str] = {}
    for place, word in enumerate(training):
        flag, equals, value = word.partition("=")
        if flag in INHERITED:
            values[flag] = value if equals else "".join(training[place + 1 : place + 2])
    return [word for flag in values for word in (flag, values[flag])]


def order(compared: Sequence[Variant], seeds: Sequence[int]) -> List[Tuple[Variant, int]]:
    """Seed by seed, each starting with another variant, so that a machine's drift spreads."""
    count = len(compared)
    turns = [(place + turn, seed) for turn, seed in enumerate(seeds) for place in range(count)]
    return [(compared[place % count], seed) for place, seed in turns]


def _split_label(name: str) -> Tuple[str, str]:
    label, _, criterion = name.partition("=")
    if not re.fullmatch(r"[\w.+-]+", label) or (not criterion and "=" in name):
        raise UsageError(
            "--criteria: required CRITERION or LABEL=CRITERION, a label of letters, digits and "
            f"._+-, got {name!r}"
        )
    return label, criterion or label


def _own(label: str, flags_for: Sequence[Tuple[str, List[str]]]) -> Tuple[str, ...]:
    return tuple(flag for owner, flags in flags_for if owner == label for flag in flags)
