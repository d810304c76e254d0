"""What the sub-commands share: flags, the models, their words, checks of outputs, and progress."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, TypeVar

from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError, at_least
from fairseq_bnce.text.reading import STDIN, TextLines, file_errors
from fairseq_bnce.text.tokens import NFC, PUNCTUATION, check_language
from fairseq_bnce.text.training_text import NONE, SACREMOSES, ModelWords, TrainingText
from fairseq_bnce.text.writing import is_special, part_of

if TYPE_CHECKING:
    from tqdm import tqdm

    from fairseq_bnce.scoring.language_model import LanguageModel, SentenceScore

logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Flags = argparse._ActionsContainer  # a parser or a group of its flags

# ---------------------------------------------------------------- flags


def flag_adder(group: Flags) -> Callable[..., argparse.Action]:
    """Return ``add(name, help, **settings)`` for a parser or a group.

    Settings are those of argparse's ``add_argument``. A flag without settings is a switch.
    """

    def add(name: str, text: str, **settings: Any) -> argparse.Action:
        return group.add_argument(name, help=text, **(settings or {"action": "store_true"}))

    return add


def add_model_flags(parser: Flags, has_exact: bool = True, is_required: bool = True) -> None:
    """Add the flags of a model and of its scores.

    Args:
        parser: of a sub-command.
        has_exact: whether to add --exact, --log-z-shift and the flags of a mixture.
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
    half = {"action": "store_const", "dest": "dtype", "default": "float32"}
    add("--fp16", "model in float16, scores in float32", const="float16", **half)
    add("--bf16", "model in bfloat16, scores in float32", const="bfloat16", **half)
    count = {"metavar": "N", "type": at_least(1)}
    add("--batch-tokens", "words in a batch, padding included", **count)
    add("--quiet", "show no progress on standard error")
    add("--threads", "torch's threads on the CPU (default: OMP_NUM_THREADS, or all cores)", **count)
    if has_exact:
        _add_mixture_flags(parser)


def _add_mixture_flags(parser: Flags) -> None:
    add = flag_adder(parser.add_argument_group("mixture"))
    text = "mix the probabilities of each word with another model's: a checkpoint, or an n-gram "
    text += "model (ARPA, KenLM's binary). Give --mix-with again for more models"
    add("--mix-with", text, metavar="MODEL", action="append", default=[])
    text = "weight of --path, between 0 and 1; with more models, their weights with commas, of "
    text += "which the last may be left out; or a file of --mix-weights-out (default: equal)"
    add("--mix-weight", text, metavar="W|FILE", type=_weights)
    add("--mix-tune", "fit the weights to this text", metavar="TEXT")
    add("--mix-weights-out", "write the weights, for --mix-weight", metavar="FILE")


def _weights(text: str) -> str | list[float]:
    """Return weights, or the name of a file: a type for argparse."""
    try:
        return list(map(float, text.split(",")))
    except ValueError:
        return text


def add_text_flags(group: Flags, default: str = "words stand between spaces") -> None:
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


