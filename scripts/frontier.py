#!/usr/bin/env python3
"""Draw docs/results/frontier/*.png and README's picture from all committed JSON of results.

    frontier.py            # draw the pictures whose numbers have changed
    frontier.py --check    # only name these pictures (exit status 1 if any)

FAMILY.png has exact perplexity against σ_z, with the paper's own numbers as rings;
FAMILY-time.png validation perplexity against processor time. rendering/frontier.py says which
systems they have. A picture's metadata has a digest of what it was drawn from. It needs matplotlib.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Callable, Dict, List, Sequence, Tuple

import environment  # noqa: F401
from experiments import plot
from experiments.command import HelpFormatter, start
from rendering import frontier

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
SPREAD = {"xlabel": "σ_z (nats)", "ylabel": "exact perplexity"}
TIME = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "yscale": "log"}
WIDTH = 50  # characters of a panel's title in one line
# README's: curves of trainings by their label, alone or mixed with KenLM; systems by their names.
MIXED, SPEEDS = "peers/mixed-novels.json", "vocabulary/lstm200/benchmark.json"
CURVES = {
    "adaptive softmax": ("adaptive@0.1", "network"),
    "bnce, GRU": ("reset@0.14", "network"),
    "with KenLM": ("reset@0.14", "mixed"),
}
SYSTEMS = {"cross_entropy": "cross_entropy", "bnce": "bnce", "bnce_sparse": "bnce --row-sparse"}
LETTERS = 15  # legible where the picture is 390 pixels wide
# What is shown, and the function that draws it and says what it did: (path, digest) -> message.
Picture = Tuple[Any, Callable[[Path, str], str]]


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
            print(f"{path.name}: to draw" if chosen.check else draw(path, digest))
    return 1 if chosen.check and differ else 0


def pictures(docs: Path) -> Dict[Path, Picture]:
    """Return all pictures of docs/results/frontier, and README's, by their paths."""
    found = {path: json.loads(path.read_text("utf-8")) for path in sorted(docs.rglob("*.json"))}
    drawn: Dict[Path, Picture] = {}
    for family, groups in frontier.families(found.values()).items():
        clouds, axes = [_cloud(*group) for group in groups.items()], {**SPREAD, "title": family}
        shown = [axes, *map(asdict, clouds)]
        drawn[docs / f"frontier/{_slug(family)}.png"] = shown, partial(plot.clouds, clouds, axes)
    for family, curves in frontier.curves(found.values()).items():
        fill = partial(textwrap.fill, width=WIDTH, break_on_hyphens=False)
        panels = [
            plot.Panel([*lines.items()], {**TIME, "title": fill(name)})
            for name, lines in curves.items()
        ]
        drawn[docs / f"frontier/{_slug(family)}-time.png"] = _lines(panels, family)
    if docs / MIXED in found:
        panels = [_mixtures(found[docs / MIXED]), _speeds(found[docs / SPEEDS])]
        drawn[docs.parent / "readme.png"] = _lines(panels, "", letters=LETTERS)
    return drawn


def _lines(panels: Sequence[plot.Panel], title: str, **size: Any) -> Picture:
    return list(map(asdict, panels)), partial(plot.lines, panels, title, **size)


def _mixtures(mixed: Any) -> plot.Panel:
    """Return perplexities of trainings of each length, alone and mixed with KenLM."""
    kenlm = mixed["systems"]["KenLM"]
    lines: List[Any] = []
    for name, (label, way) in CURVES.items():
        more = kenlm["seconds"] if way == "mixed" else 0
        runs = [run for run in mixed["mixtures"] if run["label"] == label]
        points: Dict[int, Any] = {}
        for run in runs:
            own = run["processor_seconds"] + more, run["lines"]["valid"][way]
            points.setdefault(run["updates"], []).append(own)
        lines.append((name, [tuple(map(fmean, zip(*points[one]))) for one in sorted(points)]))
    last = max(seconds for seconds, _ in lines[-1][1])
    ngrams = [(seconds, kenlm["valid_ppl"]) for seconds in (kenlm["seconds"], last)]
    axes = {**TIME, "yscale": "linear", "ylim": (60, 200), "title": "522 novels, 52,595 words"}
    return plot.Panel([*lines, ("KenLM", ngrams)], axes)


def _speeds(benchmark: Any) -> plot.Panel:
    lines = [
        (
            name,
            sorted(
                (r["vocab"], r["words_per_second"]) for r in benchmark["runs"] if r["system"] == one
            ),
        )
        for one, name in SYSTEMS.items()
    ]
    axes = {"xlabel": "vocabulary size", "ylabel": "words/s", "title": "training, one CPU core"}
    return plot.Panel(lines, {**axes, "xscale": "log", "yscale": "log"})


def _cloud(group: str, systems: Sequence[Any]) -> plot.Cloud:
    named = [(one.sigma_z, one.ppl, one.label.partition("@")[0], one.runs) for one in systems]
    ours, papers = (
        [tuple(some) for *some, runs in named if bool(runs) is is_own] for is_own in (True, False)
    )
    return plot.Cloud(group, ours, frontier.front([(x, y) for x, y, _ in ours]), papers)


def _slug(family: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")


if __name__ == "__main__":
    start(main)
