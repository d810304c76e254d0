"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

from tqdm import tqdm


def progress_bar(label: str, total: int | None = None, unit: str = "B", initial: int = 0) -> tqdm:
    """A bar over ``total`` bytes (B) or others; None: it counts without an end."""
    return tqdm(total=total, desc=label, unit=unit, initial=initial, unit_scale=True, disable=None)
