"""Score squashing, x -> 10 tanh(x / 5) (Chen et al. 2016), as a property of a decoder.

A decoder that was trained with squashing returns squashed scores to every caller, for example to
fairseq-generate, fairseq-interactive and fairseq-validate. Features do not change; this plugin's
criteria and scorers read features and squash scores themselves.

The checkpoint carries a mark among its parameters. fairseq without this plugin would score without
squashing, which is wrong; instead, it stops at the mark and names it.
"""

from typing import Any, Dict

import torch
from torch import Tensor, nn

from fairseq_bnce.output_layer.layer import OutputLayer

# To be read in fairseq's own error: Unexpected key(s) in state_dict: "decoder.<this>".
MARK = "score_squashing_needs_fairseq_bnce"


def squash(model: nn.Module) -> None:
    """Let ``model`` return squashed scores from now on. A second call does nothing.

    Args:
        model: any supported one, before its parameters are loaded.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    if is_squashed(model):
        return
    layer = OutputLayer(model)
    layer.squash_scores()
    layer.decoder.register_buffer(MARK, torch.ones(()))
    layer.decoder._register_load_state_dict_pre_hook(_add_mark)


def is_squashed(model: nn.Module) -> bool:
    """Whether a model, not wrapped, returns squashed scores."""
    return hasattr(getattr(model, "decoder", None), MARK)


def _add_mark(parameters: Dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Add the mark to an older checkpoint, where the task state alone says so."""
    parameters.setdefault(prefix + MARK, torch.ones(()))
