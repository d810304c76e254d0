"""Where an untrained model's scores start: at given values in every context.

An output bias carries them. In a decoder that has none, but whose features come out of a layer
normalisation, one feature is made the same in every context: its gain is 0 and its offset sqrt(D),
the length that the normalisation gives to all features together. Its column of the projection is
then the bias. Nothing but parameters of the stock architecture changes, and training may change
all of them again. On novels of 52,595 types a transformer_lm under ``bnce`` has a perplexity of 195
after 300 updates that way, and of 328 from random scores (docs/adaptive-softmax.md).
"""

import math
from typing import Optional

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_bnce.losses import squashing
from fairseq_bnce.output_layer.layer import OutputLayer

_CHOSEN = 0  # of the features; no position is better than another
_QUIET = 0.25  # of the normalisation's gains
# The methods that make features, which come out of the last normalisation in fairseq's own alone.
_OWN = ("forward", "extract_features", "extract_features_scriptable")


def can_be_set(layer: OutputLayer) -> bool:
    """Whether the decoder has something that carries a score for every word."""
    if layer.bias is not None:
        return True
    is_stored = isinstance(layer.full().weight, nn.Parameter)  # and not made under weight_norm
    return is_stored and _last_norm(layer.decoder) is not None


@torch.no_grad()
def shrink_scores(layer: OutputLayer) -> None:
    """Have an untrained transformer's features, and what random weights add to scores, small.

    Under tied embeddings those scores say that words repeat themselves. A deep transformer unlearns
    that by the same features in every context, where it stays: a unigram model's scores are right
    with them, and nothing draws it away. With a quarter of the gains of its last normalisation it
    does not get there. Bands (bands.py) have their rows made small instead; nothing else that has
    an output bias changes.
    """
    layer.shrink_scores()
    norm = None if layer.bias is not None else _last_norm(layer.decoder)
    if norm is not None:
        norm.weight.mul_(_QUIET)


def fitting_log_z(log_q: Tensor, squash: bool) -> float:
    """The log Z with which scores can start at log q + log Z, nats: 0, or where squashed ones fit.

    Args:
        log_q: (V,) nats, of the distribution to start from.
        squash: whether the model squashes its scores.
    """
    if not squash:
        return 0.0
    lowest, highest = float(log_q.min()), float(log_q.max())
    fitting = min(max(0.0, -squashing.FITTING - lowest), squashing.FITTING - highest)
    return round(fitting + 0.005, 2) if fitting else 0.0


@torch.no_grad()
def set_to(layer: OutputLayer, scores: Tensor, squash: bool = False) -> None:
    """Make ``scores`` (V,), nats, those of every context, but for what random weights add.

    To be called where :func:`can_be_set` holds, before a trainer copies the parameters. ``squash``
    says that the model squashes its scores, and that ``scores`` are what comes out of that.
    """
    scores = squashing.unsquashed(scores) if squash else scores
    if layer.bias is not None:
        layer.bias.copy_(scores)
        return
    norm = _last_norm(layer.decoder)
    assert norm is not None, "can_be_set() is to be asked first"
    weight = layer.full().weight
    weight[:, _CHOSEN] = (scores / _make_constant(layer.decoder, norm)).to(weight)


def _make_constant(decoder: TransformerDecoderBase, norm: nn.LayerNorm) -> float:
    """The value that the chosen feature has from now on."""
    value = math.sqrt(norm.weight.numel())
    norm.weight[_CHOSEN] = 0.0
    norm.bias[_CHOSEN] = value
    if decoder.project_out_dim is not None:  # features are another size: hand this one on
        projection = decoder.project_out_dim.weight
        projection[_CHOSEN] = 0.0
        projection[:, _CHOSEN] = 0.0
        projection[_CHOSEN, _CHOSEN] = 1.0
    return value


def _last_norm(decoder: nn.Module) -> Optional[nn.LayerNorm]:
    """The affine layer normalisation that features come out of, whatever layers are dropped."""
    if not isinstance(decoder, TransformerDecoderBase):
        return None
    if any(
        getattr(type(decoder), name) is not getattr(TransformerDecoderBase, name) for name in _OWN
    ):
        return None
    norm = decoder.layer_norm
    if norm is None and not decoder.decoder_layerdrop and not decoder.layers[-1].normalize_before:
        norm = decoder.layers[-1].final_layer_norm
    return norm if getattr(norm, "bias", None) is not None else None
