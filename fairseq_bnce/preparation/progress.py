"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

from tqdm import tqdm


def progress_bar(label: str, total: int | None) -> tqdm:
    """A bar over ``total`` bytes; None: it counts without an end."""
    return tqdm(total=total, desc=label, unit="B", unit_scale=True, disable=None)
