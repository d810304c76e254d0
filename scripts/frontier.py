#!/usr/bin/env python3
"""Draw docs/results/frontier/*.png and other pictures of the pages from committed JSON.

    frontier.py            # draw the pictures whose numbers have changed
    frontier.py --check    # only name these pictures (exit status 1 if any)

rendering/frontier.yaml says what stands in which picture: exact perplexity against σ_z, with the
paper's own numbers as rings, or validation perplexity against processor time. A picture's metadata
has a digest of what it was drawn from. It needs matplotlib.
"""

import argparse
import hashlib
import json
import textwrap
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

import environment  # noqa: F401
import yaml  # a dependency of omegaconf, which fairseq needs
from experiments import plot
from experiments.command import HelpFormatter, start
from rendering import cells

SCRIPTS = Path(__file__).resolve().parent
PICTURES = yaml.safe_load((SCRIPTS / "rendering/frontier.yaml").read_text("utf-8"))
SPREAD = {"xlabel": "σ_z (nats)", "ylabel": "exact perplexity"}
TIME = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "yscale": "log"}
WIDTH = 50  # characters of a panel's title in one line
MIXED, SIZES = "peers/mixed-novels.json#", "vocabulary/lstm200/benchmark.json#runs/system=*"
# What is shown, and the function that draws it to a path and says what it did.
Picture = Tuple[Any, Callable[..., str]]
Json = Dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a picture differs from the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, name what is to draw")
    parser.add_argument("--docs", type=Path, default=SCRIPTS.parent / "docs", help="its folder")
    chosen, differs = parser.parse_args(arguments), False
    for name, about in PICTURES.items():
        shown, draw = picture(about, chosen.docs / "results")
        text, path = json.dumps(shown, sort_keys=True), chosen.docs / name
        digest = hashlib.sha256(text.encode()).hexdigest()[: plot.DIGEST]
        if plot.source_of(path) != digest:
            differs = True
            print(f"{path.name}: to draw" if chosen.check else draw(path, source=digest))
    return int(chosen.check and differs)


def picture(about: Dict[str, Any], results: Path) -> Picture:
    """Return what frontier.yaml describes, of the files in docs/results."""
    title, groups = about["title"], about.get("clouds", about.get("curves", {}))
    drawn = {group: list(_trainings(places, results)) for group, places in groups.items()}
    if "clouds" in about:
        axes, clouds = {**SPREAD, "title": title}, [_cloud(*group) for group in drawn.items()]
        fill = partial(plot.clouds, clouds, axes)
        return [axes, *(one._asdict() for one in clouds)], partial(plot.draw, fill, letters=10)
    panels = [_curves(*group) for group in drawn.items()]
    panels += [_mixed(about["mixed"], results)] if "mixed" in about else []
    panels += [_by_size(name, axes, results) for name, axes in about.get("sizes", [])]
    fill, letters = partial(plot.lines, panels, title), about.get("letters", 9)
    return [one._asdict() for one in panels], partial(plot.draw, fill, letters=letters)


def _trainings(places: Sequence[str], results: Path) -> Iterator[Tuple[str, Json]]:
    """Yield labels, without their learning rates and the end of the place, and trainings."""
    for place in places:
        end = place.rpartition("*")[2]
        for run in cells.located(results, place):
            rows = run.get("rows")  # of bench.py offset
            label = run.get("label") or (f"{rows} rows" if rows else "a constant")
            label = label.partition("@")[0]
            yield label[: len(label) - len(end)] if label.endswith(end) else label, run


def _cloud(group: str, trainings: Iterable[Tuple[str, Json]]) -> plot.Cloud:
    """Return mean σ_z and perplexity of each label, and the paper's.

    A seed counts once: trained anew, it takes the earlier file's place.
    """
    seeds: Dict[str, Dict[Any, Any]] = {}
    papers = {}
    for label, run in trainings:
        ours, paper = run.get("ours", run) or {}, run.get("paper", {})
        if ours.get("sigma_z") is not None:
            ppl = ours.get("valid_ppl", ours.get("ppl"))
            seeds.setdefault(label, {})[run.get("seed")] = ours["sigma_z"], ppl
        if {"sigma_z", "valid_ppl"} <= set(paper):
            papers[label] = paper["sigma_z"], paper["valid_ppl"], label
    points = []
    for label, own in sorted(seeds.items()):
        sigma_z, ppl = map(fmean, zip(*own.values()))
        points.append((round(sigma_z, 4), round(ppl, 2), label))  # more digits than are seen
    joined = front((x, y) for x, y, _ in points)
    return plot.Cloud(group, points, joined, [papers[label] for label in sorted(papers)])


def _curves(group: str, trainings: Iterable[Tuple[str, Json]]) -> plot.Panel:
    """Return the best perplexity by processor time of each label, over its learning rates."""
    found: Dict[str, List[Any]] = {}
    for label, run in trainings:
        curve = run.get("train", run).get("curve", [])
        points = [(point.get("processor_seconds"), point["ppl"]) for point in curve]
        if len(points) > 2 and run["seed"] == 1 and None not in dict(points):
            found.setdefault(label, []).extend(points)
    title = textwrap.fill(group, WIDTH, break_on_hyphens=False)
    fronts = [(label, front(points)) for label, points in found.items()]
    return plot.Panel(fronts, {**TIME, "title": title})


def _mixed(names: Dict[str, Any], results: Path) -> plot.Panel:
    """Return perplexities of trainings of each length, alone and mixed with KenLM."""
    (kenlm,) = cells.located(results, f"{MIXED}systems/KenLM")
    lines: List[Any] = []
    for name, (label, way) in names.items():
        more = kenlm["seconds"] if way == "mixed" else 0
        points: Dict[int, Any] = {}
        for run in cells.located(results, f"{MIXED}mixtures/label={label}"):
            own = run["processor_seconds"] + more, run["lines"]["valid"][way]
            points.setdefault(run["updates"], []).append(own)
        lines.append((name, [tuple(map(fmean, zip(*points[one]))) for one in sorted(points)]))
    last = max(seconds for seconds, _ in lines[-1][1])
    ngrams = [(seconds, kenlm["valid_ppl"]) for seconds in (kenlm["seconds"], last)]
    axes = {**TIME, "yscale": "linear", "ylim": (60, 200), "title": "522 novels, 52,595 words"}
    return plot.Panel([*lines, ("KenLM", ngrams)], axes)


def _by_size(name: str, axes: Dict[str, str], results: Path) -> plot.Panel:
    """Return a number of each system of bench.py vocabulary by the size."""
    lines: Dict[str, List[Any]] = {}
    for run in cells.located(results, SIZES):
        lines.setdefault(run["system"], []).append((run["vocab"], run[name]))
    shown = [(system, sorted(line)) for system, line in lines.items()]
    return plot.Panel(shown, {**axes, "xscale": "log", "yscale": "log"})


def front(points: Iterable[Tuple[float, float]]) -> List[Tuple[float, float]]:
    """Return the Pareto front, from left to right: the lowest points up to each place."""
    kept: List[Tuple[float, float]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


if __name__ == "__main__":
    start(main)
