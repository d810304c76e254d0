"""What the experiments' command lines share."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .processes import CommandFailed

_BROKEN_PIPE = 141  # as the shell has it: 128 + the signal


class UsageError(ValueError):
    """What the caller asked for can't be done; the message says why."""


class HelpFormatter(argparse.HelpFormatter):
    """A description's paragraphs as wide as the terminal; its examples, indented, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip().split("\n\n")
        return "\n\n".join(part if part[0] == " " else textwrap.fill(part, width) for part in parts)


def parser(description: str, **out: Any) -> argparse.ArgumentParser:
    """With the flags of every experiment; ``out``: what ``--out`` is, if it is not required."""
    made = argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)
    add, about = made.add_argument, "folder for results and logs"
    add("--out", type=Path, help=about, **(out or {"required": True}))
    add("--threads", type=positive, default=1, help="OMP_NUM_THREADS (default: %(default)s)")
    return made


def add_device(to: argparse.ArgumentParser) -> None:
    """``--device``, which run.find_device reads."""
    to.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")


def start(main: Callable[[Sequence[str]], int]) -> None:
    """End this process with the status of ``main``; a SIGTERM leaves no child behind.

    Where nobody reads what is written any more, as under ``| head``, it is 141, quietly.
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
    """What ``do`` returns; 2, with a message, for what can't be done, 130 if interrupted."""
    name = Path(sys.argv[0]).name
    try:
        return do()
    except (UsageError, CommandFailed) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


def split(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """What is ours, and what after a lone ``--`` is fairseq-train's."""
    arguments = list(arguments)
    here = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:here], arguments[here + 1 :]


def at_least(least: int) -> Callable[[str], int]:
    """For argparse: an integer from ``least`` on."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"required at least {least}, got {value}")
        return value

    return parse


positive = at_least(1)


def each_once(flag: str, values: Sequence[object], what: str = "each") -> None:
    """Raise UsageError for a value that is there twice."""
    if len(set(values)) < len(values):
        raise UsageError(f"{flag}: required {what} once, got {values}")


def add_questions(to: argparse.ArgumentParser) -> None:
    """``--questions`` and ``--answers``."""
    about = "sentence completion, for its accuracy, too"
    to.add_argument("--questions", type=Path, metavar="CSV", help=about)
    to.add_argument("--answers", type=Path, metavar="CSV", help="the right ones")


def questions(options: argparse.Namespace) -> Optional[Tuple[Path, Path]]:
    """The tables of ``--questions`` and ``--answers``; None for none.

    Raises:
        UsageError: for one without the other, or no file.
    """
    asked, answers = options.questions, options.answers
    if asked is None and answers is None:
        return None
    for flag, path in (("--questions", asked), ("--answers", answers)):
        if path is None or not path.is_file():
            raise UsageError(f"{flag}: required a table (CSV), with the other one; got {path}")
    return asked.resolve(), answers.resolve()
