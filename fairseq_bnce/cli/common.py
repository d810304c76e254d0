"""What the sub-commands share: a model's options, checks of outputs, notes and progress.

A sub-command is a module of this package with ``add_arguments(parser)`` and ``run(options)``,
which returns the exit status and raises :class:`InputError` for bad input.
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
)

import torch

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.numerals import at_least
from fairseq_bnce.text.reading import STDIN, TextLines
from fairseq_bnce.text.writing import is_special, part_of

if TYPE_CHECKING:
    from fairseq_bnce.scoring import Scorer

AnyScorer = TypeVar("AnyScorer", bound="Scorer")


def add_model_options(
    parser: argparse.ArgumentParser, ways: bool = True, required: bool = True
) -> None:
    """Add the options of a model and of its scores.

    Args:
        parser: of a sub-command.
        ways: whether to add --exact and --log-z-shift.
        required: whether --path is required.
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
        type=at_least(1),
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


def model_files(path: str, data: Optional[str]) -> List[Tuple[str, str]]:
    """Return (flag, name) of a model's files, for :func:`refuse_overwriting`."""
    folder, flag = (os.path.dirname(path), "--path") if data is None else (data, "--data")
    return [("--path", path), (flag, os.path.join(folder, "dict.txt"))]


def refuse_overwriting(
    outputs: Mapping[str, Optional[str]], inputs: Iterable[Tuple[str, Optional[str]]]
) -> None:
    """Check that no output, nor its ``FILE.part``, is an input or another output.

    Names are compared by the files that they stand for. Devices and pipes may be shared.

    Args:
        outputs: names by their flags; None for no output.
        inputs: flags and names; None for no input.

    Raises:
        InputError: naming both flags.
    """
    used = {_identity(name): flag for flag, name in inputs if _is_file(name)}
    given = [(flag, str(name)) for flag, name in outputs.items() if name == STDIN or _is_file(name)]
    parts = [(f, part_of(os.path.realpath(name))) for f, name in given if name != STDIN]
    for flag, name in [*given, *parts]:
        other = used.setdefault(_identity(name), flag)
        if other != flag:
            raise InputError(f"{flag}: required another file than that of {other}, got {name}")


def _is_file(name: Optional[str]) -> bool:
    return name not in (None, STDIN) and not is_special(str(name))


def _identity(name: Optional[str]) -> Any:
    """Return a key that all names of a file share."""
    if name == STDIN:
        return name
    try:
        found = os.stat(str(name))
    except OSError:
        return os.path.realpath(str(name))
    return found.st_dev, found.st_ino


def load_scorer(kind: Type[AnyScorer], options: argparse.Namespace, **kwargs: Any) -> AnyScorer:
    """Load the model of :func:`add_model_options`.

    Args:
        kind: the class of the scorer.
        options: of the command line.
        **kwargs: of :meth:`Scorer.from_checkpoint`; they win over the command line.
    """
    if "exact" in options:
        if options.exact and options.log_z_shift != "checkpoint":
            note("--log-z-shift: not used with --exact")
        kwargs = {"exact": options.exact, "shift": options.log_z_shift, **kwargs}
    if options.batch_tokens is not None:
        kwargs["batch_tokens"] = options.batch_tokens
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.user_dir is not None:
        _import_user_dir(options)
    # cuDNN's recurrent layers and convolutions would round their factors to TF32.
    torch.backends.cudnn.allow_tf32 = False
    half = torch.bfloat16 if options.bf16 else torch.float32
    kwargs["dtype"] = torch.float16 if options.fp16 else half
    return kind.from_checkpoint(options.path, options.data, device=options.device, **kwargs)


def _import_user_dir(options: argparse.Namespace) -> None:
    from fairseq import utils

    try:
        utils.import_user_module(options)
    except FileNotFoundError:
        raise InputError(f"--user-dir: required a folder, got {quoted(options.user_dir)}") from None


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add FILE..., for :class:`TextLines`."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="UTF-8 text; standard input by default, and for -"
    )


def note_bad_lines(text: TextLines) -> None:
    """Report how many lines were not UTF-8, or are not lines for other programs."""
    if text.lone_returns:
        note(
            f"{text.lone_returns:,} line(s) end at a carriage return alone, as fairseq-preprocess "
            "cuts them"
        )
    if text.bad_lines:
        note(f"{text.bad_lines:,} line(s) were not UTF-8: U+FFFD stands for what was none")


def note(message: str) -> None:
    """Print a message on standard error."""
    with contextlib.suppress(OSError):  # a full disk for messages is no reason to stop
        print(f"fairseq-bnce: {message}", file=sys.stderr, flush=True)


def without_nan(numbers: Dict[str, Any]) -> Dict[str, Any]:
    """Replace NaN and infinity, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in numbers.items()
    }


def progress_bar(is_wanted: bool = True, **kwargs: Any) -> Any:
    """Return a tqdm bar, silent unless it is wanted and standard error is a terminal."""
    from tqdm import tqdm

    return tqdm(disable=None if is_wanted else True, file=sys.stderr, **kwargs)
