"""Score squashing, x -> 10 tanh(x / 5) (Chen et al. 2016), as a property of a decoder.

A decoder that was trained with it returns squashed scores to whoever calls it: fairseq-generate,
fairseq-interactive and fairseq-validate know of nothing else. Its features, which this plugin's
criteria and scorers take in the place of scores (output_layer.py), do not pass by there.

The checkpoint carries a mark among its parameters. fairseq without this plugin, which knows of no
squashing and would score wrongly in silence, stops at it and names it.
"""

from typing import Any, Dict

import torch
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.output_layer.layer import OutputLayer

# To be read in fairseq's own error: Unexpected key(s) in state_dict: "decoder.<this>".
MARK = "score_squashing_needs_fairseq_bnce"


def squash(model: nn.Module) -> None:
    """Let ``model`` return squashed scores from now on; once is as often as you like.

    Args:
        model: any supported one, before its parameters are loaded.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    if is_squashed(model):
        return
    layer = OutputLayer(model)
    layer.transform_scores(losses.squashed)
    layer.decoder.register_buffer(MARK, torch.ones(()))
    layer.decoder._register_load_state_dict_pre_hook(_add_mark)


def is_squashed(model: nn.Module) -> bool:
    """Whether a model, not wrapped, returns squashed scores."""
    return hasattr(getattr(model, "decoder", None), MARK)


def _add_mark(parameters: Dict[str, Tensor], prefix: str, *_: Any) -> None:
    """To a checkpoint of before there was one, whose task state alone says what it is."""
    parameters.setdefault(prefix + MARK, torch.ones(()))
