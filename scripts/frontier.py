#!/usr/bin/env python3
"""Draw docs/results/frontier/*.png from all committed JSON of results.

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
from typing import Any, Callable, Dict, Sequence, Tuple

import environment  # noqa: F401
from experiments import plot
from experiments.command import HelpFormatter, start
from rendering import frontier

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
SPREAD = {"xlabel": "σ_z (nats)", "ylabel": "exact perplexity"}
TIME = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "yscale": "log"}
WIDTH = 50  # characters of a panel's title in one line
# What is shown, and the function that draws it and says what it did: (path, digest) -> message.
Picture = Tuple[Any, Callable[[Path, str], str]]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a picture differs from the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, name what is to draw")
    parser.add_argument("--docs", type=Path, default=DOCS, help="default: this checkout's")
    chosen = parser.parse_args(arguments)
    folder, expected = chosen.docs / "frontier", pictures(chosen.docs)
    differ = [path.name for path in sorted(folder.glob("*.png")) if path.name not in expected]
    for name in differ:
        print(f"{name}: of results that are gone")
    for name, (shown, draw) in expected.items():
        text = json.dumps(shown, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[: plot.DIGEST]
        if plot.source_of(folder / name) != digest:
            differ.append(name)
            print(f"{name}: to draw" if chosen.check else draw(folder / name, digest))
    return 1 if chosen.check and differ else 0


def pictures(docs: Path) -> Dict[str, Picture]:
    """Return all pictures of docs/results/frontier by their names."""
    contents = [json.loads(path.read_text("utf-8")) for path in sorted(docs.rglob("*.json"))]
    found: Dict[str, Picture] = {}
    for family, groups in frontier.families(contents).items():
        clouds, axes = [_cloud(*group) for group in groups.items()], {**SPREAD, "title": family}
        shown = [axes, *map(asdict, clouds)]
        found[f"{_slug(family)}.png"] = shown, partial(plot.clouds, clouds, axes)
    for family, curves in frontier.curves(contents).items():
        panels = [_panel(*one) for one in curves.items()]
        shown = list(map(asdict, panels))
        found[f"{_slug(family)}-time.png"] = shown, partial(plot.lines, panels, family)
    return found


def _cloud(group: str, systems: Sequence[Any]) -> plot.Cloud:
    named = [(one.sigma_z, one.ppl, one.label.partition("@")[0], one.runs) for one in systems]
    ours, papers = (
        [tuple(some) for *some, runs in named if bool(runs) is is_own] for is_own in (True, False)
    )
    return plot.Cloud(group, ours, frontier.front([(x, y) for x, y, _ in ours]), papers)


def _panel(name: str, lines: Dict[str, Any]) -> plot.Panel:
    title = textwrap.fill(name, WIDTH, break_on_hyphens=False)
    return plot.Panel([*lines.items()], {**TIME, "title": title})


def _slug(family: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")


if __name__ == "__main__":
    start(main)
