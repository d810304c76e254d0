"""The ``fairseq-bnce`` command: a sub-command for making data, and for each use of a model.

A sub-command is a module of this package with ``add_arguments(parser)`` and ``run(options)``. This
module imports neither torch nor fairseq. Sub-commands that need them import them.
"""

import argparse
import contextlib
import decimal
import importlib
import logging
import os
import re
import signal
import sys
from typing import Optional, Sequence

from fairseq_bnce import __version__
from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError, one_line

# Modules of this package; only the one of the given command is imported.
COMMANDS = {
    "get-data": "prepare the data of a well-known corpus, from its archive",
    "prepare-text": "prepare binarised data for fairseq-train, from text files",
    "score": "print log-probabilities of plain text",
    "rescore": "add language model scores to n-best lists, and tune weights on them",
    "complete": "complete sentences: choose the word that fits the gap",
    "diagnose": "measure how well a model normalises itself on a text",
    "extend-vocabulary": "append words to a trained model",
}
BAD_INPUT = 2
_SIGNALLED = 128  # plus the signal's number: an exit status, as in a shell
# The flags of arguments that a ScoringError names.
_FLAGS = {"context_window": "--context-window", "shift": "--log-z-shift", "document": "--document"}
_FLAGS.update(weights="--mix-weight", models="--mix-with", path="--path", data="--data")
_FLAGS.update(device="--device")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line; the process's own by default.

    Returns:
        The exit status: 0, 2 for bad input, 130 after Ctrl-C, 141 after a broken pipe. SIGTERM and
        SIGHUP exit with 143 and 129.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    form = "fairseq-bnce: %(message)s"
    logging.basicConfig(stream=sys.stderr, format=form, level="WARNING", force=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _exit)
    try:
        options = _parser(arguments[0] if arguments else "").parse_args([*map(_plain, arguments)])
        options.run(options)
        print(end="", flush=True)  # reports a broken pipe here, and not while the interpreter ends
        return 0
    except KeyboardInterrupt:
        return _SIGNALLED + signal.SIGINT
    except BrokenPipeError:
        # The interpreter flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGNALLED + signal.SIGPIPE
    except ModuleNotFoundError as error:
        got = f"got {sys.executable} without it: see Install in README.md"
        message = f"required the package {error.name}, {got}"
        return _print_error(error.msg if "pip install" in error.msg else message)
    except ScoringError as error:
        error.argument = _FLAGS.get(error.argument, error.argument)
        return _print_error(str(error))
    except (InputError, UnsupportedModelError, OSError) as error:  # other errors are bugs
        return _print_error(str(error))


def _parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser, with the options of the chosen sub-command only."""
    parser = argparse.ArgumentParser(
        prog="fairseq-bnce",
        description="Make data for language models, and use models trained with fairseq_bnce.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, summary in COMMANDS.items():
        own = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            module = importlib.import_module(f"fairseq_bnce.cli.{name.replace('-', '_')}")
            own.description = module.__doc__
            module.add_arguments(own)
            own.set_defaults(run=module.run)
    return parser


def _plain(argument: str) -> str:
    """Return a negative number without its exponent: before Python 3.14, argparse knows none."""
    with contextlib.suppress(decimal.InvalidOperation):
        if re.match(r"-\.?\d", argument):
            return format(decimal.Decimal(argument), "f")
    return argument


def _exit(number: int, _: object) -> None:
    """Exit on a signal, so that scratch folders and child processes are removed."""
    signal.signal(number, signal.SIG_IGN)  # coreutils' timeout sends SIGTERM twice
    sys.exit(_SIGNALLED + number)


def _print_error(message: str) -> int:
    print(f"fairseq-bnce: error: {one_line(message)}", file=sys.stderr)
    return BAD_INPUT
