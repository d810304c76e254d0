"""The ``fairseq-bnce`` command: a sub-command for making data, and for each use of a model.

This module imports neither torch nor fairseq. Sub-commands that need them import them.
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
from typing import Any, Iterator, List, Optional, Sequence

from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError, one_line
from fairseq_bnce.text.numerals import NEGATIVE
from fairseq_bnce.text.writing import STDOUT, write_errors
from fairseq_bnce.version import __version__

# Modules of this package; only the one of the given command is imported.
COMMANDS = {
    "get-data": "the data of a well-known corpus, from its archive",
    "prepare-text": "binarised data for fairseq-train, from text files",
    "score": "log-probabilities of plain text",
    "rescore": "language model scores for n-best lists, and weights tuned on them",
    "complete": "sentence completion: which word fits the gap",
    "diagnose": "how well a model normalises itself on a text",
}
BAD_INPUT = 2
# Errors that the user can fix; any other error is a bug and shows its trace.
USER_ERRORS = (InputError, ScoringError, UnsupportedModelError, OSError)
# Flags by the names of the arguments that a ScoringError names.
_FLAGS = {
    "shift": "--log-z-shift",
    "exact=True": "--exact",
    "rows": "--reduced-partition",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("path", "data", "device", "batch_tokens", "context_window", "document")
    },
}
# An argument at the start of a message, or after "; "; "exact=True" also inside.
_ARGUMENT = re.compile(rf"(?:(?<!.)|(?<=; ))(?:{'|'.join(_FLAGS)})(?=[: ])|exact=True")
_SIGNALLED = 128  # plus the signal's number: an exit status, as in a shell
_INTERRUPTED = _SIGNALLED + signal.SIGINT
_WITH_FAIRSEQ = ("torch", "numpy", "fairseq", "fairseq_cli", "hydra", "omegaconf")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line; the process's own by default.

    Returns:
        The exit status: the sub-command's, 2 for bad input, 130 after Ctrl-C, 141 after a broken
        pipe. SIGTERM and SIGHUP exit with 143 and 129.
    """
    try:
        with _flushed_stdout():
            return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _SIGNALLED + signal.SIGPIPE
    except ModuleNotFoundError as error:
        return _print_error(_missing_package(error))
    except USER_ERRORS as error:
        return _print_error(error)


def _run(arguments: List[str]) -> int:
    options = _parser(arguments[0] if arguments else "").parse_args(arguments)
    form = "fairseq-bnce: %(message)s"
    logging.basicConfig(stream=sys.stderr, format=form, level="WARNING", force=True)
    with _exit_on(signal.SIGTERM), _exit_on(signal.SIGHUP):
        return options.run(options)


def _parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser, with the options of the chosen sub-command only."""
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
            # torch turns a KeyboardInterrupt during its import into a RuntimeError.
            with _handled(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED)):
                module = importlib.import_module(f"fairseq_bnce.cli.{name.replace('-', '_')}")
            own.description = module.__doc__
            module.add_arguments(own)
            own.set_defaults(run=module.run)
    return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs of a description to the terminal's width; indented ones stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = [
            part if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width)
            for part in text.strip("\n").split("\n\n")
        ]
        return textwrap.indent("\n\n".join(filled), indent)


def _exit_on(number: int) -> Any:
    """Raise SystemExit on a signal, so that scratch folders and child processes are removed."""

    def end(*_: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # coreutils' timeout sends SIGTERM twice
        sys.exit(_SIGNALLED + number)

    return _handled(number, end)


@contextlib.contextmanager
def _handled(number: int, handler: Any) -> Iterator[None]:
    """Handle a signal in the main thread, unless it is ignored or handled already."""
    before = signal.getsignal(number)
    usual = (signal.SIG_DFL, signal.default_int_handler)
    if threading.current_thread() is not threading.main_thread() or before not in usual:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _missing_package(error: ModuleNotFoundError) -> InputError:
    """Return an error that says what to install; raise ``error`` if a module of ours is missing."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "fairseq_bnce"):
        raise error
    remedy = f"{sys.executable} -m pip install {package}"
    if package in _WITH_FAIRSEQ:
        remedy = (
            "scripts/setup_env.sh makes an environment with torch and fairseq in a checkout, and "
            "README.md, Install, says how to have them in another"
        )
    return InputError(f"required the package {package}, got {sys.executable} without it: {remedy}")


def _print_error(error: Exception) -> int:
    message = str(error)
    if isinstance(error, ScoringError):
        message = _ARGUMENT.sub(lambda found: _FLAGS[found.group()], message)
    print(f"fairseq-bnce: error: {one_line(message)}", file=sys.stderr)
    return BAD_INPUT


@contextlib.contextmanager
def _flushed_stdout() -> Iterator[None]:
    """Write standard output out before the interpreter ends, so that a failure is reported."""
    try:
        yield
    finally:
        if sys.stdout is not None:
            with write_errors(STDOUT):
                sys.stdout.flush()
