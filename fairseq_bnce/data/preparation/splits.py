"""The lines of one text, shared out to train, valid and test."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import IO, Iterable, Iterator, Mapping

SPLITS = ("train", "valid", "test")


def split_sizes(total: int, proportions: Mapping[str, float]) -> dict[str, int]:
    """``total`` lines shared out: the largest remainders get the lines left by rounding."""
    whole = sum(proportions.values())  # about 1: of millions of lines the difference is some
    exact = {split: total * share / whole for split, share in proportions.items()}
    sizes = {split: int(value) for split, value in exact.items()}
    by_remainder = sorted(exact, key=lambda split: sizes[split] - exact[split])
    for split in by_remainder[: total - sum(sizes.values())]:
        sizes[split] += 1
    return sizes


def units(lines: Iterable[str], split_by: str) -> Iterator[list[str]]:
    """What stays together: single lines, or paragraphs with the empty line that ends them."""
    unit: list[str] = []
    for line in lines:
        unit.append(line)
        if split_by != "paragraph" or line == "\n":
            yield unit
            unit = []
    if unit:
        yield unit


def choose_split(left: Mapping[str, int], rng: random.Random | None) -> str:
    """The split of the next unit: the first with room, or one at random by the room left."""
    if rng is None:
        return next(split for split, room in left.items() if room > 0)
    return rng.choices(list(left), [max(0, room) for room in left.values()])[0]


def share_out(
    source: Path,
    targets: Mapping[str, Path],
    sizes: Mapping[str, int],
    *,
    split_by: str,
    seed: int,
    keep_empty: bool,
) -> None:
    """Copy every line of ``source`` into one of the targets, in one pass and in order.

    Drawing each unit with the room that its split has left gives the sizes exactly
    (to a paragraph) without shuffling anything in memory.
    """
    left = dict(sizes)
    rng = None if split_by == "block" else random.Random(seed)
    with contextlib.ExitStack() as stack, source.open(encoding="utf-8", newline="\n") as lines:
        files: dict[str, IO[str]] = {
            split: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            for split, path in targets.items()
        }
        for unit in units(lines, split_by):
            kept = [line for line in unit if keep_empty or line != "\n"]
            if kept:
                split = choose_split(left, rng)
                files[split].writelines(kept)
                left[split] -= len(kept)
