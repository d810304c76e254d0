"""Perplexity against the spread of log Z_c, and against processor time, over all results.

The systems come from the JSON of compare.py, recipe.py and bench.py offset, with numbers of papers
beside ours. Models of one size that were trained equally long are a group; groups that belong side
by side are a family. A system counts when it is scored: σ_z is then over all validation contexts.
It has a curve if at least three validations have processor times.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from .cells import NAMES

Content = Dict[str, Any]
Points = Sequence[Tuple[float, float]]
CORPORA, MODELS, OPTIMIZERS = (NAMES[name] for name in ("corpora", "models", "rules"))
_Groups = Dict[Tuple[str, str], Any]  # by family and group
BOTH_SIDES = "--bidirectional-context"  # who knows what follows has no language model's perplexity
_WARM, _WITH = "--warmup-updates", "with a warm-up"
_REDUCED = ", reduced partition function"
_AFTER_YEAR = re.compile(r"(?<=\(\d{4}\)).*")


@dataclass(frozen=True)
class System:
    """One training, or the mean of several of the same flags; a number of the paper's.

    Attributes:
        family, group: see the module.
        flags: what tells it from others of its label.
        ppl: exact, of the validation data (a reduced partition function's: of what was scored);
            sigma_z: nats.
        curve: (processor seconds, validation perplexity).
        machine: whose processor that was.
        seed: of several, none.
        runs: how many it is the mean of; 0 for the paper's.
    """

    family: str
    group: str
    label: str
    flags: Tuple[str, ...] = ()
    ppl: Optional[float] = None
    sigma_z: Optional[float] = None
    curve: Tuple[Tuple[float, float], ...] = ()
    machine: str = ""
    seed: Optional[int] = None
    runs: int = 1


def families(contents: Iterable[Any]) -> Dict[str, Dict[str, List[System]]]:
    """Return groups by family: two systems or more, ours before the paper's, all with a σ_z.

    Args:
        contents: of JSON files; those of other results are passed over.
    """
    found: _Groups = {}
    for one in dict.fromkeys(trainings(contents)):
        if one.sigma_z is not None:
            found.setdefault((one.family, one.group), []).append(one)
    return _of_several(found, _means)


def _of_several(found: _Groups, merge: Callable[[Any], Any]) -> Dict[str, Any]:
    """Return the merged groups of two systems or more by family; numbers in names are in order."""
    several: Dict[str, Dict[str, Any]] = {}
    for (family, name), group in sorted(found.items(), key=lambda item: _natural(item[0][1])):
        if len(group) > 1:
            several.setdefault(family, {})[name] = merge(group)
    return several


def trainings(contents: Iterable[Any]) -> Iterator[System]:
    """Yield every system with its curve, and the paper's; a training in two files comes twice."""
    found = [one for content in contents if isinstance(content, dict) for one in _systems(content)]
    # The adaptive softmax of a group may go without the others' warm-up.
    cold = {one.group for one in found if (_WARM, "0") in zip(one.flags, one.flags[1:])}
    for one in found:
        is_own = one.group in cold and one.group.endswith(_WITH)
        yield replace(one, group=one.group.replace(_WITH, f"bnce {_WITH}")) if is_own else one


def _systems(content: Content) -> Iterator[System]:
    if "recipe" in content and "runs" in content:
        yield from _compared(content)
    elif "rows" in content and "title" in content:
        yield from _reproduced(content)
    elif any("ways" in model for model in content.get("models", {}).values()):
        yield from _offsets(content)


def _compared(content: Content) -> Iterator[System]:
    """Yield the systems of compare.py."""
    family, recipe = _corpus(content["data"]["fingerprint"]), content["recipe"]
    model = MODELS.get(recipe["name"], recipe["name"])
    flags = [*recipe.get("training", []), *content["flags"]]
    last = dict(zip(flags, flags[1:]))
    rule = last.get("--optimizer", "").replace("sparse_", "").replace("lazy_", "")
    more = [OPTIMIZERS[rule]] if rule in OPTIMIZERS else []
    each = re.split(r" (?=--)", " ".join(content["flags"]))
    told = [flag.lstrip("-") for flag in each if flag and flag.split(" ")[0] not in NAMES["untold"]]
    told += [_WITH] * (_WARM in content["flags"])
    for run in content["runs"]:
        if "failed" not in run:
            group = ", ".join([model, *more, f"{run['updates']:,} updates", *told])
            scored = run if "test_ppl" in run else {}
            yield _training(family, group, run, scored, run["train"])


def _reproduced(content: Content) -> Iterator[System]:
    """Yield the systems of recipe.py: ours and the paper's."""
    paper = _AFTER_YEAR.sub("", content["title"])
    family = f"{paper}, {_corpus(content['data']['fingerprint'])}"
    for row in content["rows"]:
        flags = [*content["flags"], *row["flags"]]
        arch = flags[len(flags) - flags[::-1].index("--arch")]
        place, theirs = (family, MODELS.get(arch, arch)), row["paper"]
        named = {**row, "label": _without_size(row["label"], arch)}
        if BOTH_SIDES in flags:
            continue
        if row.get("ours"):
            yield _training(*place, named, row["ours"], row)
        if {"sigma_z", "valid_ppl"} <= set(theirs):
            numbers = {"ppl": theirs["valid_ppl"], "sigma_z": theirs["sigma_z"]}
            yield System(*place, named["label"], **numbers, runs=0)


def _without_size(label: str, arch: str) -> str:
    """Return nce for nce-30 under rnn_lm_gm30."""
    method, _, size = label.rpartition("-")
    return method if size and arch.endswith(size) else label


def _training(family: str, group: str, run: Content, scored: Content, training: Content) -> System:
    points = [(p.get("processor_seconds"), p["ppl"]) for p in training["curve"]]
    has_curve = len(points) > 2 and all(seconds is not None for seconds, _ in points)
    numbers = scored.get("valid_ppl"), scored.get("sigma_z"), tuple(points) if has_curve else ()
    own = training["hardware"]["processor"], run["seed"]
    return System(family, group, run["label"], tuple(run["flags"]), *numbers, *own)


def _offsets(content: Content) -> Iterator[System]:
    """Yield the systems of bench.py offset: a model by rows of its partition function."""
    for name, model in content["models"].items():
        for way in model["ways"]:
            numbers = {"ppl": way["ppl"], "sigma_z": way["sigma_z"]}
            label = f"{way['rows']} rows" if way["rows"] else "a constant"
            yield System(_corpus(model["words"]) + _REDUCED, name, label, **numbers)


def _corpus(key: Any) -> str:
    return CORPORA.get(key, str(key))


def _means(systems: Sequence[System]) -> List[System]:
    """Return one system for each label and flags, ours before the paper's.

    A seed counts once: trained anew, it takes the earlier file's place.
    """
    alike: Dict[Tuple[Any, ...], Dict[Optional[int], System]] = {}
    for one in systems:
        alike.setdefault((not one.runs, one.label, one.flags), {})[one.seed] = one
    found = []
    for _, seeds in sorted(alike.items(), key=lambda item: item[0]):
        every = list(seeds.values())
        means: Dict[str, Any] = {}
        for name, digits in (("ppl", 2), ("sigma_z", 4)):  # more digits than a picture shows
            means[name] = round(statistics.fmean(getattr(one, name) for one in every), digits)
        found.append(replace(every[0], **means, runs=sum(one.runs for one in every)))
    return found


def _natural(name: str) -> List[Any]:
    """Return a key that sorts a name's numbers as numbers."""
    words = re.split(r"(\d+)", name)
    return [int(word) if word.isdigit() else word for word in words]


def front(points: Points) -> List[Tuple[float, float]]:
    """Return the Pareto front, from left to right: the lowest points up to each place."""
    kept: List[Tuple[float, float]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def curves(contents: Iterable[Any]) -> Dict[str, Dict[str, Dict[str, Points]]]:
    """Return the best perplexity by processor time: {family: {group: {method: points}}}.

    Of a method that was trained at several learning rates (METHOD@RATE), over all of them; of
    several seeds, the first. A group's runs are those of one processor's name, which the group's
    name has if there are others.
    """
    found: _Groups = {}
    drawn = [one for one in trainings(contents) if one.curve and one.seed == 1]
    has_others = len({one.machine for one in drawn}) > 1
    for one in drawn:
        group = one.group + f", {one.machine}" * has_others
        methods = found.setdefault((one.family, group), {})
        methods.setdefault(one.label.partition("@")[0], []).extend(one.curve)
    return _of_several(found, lambda methods: {name: front(p) for name, p in methods.items()})
