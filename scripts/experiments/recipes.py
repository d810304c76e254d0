"""What is trained: recipes, and the variants of a recipe that are compared."""

import shlex
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple, Union

from . import report
from .command import UsageError

ADAPTIVE = "adaptive_loss"
# fairseq-eval-lm reads these flags from its own command line, and skips longer blocks.
INHERITED = ("--tokens-per-sample", "--sample-break-mode")

CommandLine = Union[str, Sequence[str]]


class Recipe(NamedTuple):
    """Flags that all criteria share.

    Attributes:
        name, about: the name for ``--recipe``, and one line for the report.
        training, scoring: flags of fairseq-train and fairseq-eval-lm.
    """

    name: str
    about: str
    training: Tuple[str, ...]
    scoring: Tuple[str, ...] = ()


class Variant(NamedTuple):
    """One line of a comparison.

    Attributes:
        label: its name in the report.
        criterion: the registered name.
        flags: further flags of fairseq-train.
    """

    label: str
    criterion: str
    flags: Tuple[str, ...] = ()


def words(flags: CommandLine) -> Tuple[str, ...]:
    """Split a command line, which may be in several parts."""
    return tuple(shlex.split(flags if isinstance(flags, str) else " ".join(flags)))


def recipe(name: str, about: str, training: CommandLine, scoring: CommandLine) -> Recipe:
    """Return a recipe from its command lines."""
    return Recipe(name, about, words(training), words(scoring))


RECIPES = {name: recipe(name, **one) for name, one in report.load("recipes")["compare"].items()}


def variants(
    names: Iterable[str], flags_for: Sequence[Sequence[str]], rates: Sequence[str] = ()
) -> List[Variant]:
    """Return the variants of ``--criteria``, ``--flags-for`` and ``--learning-rates``.

    Args:
        names: each a criterion, or LABEL=CRITERION.
        flags_for: pairs of a label and flags.
        rates: with any, each variant comes with each rate, as LABEL@RATE.

    Raises:
        UsageError: for flags of an unknown label.
    """
    pairs = [(name.partition("=")[0], name.rpartition("=")[2]) for name in names]
    own: Dict[str, List[str]] = {label: [] for label, _ in pairs}
    for label, flags in flags_for:
        if label not in own:
            raise UsageError(f"--flags-for: required one of {', '.join(own)}, got {label!r}")
        own[label] += shlex.split(flags)
    found = [Variant(label, criterion, tuple(own[label])) for label, criterion in pairs]
    return [
        Variant(f"{one.label}@{rate}", one.criterion, (*one.flags, "--lr", rate))
        for one in found
        for rate in rates
    ] or found


def adaptive_cutoffs(vocab: int) -> List[str]:
    """Return the flag with the cutoffs of an adaptive softmax.

    It is cut at 2,000, 10,000 and 50,000 words, as long as a cut is at most half
    of the types. A fourth cut would leave a layer with 200 features no dimension for the last words
    (200 / 4^4). Fewer than 4,000 types are cut once, at a fifth.
    """
    cuts = [cut for cut in (2_000, 10_000, 50_000) if 2 * cut <= vocab] or [max(vocab // 5, 1)]
    return ["--adaptive-softmax-cutoff", ",".join(map(str, cuts))]


def criterion_flags(criterion: str, vocab: int) -> List[str]:
    """Return the flags that a criterion needs; later flags override them."""
    if criterion != ADAPTIVE:
        return []
    return [*adaptive_cutoffs(vocab), "--ddp-backend", "legacy_ddp"]


def inherited(training: Sequence[str]) -> List[str]:
    """Return the INHERITED flags of a training; the last of several counts."""
    split = [word.split("=", 1) if word.startswith(INHERITED) else [word] for word in training]
    flat = [word for pair in split for word in pair]
    values = {flag: value for flag, value in zip(flat, flat[1:]) if flag in INHERITED}
    return [word for pair in values.items() for word in pair]


def order(compared: Sequence[Variant], seeds: Sequence[int]) -> List[Tuple[Variant, int]]:
    """Return all runs, seed by seed.

    Each seed starts with another variant: a drift of the machine then affects all variants.
    """
    count = len(compared)
    turns = [(place + turn, seed) for turn, seed in enumerate(seeds) for place in range(count)]
    return [(compared[place % count], seed) for place, seed in turns]
