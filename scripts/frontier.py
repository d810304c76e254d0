#!/usr/bin/env python3
"""Draw docs/results/frontier/*.png and README's picture from all committed JSON of results.

    frontier.py            # draw the pictures whose numbers have changed
    frontier.py --check    # only name these pictures (exit status 1 if any)

FAMILY.png has exact perplexity against σ_z, with the paper's own numbers as rings;
FAMILY-time.png validation perplexity against processor time. A picture's metadata has a digest of
what it was drawn from. It needs matplotlib.

The systems come from the JSON of compare.py, recipe.py and bench.py offset, with numbers of papers
beside ours. Models of one size that were trained equally long are a group; groups that belong side
by side are a family. A system counts when it is scored: σ_z is then over all validation contexts.
It has a curve if at least three validations have processor times.
"""

import argparse
import hashlib
import json
import re
import textwrap
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import environment  # noqa: F401
from experiments import plot
from experiments.command import HelpFormatter, start
from rendering.cells import NAMES, values

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
SPREAD = {"xlabel": "σ_z (nats)", "ylabel": "exact perplexity"}
TIME = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "yscale": "log"}
WIDTH = 50  # characters of a panel's title in one line
MIXED, SPEEDS = "peers/mixed-novels.json", "vocabulary/lstm200/benchmark.json"  # README's
LETTERS = 15  # legible where the picture is 390 pixels wide
MODELS, OPTIMIZERS = NAMES["models"], NAMES["rules"]
BOTH_SIDES = "--bidirectional-context"  # who knows what follows has no language model's perplexity
_WARM, _WITH = "--warmup-updates", "with a warm-up"
_AFTER_YEAR = re.compile(r"(?<=\(\d{4}\)).*")
# What is shown, and the function that draws it to a path and says what it did.
Picture = Tuple[Any, Callable[..., str]]
Content = Dict[str, Any]
Points = Sequence[Tuple[float, float]]
Groups = Dict[str, Dict[str, Any]]  # by family and group


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


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a picture differs from the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, name what is to draw")
    parser.add_argument("--docs", type=Path, default=DOCS, help="default: this checkout's")
    chosen = parser.parse_args(arguments)
    folder, expected = chosen.docs / "frontier", pictures(chosen.docs)
    differ = [path.name for path in sorted(folder.glob("*.png")) if path not in expected]
    for name in differ:
        print(f"{name}: of results that are gone")
    for path, (shown, draw) in expected.items():
        text = json.dumps(shown, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[: plot.DIGEST]
        if plot.source_of(path) != digest:
            differ.append(path.name)
            print(f"{path.name}: to draw" if chosen.check else draw(path, source=digest))
    return 1 if chosen.check and differ else 0


# ---------------------------------------------------------------- pictures


def pictures(docs: Path) -> Dict[Path, Picture]:
    """Return all pictures of docs/results/frontier, and README's, by their paths."""
    found = {path: json.loads(path.read_text("utf-8")) for path in sorted(docs.rglob("*.json"))}
    drawn: Dict[Path, Picture] = {}
    for family, groups in families(found.values()).items():
        clouds, axes = [_cloud(*group) for group in groups.items()], {**SPREAD, "title": family}
        shown = [axes, *map(asdict, clouds)]
        fill = partial(plot.clouds, clouds, axes)
        drawn[docs / f"frontier/{_slug(family)}.png"] = shown, partial(plot.draw, fill, letters=10)
    for family, groups in curves(found.values()).items():
        panels = []
        for name, lines in groups.items():
            title = textwrap.fill(name, WIDTH, break_on_hyphens=False)
            panels.append(plot.Panel([*lines.items()], {**TIME, "title": title}))
        drawn[docs / f"frontier/{_slug(family)}-time.png"] = _lines(panels, family)
    if docs / MIXED in found:
        panels = [_mixtures(found[docs / MIXED]), _speeds(found[docs / SPEEDS])]
        drawn[docs.parent / "readme.png"] = _lines(panels, "", letters=LETTERS)
    return drawn


def _lines(panels: Sequence[plot.Panel], title: str, **size: Any) -> Picture:
    fill = partial(plot.lines, panels, title)
    return list(map(asdict, panels)), partial(plot.draw, fill, **size)


def _mixtures(mixed: Any) -> plot.Panel:
    """Return perplexities of trainings of each length, alone and mixed with KenLM."""
    kenlm = mixed["systems"]["KenLM"]
    lines: List[Any] = []
    for name, (label, way) in NAMES["readme"]["curves"].items():
        more = kenlm["seconds"] if way == "mixed" else 0
        points: Dict[int, Any] = {}
        for run in values(mixed["mixtures"], f"label={label}"):
            own = run["processor_seconds"] + more, run["lines"]["valid"][way]
            points.setdefault(run["updates"], []).append(own)
        lines.append((name, [tuple(map(fmean, zip(*points[one]))) for one in sorted(points)]))
    last = max(seconds for seconds, _ in lines[-1][1])
    ngrams = [(seconds, kenlm["valid_ppl"]) for seconds in (kenlm["seconds"], last)]
    axes = {**TIME, "yscale": "linear", "ylim": (60, 200), "title": "522 novels, 52,595 words"}
    return plot.Panel([*lines, ("KenLM", ngrams)], axes)


def _speeds(benchmark: Any) -> plot.Panel:
    lines: List[Any] = []
    for system, name in NAMES["readme"]["systems"].items():
        runs = values(benchmark["runs"], f"system={system}")
        lines.append((name, sorted((run["vocab"], run["words_per_second"]) for run in runs)))
    axes = {"xlabel": "vocabulary size", "ylabel": "words/s", "title": "training, one CPU core"}
    return plot.Panel(lines, {**axes, "xscale": "log", "yscale": "log"})


def _cloud(group: str, systems: Sequence[Any]) -> plot.Cloud:
    named = [((one.sigma_z, one.ppl, one.label.partition("@")[0]), one.runs) for one in systems]
    ours = [point for point, runs in named if runs]
    papers = [point for point, runs in named if not runs]
    return plot.Cloud(group, ours, front([(x, y) for x, y, _ in ours]), papers)


def _slug(family: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")


# ---------------------------------------------------------------- systems


def families(contents: Iterable[Any]) -> Groups:
    """Return groups by family: two systems or more, ours before the paper's, all with a σ_z.

    Args:
        contents: of JSON files; those of other results are passed over.
    """
    found: Dict[Tuple[str, str], Any] = {}
    for one in dict.fromkeys(trainings(contents)):
        if one.sigma_z is not None:
            found.setdefault((one.family, one.group), []).append(one)
    return _of_several(found, _means)


def curves(contents: Iterable[Any]) -> Groups:
    """Return the best perplexity by processor time: {family: {group: {method: points}}}.

    Of a method that was trained at several learning rates (METHOD@RATE), over all of them; of
    several seeds, the first. A group's runs are those of one processor's name, which the group's
    name has if there are others.
    """
    found: Dict[Tuple[str, str], Any] = {}
    drawn = [one for one in trainings(contents) if one.curve and one.seed == 1]
    has_others = len({one.machine for one in drawn}) > 1
    for one in drawn:
        group = one.group + f", {one.machine}" * has_others
        methods = found.setdefault((one.family, group), {})
        methods.setdefault(one.label.partition("@")[0], []).extend(one.curve)
    return _of_several(found, lambda methods: {name: front(p) for name, p in methods.items()})


def _of_several(found: Dict[Tuple[str, str], Any], merge: Callable[[Any], Any]) -> Groups:
    """Return the merged groups of two systems or more by family; numbers in names are in order."""

    def natural(item: Any) -> List[Any]:
        words = re.split(r"(\d+)", item[0][1])
        return [int(word) if word.isdigit() else word for word in words]

    several: Groups = {}
    for (family, name), group in sorted(found.items(), key=natural):
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
    for name, model in content.get("models", {}).items():  # of bench.py offset
        for way in model.get("ways", []):
            label = f"{way['rows']} rows" if way["rows"] else "a constant"
            family = f"{_corpus(model['words'])}, reduced partition function"
            yield System(family, name, label, ppl=way["ppl"], sigma_z=way["sigma_z"])


def _compared(content: Content) -> Iterator[System]:
    """Yield the systems of compare.py."""
    family, recipe = _corpus(content["data"]["fingerprint"]), content["recipe"]
    flags = [*recipe.get("training", []), *content["flags"]]
    last = dict(zip(flags, flags[1:]))
    rule = last.get("--optimizer", "").replace("sparse_", "").replace("lazy_", "")
    more = [OPTIMIZERS[rule]] if rule in OPTIMIZERS else []
    each = re.split(r" (?=--)", " ".join(content["flags"]))
    told = [flag.lstrip("-") for flag in each if flag and flag.split(" ")[0] not in NAMES["untold"]]
    told += [_WITH] * (_WARM in content["flags"])
    for run in content["runs"]:
        if "failed" not in run:
            model = MODELS.get(recipe["name"], recipe["name"])
            group = ", ".join([model, *more, f"{run['updates']:,} updates", *told])
            scored = run if "test_ppl" in run else {}
            yield _training(family, group, run, scored, run["train"])


def _reproduced(content: Content) -> Iterator[System]:
    """Yield the systems of recipe.py: ours and the paper's."""
    paper = _AFTER_YEAR.sub("", content["title"])
    family = f"{paper}, {_corpus(content['data']['fingerprint'])}"
    for row in content["rows"]:
        flags = [*content["flags"], *row["flags"]]
        if BOTH_SIDES in flags:
            continue
        arch = flags[len(flags) - flags[::-1].index("--arch")]
        method, _, size = row["label"].rpartition("-")  # nce for nce-30 under rnn_lm_gm30
        label = method if size and arch.endswith(size) else row["label"]
        place, theirs = (family, MODELS.get(arch, arch)), row["paper"]
        if row.get("ours"):
            yield _training(*place, {**row, "label": label}, row["ours"], row)
        if {"sigma_z", "valid_ppl"} <= set(theirs):
            numbers = {"ppl": theirs["valid_ppl"], "sigma_z": theirs["sigma_z"]}
            yield System(*place, label, **numbers, runs=0)


def _training(family: str, group: str, run: Content, scored: Content, training: Content) -> System:
    points = tuple((p.get("processor_seconds"), p["ppl"]) for p in training["curve"])
    has_curve = len(points) > 2 and all(seconds is not None for seconds, _ in points)
    numbers = scored.get("valid_ppl"), scored.get("sigma_z"), points if has_curve else ()
    own = training["hardware"]["processor"], run["seed"]
    return System(family, group, run["label"], tuple(run["flags"]), *numbers, *own)


def _corpus(key: Any) -> str:
    return NAMES["corpora"].get(key, str(key))


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
            means[name] = round(fmean(getattr(one, name) for one in every), digits)
        found.append(replace(every[0], **means, runs=sum(one.runs for one in every)))
    return found


def front(points: Points) -> List[Tuple[float, float]]:
    """Return the Pareto front, from left to right: the lowest points up to each place."""
    kept: List[Tuple[float, float]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


if __name__ == "__main__":
    start(main)
