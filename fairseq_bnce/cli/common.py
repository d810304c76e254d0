"""What the sub-commands share: flags, the model, its words, checks of outputs, and progress."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional

from fairseq_bnce.errors import InputError, at_least
from fairseq_bnce.text.reading import STDIN, file_errors
from fairseq_bnce.text.tokens import NFC, PUNCTUATION, check_language
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import is_special, part_of

logger = logging.getLogger(__name__)
MANY = 0.2  # a larger share of unknown words is a mistake of the user
FIRST = 1000  # words, after which the share is checked: a text may have no end


# ---------------------------------------------------------------- flags


def flag_adder(group: Any) -> Callable[..., Any]:
    """Return ``add(name, help, **settings)`` for a parser or a group.

    Settings are those of argparse's ``add_argument``. A flag without settings is a switch.
    """

    def add(name: str, text: str, **settings: Any) -> Any:
        return group.add_argument(name, help=text, **(settings or {"action": "store_true"}))

    return add


def add_model_flags(
    parser: argparse.ArgumentParser, has_exact: bool = True, is_required: bool = True
) -> None:
    """Add the flags of a model and of its scores.

    Args:
        parser: of a sub-command.
        has_exact: whether to add --exact and --log-z-shift.
        is_required: whether --path is required.
    """
    add = flag_adder(parser.add_argument_group("model"))
    add("--path", "checkpoint of a language model", metavar="CKPT", required=is_required)
    text = "folder with the model's dict.txt (default: the checkpoint's, or the training data's)"
    add("--data", text, metavar="DIR")
    text = "folder of Python code that registers the model's architecture; the code is run"
    add("--user-dir", text, metavar="DIR")
    if has_exact:
        text = "log-probabilities of the softmax; default: m - log Z - shift, for models that "
        add("--exact", text + "normalise themselves, without any work over the vocabulary")
        text = "nats to subtract: a number, 'none', or 'checkpoint' (default) for its mu_z"
        add("--log-z-shift", text, metavar="SHIFT", default="checkpoint")
    add("--device", "cpu (default), cuda, cuda:1, ...", default="cpu")
    half: Dict[str, Any] = {"action": "store_const", "dest": "dtype", "default": "float32"}
    add("--fp16", "model in float16, scores in float32", const="float16", **half)
    add("--bf16", "model in bfloat16, scores in float32", const="bfloat16", **half)
    count: Dict[str, Any] = {"metavar": "N", "type": at_least(1)}
    add("--batch-tokens", "words in a batch, padding included", **count)
    add("--threads", "torch's threads on the CPU (default: OMP_NUM_THREADS, or all cores)", **count)


def add_text_flags(group: Any, default: str = "words stand between spaces") -> None:
    """Add --tokenize, --normalize and --lowercase.

    Args:
        group: a parser or a group.
        default: what is done if the checkpoint does not say how its training text was cut.
    """
    add = flag_adder(group)
    text = "cut lines by sacremoses' rules for this language, as prepare-text does, or only at "
    text += "spaces ('none'). Default: as the checkpoint's training text was cut, unless a line is "
    text += f"cut already; if the checkpoint does not say how: {default}"
    add("--tokenize", text, metavar="LANG")
    text = "Unicode in NFC; punctuation: quotes, dashes and dots by Moses' rules, too"
    add("--normalize", f"{text} (default: as for --tokenize)", choices=(NFC, PUNCTUATION))
    add("--lowercase", "lower-case everything")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add FILE..., for :class:`fairseq_bnce.text.reading.TextLines`."""
    text = "UTF-8 text; standard input by default, and for -"
    parser.add_argument("files", nargs="*", metavar="FILE", help=text)


# ---------------------------------------------------------------- the model and its words


