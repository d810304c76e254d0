"""Scoring for fairseq-eval-lm: exact in bounded memory, or of the targets alone.

fairseq's SequenceScorer calls ``model(...)``, then ``get_normalized_probs(...)``, and gathers the
targets' entries from the (B, T, V) result. A scoring model returns features from the first call.
From the second it returns the targets' log-probabilities as an *expanded* view of that shape, with
stride 0 over V. The gather reads the right numbers, and nothing of size tokens x V exists.
"""

import contextlib
import logging
import math
import sys
from typing import Any, Collection, Dict, Mapping, Optional, Tuple

import torch
from fairseq.data import FairseqDataset
from fairseq.models import FairseqDecoder
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from torch import Tensor, nn

from fairseq_bnce.errors import UnsupportedModelError, require
from fairseq_bnce.output_layer.layer import OutputLayer
from fairseq_bnce.scoring import normalisation, readers
from fairseq_bnce.scoring.normalisation import Normalisation
from fairseq_bnce.state import ScoringState

logger = logging.getLogger(__name__)


class _Scoring(nn.Module):
    """Mixed into a model's own class."""

    normalisation: Normalisation
    decoder: FairseqDecoder

    def forward(self, *args: object, **kwargs: object) -> Tuple:
        return OutputLayer(self).run(super().forward, *args, **kwargs)

    def get_normalized_probs(self, net_output: Tuple, log_probs: bool, sample: Dict) -> Tensor:
        """Return (B, T, V) whose every entry along V is the target's (log-)probability."""
        layer = OutputLayer(self)
        features, target = net_output[0], sample["target"]
        is_word = target.ne(self.decoder.dictionary.pad())
        found = self.normalisation.log_probs(layer, features[is_word], target[is_word])
        scores = features.new_zeros(target.shape, dtype=torch.float32)
        scores[is_word] = found.float()
        scores = scores if log_probs else scores.exp()
        return scores.unsqueeze(-1).expand(-1, -1, len(layer))


def score_exactly(states: Mapping[nn.Module, ScoringState]) -> None:
    """Let models score targets in bounded memory, if that is known to give their own scores.

    Args:
        states: of the task, as each model's checkpoint carries it.
    """
    for model, state in states.items():
        if _is_of_fairseq(model) or state.log_z is not None:
            with contextlib.suppress(UnsupportedModelError):
                make_exact(model)
        if not isinstance(model, _Scoring):
            decoder = type(getattr(model, "decoder", None)).__name__
            logger.info(f"{decoder}: scored as fairseq does, with tokens x V logits in memory")


def score_unnormalized(models: Collection[nn.Module], state: ScoringState, choice: str) -> None:
    """Let a model score targets by m - log Z - shift.

    Args:
        models: one self-normalised model, or one with a reduced partition function.
        state: of the task, as its checkpoint carries it.
        choice: the value of ``--log-z-shift``.

    Raises:
        ValueError: for several models, or a bad choice.
    """
    (model,) = models  # the task refuses an ensemble before it loads one
    layer = OutputLayer(model)
    how, shift = normalisation.unnormalised(state, layer, choice)
    _mix_in(model, how)
    log_z = f"{state.constant:g}"
    if how.reduced is not None:
        rows = f"{len(how.reduced.bias):,} rows instead of {len(layer):,}"
        log_z = f"by a reduced partition function of {rows}"
    logger.info(
        f"unnormalised scores: m - log Z - shift, log Z {log_z}, shift {shift:.4f} nats; "
        "the perplexity below is unnormalised"
    )


def make_exact(model: nn.Module) -> None:
    """Let ``model`` score targets exactly, without ever holding tokens x V logits.

    Args:
        model: any supported model.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    OutputLayer(model)  # refuses what can't be scored
    _mix_in(model, Normalisation(None))


def in_blocks(
    task: LanguageModelingTask,
    dataset: FairseqDataset,
    states: Mapping[nn.Module, ScoringState],
    max_positions: Optional[float] = None,
    context_window: int = 0,
    **_: object,
) -> FairseqDataset:
    """Return a task's dataset in blocks that the models take.

    fairseq would silently skip longer blocks. Without --tokens-per-sample, a block is also cut to
    the length that the model was trained on: fairseq's default is 1024.

    Args:
        task: has the dataset.
        dataset: of fairseq-eval-lm.
        states: of the task, as each model's checkpoint carries it.
        max_positions: how many words the models read at once, or None.
        context_window: how many words of a block are only context. fairseq-eval-lm has subtracted
            them from --tokens-per-sample.

    Raises:
        ValueError: for a context window that leaves no room for a word.
    """
    positions = math.inf if max_positions is None else float(max_positions)
    longest = positions - task.args.add_bos_token - context_window
    block = task.args.tokens_per_sample
    has_room = min(block, longest) >= 1
    require("--context-window", "room for a word in a block", context_window, has_room)
    # No configuration says whether the default was given.
    is_given = any(flag.partition("=")[0] == "--tokens-per-sample" for flag in sys.argv)
    is_default = block == LanguageModelingConfig().tokens_per_sample - context_window
    is_cut = is_default and not is_given and str(task.args.sample_break_mode) != "eos"
    taken = min(longest, _trained_words(states, context_window) if is_cut else longest)
    if block <= taken:
        return dataset
    why = "was trained on" if taken < longest else "takes"
    logger.warning(f"--tokens-per-sample {block}: cut, this model {why} at most {taken:.0f} tokens")
    task.args.tokens_per_sample = int(taken)
    split = next(name for name, loaded in task.datasets.items() if loaded is dataset)
    task.load_dataset(split)
    return task.datasets[split]


def _trained_words(states: Mapping[nn.Module, ScoringState], context_window: int) -> float:
    """Return how many scored words the models' blocks had in training, at most.

    Infinity if none of them has positions, since it then reads on from any word; and for a context
    window of more words than the models were trained on, which asks for all positions.
    """
    read = (s.longest_context for model, s in states.items() if readers.has_positions(model))
    words = min(filter(None, read), default=math.inf) - context_window
    return words if words > 0 else math.inf


def _is_of_fairseq(model: nn.Module) -> bool:
    """Return whether a model and its decoder are fairseq's or this plugin's.

    Decoders of others may do anything to their scores, whatever the names of their parts.
    """
    classes = type(model), type(getattr(model, "decoder", None))
    return all(c.__module__.split(".")[0] in ("fairseq", "fairseq_bnce") for c in classes)


def _mix_in(model: Any, how: Normalisation) -> None:
    if not isinstance(model, _Scoring):
        own = type(model)
        model.__class__ = type(own.__name__, (_Scoring, own), {"__module__": own.__module__})
    model.normalisation = how
