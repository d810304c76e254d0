"""What the sub-commands share: the options of a model, and how things are said.

A sub-command is a module of this package with ``add_arguments(parser)`` and ``run(options) ->
int``, the exit status. To tell of bad input it raises :class:`InputError`; Ctrl-C and broken
pipes are :func:`fairseq_bnce.cli.main`'s.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
)

import torch

from fairseq_bnce.errors import InputError, quoted, told
from fairseq_bnce.text.lines import STDIN
from fairseq_bnce.text.numerals import at_least, decimal
from fairseq_bnce.text.output import is_special, part_of
from fairseq_bnce.text.stream import TextLines

if TYPE_CHECKING:
    from fairseq_bnce.scoring import Scorer

AnyScorer = TypeVar("AnyScorer", bound="Scorer")
MOST_THREADS = 1024
MOST_NATS = 1e6  # a shift of more would leave no digit of a float32 score


def add_model_options(
    parser: argparse.ArgumentParser, ways: bool = True, required: bool = True
) -> None:
    """What says which model it is, where it scores, and in which of two ways.

    Args:
        ways: whether there is a choice, --exact and --log-z-shift.
        required: whether there has to be a --path.
    """
    group = parser.add_argument_group("model")
    add = group.add_argument
    add("--path", required=required, metavar="CKPT", help="checkpoint of a language model")
    add(
        "--data",
        metavar="DIR",
        help="folder with its dict.txt (default: its own, or the one it was trained on)",
    )
    add(
        "--user-dir",
        metavar="DIR",
        help="folder of Python code that registers the model's architecture, as fairseq-train has "
        "it; it is run",
    )
    if ways:
        _add_ways(add)
    add("--device", default="cpu", help="cpu (default), cuda, cuda:1, ...")
    half = group.add_mutually_exclusive_group()
    half.add_argument("--fp16", action="store_true", help="the model in float16, scores in float32")
    half.add_argument("--bf16", action="store_true", help="the model in bfloat16")
    add(
        "--batch-tokens",
        type=at_least(1),
        metavar="N",
        help="words scored in one batch, padding counted in",
    )
    add(
        "--threads",
        type=at_least(1, MOST_THREADS),
        metavar="N",
        help="of torch on the CPU (default: OMP_NUM_THREADS, or as many as there are cores); 1 "
        "where other work runs beside it",
    )


def _add_ways(add: Any) -> None:
    add(
        "--exact",
        action="store_true",
        help="log-probabilities of the softmax, never above 0; by default scores are m - log Z - "
        "shift, without any work over the vocabulary, for models trained to normalise themselves",
    )
    add(
        "--log-z-shift",
        default="checkpoint",
        metavar="SHIFT",
        help="nats taken off every unnormalised score besides log Z: mu_z of the checkpoint's "
        "validation ('checkpoint', the default), nothing ('none'), or a number",
    )


def refuse_empty(options: argparse.Namespace, *names: str) -> None:
    """Raise InputError for an option of no text, as a shell's variable that is not set gives."""
    for name in names:
        if getattr(options, name) == "":
            raise InputError(f"--{name.replace('_', '-')}: required a value, got an empty one")


def model_files(path: str, data: Optional[str]) -> List[Tuple[str, str]]:
    """(flag, name) of a model's files, for :func:`refuse_overwriting`."""
    folder, flag = (os.path.dirname(path), "--path") if data is None else (data, "--data")
    return [("--path", path), (flag, os.path.join(folder, "dict.txt"))]


def refuse_overwriting(
    outputs: Mapping[str, Optional[str]], inputs: Iterable[Tuple[str, Optional[str]]]
) -> None:
    """Check that no output is an input or another output, by whatever name.

    An output's ``FILE.part`` is not another file either. Devices and pipes may be shared.

    Args:
        outputs: names by their flags; None for none.
        inputs: flags and names; None for none.

    Raises:
        InputError: naming both flags.
    """
    used = {_place(name): flag for flag, name in inputs if _is_file(name)}
    for flag, name in outputs.items():
        if name == STDIN or _is_file(name):
            other = used.setdefault(_place(name), flag)
            if other != flag:
                got = name if name == STDIN else os.path.realpath(str(name))
                raise InputError(f"{flag}: required another file than that of {other}, got {got}")
    for flag, name in outputs.items():
        if _is_file(name):
            part = part_of(os.path.realpath(str(name)))
            other = used.get(_place(part), flag)
            if other != flag:
                raise InputError(
                    f"{other}: required another file than {part}, which is that of {flag} until it "
                    "is whole"
                )