def load_scorer(kind: Any, options: argparse.Namespace, **settings: Any) -> Any:
    """Load the model of :func:`add_model_flags`.

    Args:
        kind: the class of the scorer.
        options: of the command line.
        **settings: of :meth:`Scorer.from_checkpoint`, where the command line has no such flag.
    """
    import torch

    if "exact" in options:
        settings.update(exact=options.exact, shift=options.log_z_shift)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.user_dir is not None:
        from fairseq import utils

        with file_errors(f"--user-dir {options.user_dir}"):
            utils.import_user_module(options)
    # cuDNN's recurrent layers and convolutions would round their factors to TF32.
    torch.backends.cudnn.allow_tf32 = False
    dtype = getattr(torch, options.dtype)
    settings.update(device=options.device, dtype=dtype, batch_tokens=options.batch_tokens)
    return kind.from_checkpoint(options.path, options.data, **settings)


class ModelWords:
    """Cuts lines into a model's words, and warns once if the model does not know many of them.

    Args:
        options: of :func:`add_text_flags`.
        scorer: of the model.
        default: how to cut lines if the checkpoint does not say how, or says that words stood
            between spaces; by default at spaces.

    Raises:
        InputError: for a language of --tokenize without rules.
    """

    def __init__(
        self, options: argparse.Namespace, scorer: Any, default: Optional[TrainingText] = None
    ):
        trained = scorer.training_text
        made = default or TrainingText()
        made = made._replace(normalize=trained.normalize if trained else None)
        if options.tokenize == NONE:
            made = TrainingText()
        elif options.tokenize is not None:
            check_language("--tokenize", options.tokenize)
            made = TrainingText(SACREMOSES, options.tokenize)
        elif trained is not None and not (default and trained.tokenizer == NONE):
            made = trained
        lowercase, normalize = made.lowercase or options.lowercase, options.normalize
        self._made = made._replace(lowercase=lowercase, normalize=normalize or made.normalize)
        self._is_noted = made is not trained
        self._words = self._made.words if self._is_noted else self._made.new_words
        self._count = self._unknown = 0
        self._has_warned = False

    def __call__(self, line: str) -> str:
        """Separate the words of a line by spaces."""
        words = self._words(line)
        if not self._is_noted and words != line.split():
            logger.warning(f"as for training, {self._made} (--tokenize none: cut only at spaces)")
            self._is_noted = True
        return " ".join(words)

    def count(self, words: int, unknown: int) -> None:
        """Add scored words, without ``</s>``, and those of them that the model does not know."""
        self._count, self._unknown = self._count + words, self._unknown + unknown
        if self._count >= FIRST:
            self.end()

    def end(self) -> None:
        """Warn once if more than a fifth of the words are unknown."""
        if not self._has_warned and self._unknown > MANY * self._count:
            self._has_warned = True
            count = f"{self._unknown:,} of {self._count:,} words"
            share = f"({self._unknown / self._count:.0%}) are out of the vocabulary"
            hint = f"are they cut and cased as those of the training text? Here {self._made}"
            logger.warning(f"{count} {share}; {hint} (see --tokenize and --lowercase)")


# ---------------------------------------------------------------- outputs


def model_files(path: str, data: Optional[str]) -> List[str]:
    """Return the names of a model's files, for :func:`check_outputs`."""
    return [path, os.path.join(data or os.path.dirname(path), "dict.txt")]


def check_outputs(outputs: Dict[str, Optional[str]], inputs: Iterable[Optional[str]]) -> None:
    """Refuse an output that would replace an input or another output, itself or its ``.part``.

    Args:
        outputs: names of files by flags; None for no output, ``-`` for standard output.
        inputs: names of files; None for no input, ``-`` for standard input.

    Raises:
        InputError: naming the flag.
    """
    used = {os.path.realpath(name) for name in inputs if name}
    for flag, name in outputs.items():
        if name and name != STDIN and not is_special(name):
            path = os.path.realpath(name)
            if used & {path, part_of(path)}:
                raise InputError(f"{flag}: required no input and no other output, got {name}")
            used |= {path, part_of(path)}


def without_nan(numbers: Dict[str, Any]) -> Dict[str, Any]:
    """Replace NaN and infinity, which JSON lacks, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in numbers.items()
    }


def progress_bar(is_wanted: bool = True, **settings: Any) -> Any:
    """Return a tqdm bar, silent unless it is wanted and standard error is a terminal."""
    from tqdm import tqdm

    return tqdm(disable=None if is_wanted and sys.stderr else True, file=sys.stderr, **settings)
