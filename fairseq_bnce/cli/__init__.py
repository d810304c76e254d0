"""The ``fairseq-bnce`` command: a sub-command for making data, and for each use of a model.

Nothing here imports torch or fairseq: a sub-command that needs them does.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import time
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.cli.requirements import missing_package
from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError, one_line
from fairseq_bnce.text.numerals import NEGATIVE
from fairseq_bnce.text.output import discard_stdout, kept, write_error
from fairseq_bnce.version import __version__

# The modules of this package, imported when their command is given.
COMMANDS = {
    "get-data": "the data of a well-known corpus, from its archive",
    "prepare-text": "binarised data for fairseq-train, from text files",
    "score": "log-probabilities of plain text",
    "rescore": "language model scores for n-best lists, and weights tuned on them",
    "complete": "sentence completion: which word fits the gap",
    "diagnose": "how well a model normalises itself on a text",
}
BAD_INPUT = 2
# What the user has to mend; anything else is a bug with a trace.
USER_ERRORS = (InputError, ScoringError, UnsupportedModelError)
# What the command line calls the arguments that a ScoringError names.
_FLAGS = {
    "shift": "--log-z-shift",
    "exact=True": "--exact",
    "rows": "--reduced-partition",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("path", "data", "device", "batch_tokens", "context_window", "document")
    },
}
# Where a message begins, or one of several; "exact=True" also inside.
_ARGUMENT = re.compile(rf"(?:(?<!.)|(?<=; ))(?:{'|'.join(_FLAGS)})(?=[: ])|exact=True")
SIGNALLED = 128  # as the shell has it: with the signal's number added
INTERRUPTED, BROKEN_PIPE = SIGNALLED + signal.SIGINT, SIGNALLED + signal.SIGPIPE
TIDYING = 2  # seconds in which a second SIGTERM is ignored: coreutils' timeout sends two


class _Terminated(BaseException):
    """By a SIGTERM, or a SIGHUP; the signal's number is its argument."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line, by default the process's own.

    Returns:
        The exit status: that of the sub-command, 2 for bad input and a full disk, 130 after
        Ctrl-C, 141 where nobody reads what is written, 143 after a SIGTERM, 129 after a SIGHUP.
    """
    try:
        with _flushed_output():
            return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except _Terminated as end:
        return SIGNALLED + end.args[0]
    except BrokenPipeError:
        return BROKEN_PIPE
    except InputError as error:  # of the flush
        return _told(error)


def _run(arguments: List[str]) -> int:
    try:
        # Before the parser, whose --help may write into a closed pipe, too.
        parser = _parser(arguments[0] if arguments else "")
        _check_values(parser, arguments)
        options = parser.parse_args(arguments)
        form = "fairseq-bnce: %(message)s"
        logging.basicConfig(stream=sys.stderr, format=form, level="WARNING", force=True)
        with _ended_in_order():
            return options.run(options)
    except ModuleNotFoundError as error:
        return _told(missing_package(error))
    except USER_ERRORS as error:
        return _told(error)


def _parser(chosen: str) -> argparse.ArgumentParser:
    """With the options of the chosen sub-command; the others are names alone."""
    parser = argparse.ArgumentParser(
        prog="fairseq-bnce",
        description="Make data for language models, and use those trained with fairseq_bnce.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, summary in COMMANDS.items():
        own = commands.add_parser(name, help=summary, formatter_class=_HelpFormatter)
        own._negative_number_matcher = NEGATIVE
        if name == chosen:
            with _ended_at_once():
                module = importlib.import_module(f"fairseq_bnce.cli.{name.replace('-', '_')}")
            own.description = module.__doc__
            module.add_arguments(own)
            own.set_defaults(run=module.run)
    return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Paragraphs of a description as wide as the terminal; what is indented stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = [
            part if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width)
            for part in text.strip("\n").split("\n\n")
        ]
        return textwrap.indent("\n\n".join(filled), indent)


@contextlib.contextmanager
def _ended_at_once() -> Iterator[None]:
    """In here Ctrl-C ends the process quietly: torch, being imported, makes a RuntimeError of it.

    Where it is ignored, as in the background, or handled otherwise, that stays so.
    """
    with _handled(signal.SIGINT, signal.default_int_handler, lambda *_: os._exit(INTERRUPTED)):
        yield


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """In here SIGTERM is an exception: scratch folders and child processes go with this one.

    And so is SIGHUP, of a terminal that goes away, unless it is ignored, as under nohup.
    """
    received: List[Tuple[float, int]] = []  # when, and which

    def end(number: int, _: Any) -> None:
        now = time.monotonic()
        if not received or now - received[-1][0] > TIDYING:
            received.append((now, number))
            raise _Terminated(number)

    usual = signal.SIG_DFL
    with _handled(signal.SIGTERM, usual, end), _handled(signal.SIGHUP, usual, end):
        try:
            yield
        except Exception:
            if received:  # torch, being imported, makes another error of it
                raise _Terminated(received[-1][1]) from None
            raise


@contextlib.contextmanager
def _handled(number: int, usual: Any, handler: Any) -> Iterator[None]:
    """A signal handled so in the main thread, where it was handled as usual until now."""
    before = signal.getsignal(number)
    if threading.current_thread() is not threading.main_thread() or before is not usual:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _check_values(parser: argparse.ArgumentParser, arguments: List[str]) -> None:
    """Before Python 3.13, argparse takes ``--flag=--`` for an empty list, whatever its type."""
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if flag.startswith("--") and value == "--":
            parser.error(f"argument {flag}: required a value, got '--'")


def _told(error: Exception) -> int:
    """Say on one line what is wrong, and where what was done before it is."""
    message = str(error)
    if isinstance(error, ScoringError):
        message = _ARGUMENT.sub(lambda found: _FLAGS[found.group()], message)
    message = one_line(message)
    if kept(error):
        message += f" (what was done before it is in {' and '.join(kept(error))})"
    with contextlib.suppress(OSError):  # where nobody can be told
        print(f"fairseq-bnce: error: {message}", file=sys.stderr)
    return BAD_INPUT


@contextlib.contextmanager
def _flushed_output() -> Iterator[None]:
    """Standard output written while it can be told if that fails, not by the interpreter's end."""
    try:
        yield
    finally:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            discard_stdout()
            raise write_error(None, error) from None
