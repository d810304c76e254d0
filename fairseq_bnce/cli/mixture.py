"""Mixtures of a scorer and other models, for the commands that score."""

from __future__ import annotations

import argparse
import logging
from typing import Any, List, Optional, Union

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, ScoringError, UnsupportedModelError
from fairseq_bnce.text.reading import TextLines, file_errors
from fairseq_bnce.text.training_text import TrainingText

logger = logging.getLogger(__name__)


def add_mixture_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of other models."""
    add = common.flag_adder(parser.add_argument_group("mixture"))
    text = "mix the probabilities of each word with another model's: a checkpoint, or an n-gram "
    text += "model (ARPA, KenLM's binary). Give --mix-with again for more models"
    add("--mix-with", text, metavar="MODEL", action="append", default=[])
    text = "weight of --path, between 0 and 1; with more models, their weights with commas, of "
    text += "which the last may be left out; or a file of --mix-weights-out (default: equal)"
    add("--mix-weight", text, metavar="W|FILE", type=_weights)
    add("--mix-tune", "fit the weights to this text", metavar="TEXT")
    add("--mix-weights-out", "write the weights, for --mix-weight", metavar="FILE")


def check_mixture(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored, and an output that would replace an input."""
    common.check_needs(options, "mix_with", "mix_weight", "mix_tune", "mix_weights_out")
    inputs = [options.path, options.mix_tune, *options.mix_with]
    common.check_outputs({"--mix-weights-out": options.mix_weights_out}, inputs)


def load_model(
    options: argparse.Namespace, default: Optional[TrainingText] = None, **settings: Any
) -> common.LanguageModel:
    """Load the model of :func:`common.add_model_flags`, and mix it with others if asked to.

    Args:
        options, default: of :func:`common.model_words`.
        **settings: of :meth:`Mixture.fit`.
    """
    from fairseq_bnce.scoring import Mixture, NGramModel, Scorer  # imports torch and fairseq
    from fairseq_bnce.scoring.ngram import is_ngram_file

    models: List[common.LanguageModel] = [common.load_scorer(Scorer, options)]
    for path in options.mix_with:
        own = argparse.Namespace(**{**vars(options), "path": path, "data": None})
        flag = f"--mix-with {path}"
        with file_errors(flag):
            is_ngram = is_ngram_file(path)
        try:
            models += [NGramModel(path) if is_ngram else common.load_scorer(Scorer, own)]
        except ScoringError as error:
            raise ScoringError(flag, error.required, error.got) from None
        except UnsupportedModelError as error:
            raise InputError(f"{flag}: {error}") from None
    if not options.mix_with:
        return models[0]
    weights = options.mix_weight
    if isinstance(weights, list) and len(weights) < len(models):
        weights = [*weights, 1 - sum(weights)]
    mixture = Mixture(models, weights)
    if options.mix_tune:
        words = common.model_words(options, mixture, default)
        mixture.fit(map(words, TextLines([options.mix_tune])), tokenized=True, **settings)
        found = ",".join(f"{weight:.4f}" for weight in mixture.weights)
        logger.warning(f"--mix-weight {found} fits {options.mix_tune} best")
    if options.mix_weights_out:
        mixture.save(options.mix_weights_out)
    return mixture


def _weights(text: str) -> Union[str, List[float]]:
    """Return weights, or the name of a file: a type for argparse."""
    try:
        return list(map(float, text.split(",")))
    except ValueError:
        return text
