"""What the command lines of compare.py and recipe.py share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from .recipes import UsageError


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


def questions(asked: Optional[Path], answers: Optional[Path]) -> Optional[Tuple[Path, Path]]:
    """The tables of ``--questions`` and ``--answers``; None for none.

    Raises:
        UsageError: for one without the other, or no file.
    """
    if asked is None and answers is None:
        return None
    for flag, path in (("--questions", asked), ("--answers", answers)):
        if path is None or not path.is_file():
            raise UsageError(f"{flag}: required a table (CSV), with the other one; got {path}")
    return asked.resolve(), answers.resolve()
