#!/usr/bin/env python3
"""Draw docs/results/frontier/*.png from all committed JSON of results.

    frontier.py            # draw the pictures whose numbers have changed
    frontier.py --check    # only name these pictures (exit status 1 if any)

FAMILY.png has exact perplexity against σ_z, with the paper's own numbers as rings;
FAMILY-time.png validation perplexity against processor time. rendering/frontier.py says which
systems they have. A picture's metadata has a digest of what it was drawn from. It needs matplotlib.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, List, Sequence

from experiments import plot
from experiments.command import HelpFormatter, start
from rendering import frontier
from rendering.frontier import System

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
SPREAD = {"xlabel": "σ_z (nats)", "ylabel": "exact perplexity"}
TIME = {"xlabel": "processor seconds", "ylabel": "validation perplexity", "yscale": "log"}


@dataclass(frozen=True)
class Picture:
    """A file, its content, and the function that draws it and says what it did."""

    name: str
    shown: Any
    draw: Callable[[Path, str], str]

    @property
    def digest(self) -> str:
        text = json.dumps(self.shown, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[: plot.DIGEST]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 with --check if a picture differs from the files."""
    chosen = _parser().parse_args(arguments)
    folder, expected = chosen.docs / "frontier", pictures(chosen.docs)
    stale = [one for one in expected if plot.source_of(folder / one.name) != one.digest]
    names = {one.name for one in expected}
    lost = [path for path in sorted(folder.glob("*.png")) if path.name not in names]
    for path in lost:
        print(f"{path.name}: of results that are gone")
    for one in stale:
        print(f"{one.name}: to draw" if chosen.check else one.draw(folder / one.name, one.digest))
    return 1 if chosen.check and (stale or lost) else 0


def pictures(docs: Path) -> List[Picture]:
    """Return all pictures of docs/results/frontier."""
    contents = [json.loads(path.read_text("utf-8")) for path in sorted(docs.rglob("*.json"))]
    found = [_spread(*one) for one in frontier.families(contents).items()]
    return [*found, *(_time(*one) for one in frontier.curves(contents).items() if one[1])]


def _spread(family: str, groups: Any) -> Picture:
    drawn = [_cloud(group, systems) for group, systems in groups.items()]
    axes = {**SPREAD, "title": family}
    shown = [axes, *map(asdict, drawn)]
    name = f"{_slug(family)}.png"
    return Picture(name, shown, lambda path, digest: plot.clouds(drawn, axes, path, digest))


def _cloud(group: str, systems: Sequence[System]) -> plot.Cloud:
    ours, papers = (
        [(*one.place, one.label) for one in systems if bool(one.runs) is is_own]
        for is_own in (True, False)
    )
    return plot.Cloud(group, ours, frontier.front([(x, y) for x, y, _ in ours]), papers)


def _time(family: str, groups: Any) -> Picture:
    panels = [
        plot.Panel(list(methods.items()), {**TIME, "title": group})
        for group, methods in groups.items()
    ]

    def draw(path: Path, digest: str) -> str:
        return plot.lines(panels, family, path, digest)

    return Picture(f"{_slug(family)}-time.png", list(map(asdict, panels)), draw)


def _slug(family: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, name what is to draw")
    parser.add_argument("--docs", type=Path, default=DOCS, help="default: this checkout's")
    return parser


if __name__ == "__main__":
    start(main)
