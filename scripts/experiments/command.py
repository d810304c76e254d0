"""What the command lines of the scripts share."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

from .processes import CommandFailed


class UsageError(ValueError):
    """A request that can't be fulfilled; the message says why."""


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Show defaults; fill the description's paragraphs, and leave indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        fill = super(argparse.RawDescriptionHelpFormatter, self)._fill_text
        return "\n\n".join(
            one if one.startswith(" ") else fill(one, width, indent) for one in paragraphs
        )


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of every experiment, ``--device`` too: see add_common."""
    made = argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)
    add_common(made, has_device=True)
    return made


def add_common(
    parser: argparse.ArgumentParser, has_device: bool, out: Optional[Path] = None
) -> None:
    """Add the flags of every experiment.

    Args:
        has_device: whether there is ``--device``, which run.prepare reads.
        out: the default of ``--out``; without one it is required.
    """
    add = parser.add_argument
    about = "folder for results and logs"
    add("--out", type=Path, default=out, required=out is None, help=about)
    add("--threads", type=int, default=1, help="OMP_NUM_THREADS")
    if has_device:
        add("--device", choices=("cpu", "cuda"), help="None: cuda where there is a GPU")


def start(main: Callable[[Sequence[str]], int]) -> None:
    """Exit with the status of ``main``: 2 after an error, with a message; 130 if interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the children, too
    name = Path(sys.argv[0]).name
    try:
        sys.exit(main(sys.argv[1:]))
    except (UsageError, CommandFailed, FileNotFoundError, ImportError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(130)


def say(message: str) -> None:
    """Report progress, on stderr."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)
