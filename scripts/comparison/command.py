"""What the command lines of compare.py and recipe.py share."""

from __future__ import annotations

import argparse
from typing import List, Sequence, Tuple


def split(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """What is ours, and what after a lone ``--`` is fairseq-train's."""
    arguments = list(arguments)
    here = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:here], arguments[here + 1 :]


def positive(text: str) -> int:
    """For argparse: an integer from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"required at least 1, got {value}")
    return value