def check_needs(options: argparse.Namespace, needed: str, *fields: str) -> None:
    """Refuse flags that would be ignored without the flag of the field ``needed``.

    Raises:
        InputError: naming the first one.
    """
    for field in fields:
        if getattr(options, field) and not getattr(options, needed):
            flag, other = (f"--{name.replace('_', '-')}" for name in (field, needed))
            raise InputError(f"{flag}: required with {other}, got it alone")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add FILE..., for :class:`fairseq_bnce.text.reading.TextLines`."""
    text = "UTF-8 text; standard input by default, and for -"
    parser.add_argument("files", nargs="*", metavar="FILE", help=text)


# ---------------------------------------------------------------- the model and its words


def load_scorer(kind: Any, options: argparse.Namespace, path: Any = None, **settings: Any) -> Any:
    """Load the model of :func:`add_model_flags`.

    Args:
        kind: the class of the scorer.
        options: of the command line.
        path: of another checkpoint than --path, with its own dict.txt.
        **settings: of the class, where the command line has no such flag.
    """
    import torch

    from fairseq_bnce import checkpoints

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
    data = options.data if path is None else None
    return kind(checkpoints.load(str(path or options.path), data), **settings)


def load_model(
    options: argparse.Namespace, default: TrainingText | None = None, **settings: object
) -> tuple[LanguageModel, ModelWords]:
    """Load the model of :func:`add_model_flags`, mixed with others if asked to, and its words.

    Args:
        options, default: of :func:`model_words`.
        **settings: of :meth:`Mixture.fit`.
    """
    from fairseq_bnce.scoring import Mixture, NGramModel, Scorer  # imports torch and fairseq
    from fairseq_bnce.scoring.ngram import is_ngram_file

    models: list[LanguageModel] = [load_scorer(Scorer, options)]
    for path in options.mix_with:
        flag = f"--mix-with {path}"
        with file_errors(flag):
            is_ngram = is_ngram_file(path)
        try:
            models += [NGramModel(path) if is_ngram else load_scorer(Scorer, options, path)]
        except ScoringError as error:
            raise ScoringError(flag, error.required, error.got) from None
        except UnsupportedModelError as error:
            raise InputError(f"{flag}: {error}") from None
    if not options.mix_with:
        return models[0], model_words(options, models[0], default)
    weights = options.mix_weight
    if isinstance(weights, list) and len(weights) < len(models):
        weights = [*weights, 1 - sum(weights)]
    mixture = Mixture(models, weights)
    words = model_words(options, mixture, default)
    if options.mix_tune:
        mixture.fit(map(words, TextLines([options.mix_tune])), tokenized=True, **settings)
        found = ",".join(f"{weight:.4f}" for weight in mixture.weights)
        logger.warning(f"--mix-weight {found} fits {options.mix_tune} best")
    if options.mix_weights_out:
        mixture.save(options.mix_weights_out)
    return mixture, words


def model_words(
    options: argparse.Namespace, scorer: LanguageModel, default: TrainingText | None = None
) -> ModelWords:
    """Return what cuts lines as the command line and the checkpoint say.

    Args:
        options: of :func:`add_text_flags`.
        scorer: of the model.
        default: how to cut lines if the checkpoint does not say how, or says that words stood
            between spaces; by default at spaces.

    Raises:
        InputError: for a language of --tokenize without rules.
    """
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
    how = made._replace(lowercase=lowercase, normalize=normalize or made.normalize)
    return ModelWords(how, made is trained, "--tokenize none", "--tokenize and --lowercase")


# ---------------------------------------------------------------- outputs


def model_files(path: str, data: str | None) -> list[str]:
    """Return the names of a model's files, for :func:`check_outputs`."""
    return [path, os.path.join(data or os.path.dirname(path), "dict.txt")]


def check_outputs(outputs: dict[str, str | None], inputs: Iterable[str | None]) -> None:
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


def check_files(
    options: argparse.Namespace, outputs: dict[str, str | None], inputs: Iterable[str | None]
) -> None:
    """Refuse flags of a mixture that would be ignored, and an output that would replace a file.

    Args:
        options: of :func:`add_model_flags`; their files are inputs, too.
        outputs, inputs: as in :func:`check_outputs`.
    """
    check_needs(options, "mix_with", "mix_weight", "mix_tune", "mix_weights_out")
    models = model_files(options.path, options.data) if options.path else []
    own = [*models, *options.mix_with, options.mix_tune]
    if isinstance(options.mix_weight, str):  # which fitted weights may replace
        check_outputs(outputs, [options.mix_weight])
    check_outputs({**outputs, "--mix-weights-out": options.mix_weights_out}, [*inputs, *own])


def without_nan(numbers: Mapping[str, object]) -> dict[str, object]:
    """Replace NaN and infinity, which JSON lacks, by None."""
    lacking = {k for k, v in numbers.items() if isinstance(v, float) and not math.isfinite(v)}
    return {**numbers, **dict.fromkeys(lacking)}


def progress_bar(options: argparse.Namespace, is_wanted: bool = True, **settings: Any) -> tqdm:
    """Return a tqdm bar, silent with --quiet, or unless standard error is a terminal."""
    from tqdm import tqdm

    is_shown = is_wanted and sys.stderr and not options.quiet
    return tqdm(disable=None if is_shown else True, file=sys.stderr, **settings)


def _lines_and_words(window: list[SentenceScore]) -> tuple[int, int]:
    return len(window), sum(len(score.words) for score in window)


def shown(
    items: Iterable[Item],
    options: argparse.Namespace,
    count: Callable[[Any], tuple[int, int]] = _lines_and_words,
    text: TextLines | None = None,
    **settings: Any,
) -> Iterator[Item]:
    """Yield items, and show how many lines and words a second they are.

    Args:
        items: lists of the scores of lines, or others that ``count`` knows.
        options: of the command.
        count: returns the number of lines of an item, and of their words.
        text: where the lines are read; then the bar shows how many of its bytes were read.
        **settings: of :func:`progress_bar`.
    """
    if text is not None:
        settings.update(total=text.total_bytes, unit="B", unit_scale=True)
    lines = words = 0
    with progress_bar(options, **settings) as bar:
        for item in items:
            yield item
            lines, words = (sum(both) for both in zip((lines, words), count(item)))
            speed = f"{words / max(bar.format_dict['elapsed'], 0.01):,.0f} words/s"
            moved = (text.read_bytes if text else lines) - bar.n
            bar.set_postfix_str(f"{lines:,} lines, {speed}" if text else speed, refresh=not moved)
            bar.update(moved)