def _is_file(name: Optional[str]) -> bool:
    return name not in (None, STDIN) and not is_special(str(name))


def _place(name: Optional[str]) -> Any:
    """What all names of a file have in common."""
    if name in (None, STDIN):
        return name
    try:
        found = os.stat(str(name))
    except OSError:
        return os.path.realpath(str(name))
    return found.st_dev, found.st_ino


def load_scorer(kind: Type[AnyScorer], options: argparse.Namespace, **kwargs: Any) -> AnyScorer:
    """The model of :func:`add_model_options`.

    Args:
        kind: the class.
        options: of the command line.
        **kwargs: of :meth:`Scorer.from_checkpoint`, before what the command line says.

    Raises:
        CheckpointError, InputError, ScoringError: which :func:`fairseq_bnce.cli.main` prints.
    """
    refuse_empty(options, "path", "data", "user_dir")
    if "exact" in options:
        if options.exact and options.log_z_shift != "checkpoint":
            note("--log-z-shift: not used with --exact")
        kwargs = {"exact": options.exact, "shift": _shift(options.log_z_shift), **kwargs}
    if options.batch_tokens is not None:
        kwargs["batch_tokens"] = options.batch_tokens
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.user_dir is not None:
        _import_user_dir(options)
    # cuDNN's recurrent layers and convolutions would round their factors to TF32.
    torch.backends.cudnn.allow_tf32 = False
    dtype = _dtype(options)
    return kind.from_checkpoint(
        options.path, options.data, device=options.device, dtype=dtype, **kwargs
    )


def _import_user_dir(options: argparse.Namespace) -> None:
    from fairseq import utils

    try:
        utils.import_user_module(options)
    except FileNotFoundError as error:
        if error.errno is not None:  # of a file that the user's own code opens
            raise
        raise InputError(f"--user-dir: required a folder, got {quoted(options.user_dir)}") from None
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            raise
        raise InputError(f"--user-dir: required code to import, got {told(error)}") from None


def add_files(parser: argparse.ArgumentParser) -> None:
    """FILE...: for :class:`TextLines`."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="UTF-8 text; standard input by default, and for -"
    )


def note_bad_lines(text: TextLines) -> None:
    """Say how many lines were not UTF-8, or are no lines to other programs, if any."""
    if text.lone_returns:
        note(
            f"{text.lone_returns:,} line(s) end at a carriage return alone, as fairseq-preprocess "
            "cuts them"
        )
    if text.bad_lines:
        note(f"{text.bad_lines:,} line(s) were not UTF-8: U+FFFD stands for what was none")


def note(message: str) -> None:
    """Say something on stderr that is no error."""
    with contextlib.suppress(OSError):  # a full disk under it is no reason to stop
        print(f"fairseq-bnce: {message}", file=sys.stderr, flush=True)


def without_nan(numbers: Dict[str, Any]) -> Dict[str, Any]:
    """For JSON, which has no NaN and no infinity: null in their place."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in numbers.items()
    }


def progress_bar(is_wanted: bool = True, **kwargs: Any) -> Any:
    """A tqdm bar on stderr where that is a terminal; elsewhere, or not wanted, a silent one."""
    from tqdm import tqdm

    return tqdm(disable=None if is_wanted else True, file=sys.stderr, **kwargs)


def _dtype(options: argparse.Namespace) -> torch.dtype:
    if options.fp16:
        return torch.float16
    return torch.bfloat16 if options.bf16 else torch.float32


def _shift(text: str) -> Union[str, float]:
    """A number where it is one; the scorer refuses other words, and what is not finite."""
    number = decimal(text)
    if number is not None and MOST_NATS < abs(number) < math.inf:
        raise InputError(
            f"--log-z-shift: required at most {MOST_NATS:,.0f} nats, got {quoted(text)}"
        )
    return text if number is None else number
