"""What the command lines of the experiments share."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .processes import CommandFailed

_BROKEN_PIPE = 141  # as in a shell: 128 + the signal


class UsageError(ValueError):
    """A request that can't be fulfilled; the message says why."""


class HelpFormatter(argparse.HelpFormatter):
    """Fill the paragraphs of a description; leave its indented examples unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip().split("\n\n")
        return "\n\n".join(part if part[0] == " " else textwrap.fill(part, width) for part in parts)


def parser(description: str, has_device: bool = False, **out: Any) -> argparse.ArgumentParser:
    """Return a parser with the flags of every experiment.

    Args:
        has_device: whether there is ``--device``, which run.prepare reads.
        out: argparse's arguments for ``--out``, which is required by default.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)
    add, about = made.add_argument, "folder for results and logs"
    add("--out", type=Path, help=about, **(out or {"required": True}))
    add("--threads", type=positive, default=1, help="OMP_NUM_THREADS (default: %(default)s)")
    if has_device:
        add("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    return made


def start(main: Callable[[Sequence[str]], int]) -> None:
    """Run ``main`` and exit with its status.

    A SIGTERM stops the children, too. The status is 141 where the reader of the output is gone, as
    under ``| head``.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        try:
            sys.exit(main(sys.argv[1:]))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        sys.exit(_BROKEN_PIPE)


def status(do: Callable[[], int]) -> int:
    """Return what ``do`` returns; 2, with a message, after an error, 130 after an interruption."""
    name = Path(sys.argv[0]).name
    try:
        return do()
    except (UsageError, CommandFailed, FileNotFoundError, ImportError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command resumes", file=sys.stderr)
        return 130


def say(message: str) -> None:
    """Report progress, on stderr."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


def split(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Split a command line at a lone ``--``: our own flags, and those of fairseq-train."""
    arguments = list(arguments)
    here = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:here], arguments[here + 1 :]


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: an integer from ``least`` on."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {value}")
        return value

    return parse


positive = at_least(1)


def add_questions(to: argparse.ArgumentParser) -> None:
    """Add ``--questions`` and ``--answers``."""
    about = "sentence completion: measure its accuracy, too"
    to.add_argument("--questions", type=Path, metavar="CSV", help=about)
    to.add_argument("--answers", type=Path, metavar="CSV", help="the right answers")


def questions(options: argparse.Namespace) -> Optional[Tuple[Path, Path]]:
    """Return the files of ``--questions`` and ``--answers``, or None.

    Raises:
        UsageError: for one flag without the other.
        FileNotFoundError: for a file that does not exist.
    """
    both = options.questions, options.answers
    if both == (None, None):
        return None
    if None in both:
        raise UsageError("--questions, --answers: required both, got one")
    return both[0].resolve(strict=True), both[1].resolve(strict=True)
