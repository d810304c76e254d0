"""Where an untrained model's scores start: at given values in every context.

An output bias carries the values. A decoder without a bias may end in a layer normalisation. Then
one feature becomes the same in every context: its gain is 0 and its offset sqrt(D), the length that
the normalisation gives to all features together. The feature's column of the projection acts as the
bias. The architecture stays the stock one, and training may change all parameters again. On novels
of 52,595 types a transformer_lm under ``bnce`` has a perplexity of 195 after 300 updates that way,
and of 328 from random scores (docs/results/adaptive-softmax.md).
"""

import math
from typing import Optional

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_bnce.losses import squashing
from fairseq_bnce.output_layer.layer import OutputLayer

_CHOSEN = 0  # the constant feature; no position is better than another
_QUIET = 0.25  # the share of the normalisation's gains that is kept
# Only with fairseq's own methods do features come out of the last normalisation.
_OWN = ("forward", "extract_features", "extract_features_scriptable")


def can_be_set(layer: OutputLayer) -> bool:
    """Return whether a bias or a constant feature can carry a score for every word."""
    if layer.bias is not None:
        return True
    is_stored = isinstance(layer.full()[0], nn.Parameter)  # weight_norm computes the weight
    return is_stored and _last_norm(layer.decoder) is not None


@torch.no_grad()
def shrink_scores(layer: OutputLayer) -> None:
    """Make an untrained transformer's features small, and so what random weights add to scores.

    With tied embeddings, random weights predict that words repeat themselves. A deep transformer
    unlearns this by making the features of all contexts equal, and stays there: equal features
    give a unigram model's scores. With a quarter of the gains of the last normalisation, training
    avoids that state. Bands (conversion.py) get small rows instead; other layers with an output
    bias do not change.
    """
    layer.kind.shrink_scores(layer.decoder)
    norm = None if layer.bias is not None else _last_norm(layer.decoder)
    if norm is not None:
        norm.weight.mul_(_QUIET)


def fitting_log_z(log_q: Tensor, squash: bool) -> float:
    """Return the log Z nearest to 0 with which scores can start at log q + log Z, nats.

    It is 0 unless squashed scores, which stay below 9.9, have to fit.

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
def set_to(layer: OutputLayer, scores: Tensor) -> None:
    """Have every context score words by ``scores`` (V,), nats, plus what random weights add.

    Call it where :func:`can_be_set` holds, before a trainer copies the parameters. Of a model that
    squashes its scores, ``scores`` are squashed ones.
    """
    scores = squashing.unsquashed(scores) if layer.kind.is_squashed else scores
    if layer.bias is not None:
        layer.bias.copy_(scores)
        return
    norm = _last_norm(layer.decoder)
    assert norm is not None, "call can_be_set() first"
    # One feature gets the same value in all contexts.
    value, projection = math.sqrt(norm.weight.numel()), layer.decoder.project_out_dim
    norm.weight[_CHOSEN] = 0.0
    norm.bias[_CHOSEN] = value
    if projection is not None:  # features are another size: hand this one on
        projection.weight[_CHOSEN] = 0.0
        projection.weight[:, _CHOSEN] = 0.0
        projection.weight[_CHOSEN, _CHOSEN] = 1.0
    weight, _ = layer.full()
    weight[:, _CHOSEN] = (scores / value).to(weight)


def _last_norm(decoder: nn.Module) -> Optional[nn.LayerNorm]:
    """Return the affine layer normalisation that ends the decoder, also under layer drop."""
    own, base = type(decoder), TransformerDecoderBase
    are_own = all(getattr(own, name, None) is getattr(base, name) for name in _OWN)
    if not (isinstance(decoder, TransformerDecoderBase) and are_own):
        return None
    norm = decoder.layer_norm
    if norm is None and not decoder.decoder_layerdrop and not decoder.layers[-1].normalize_before:
        norm = decoder.layers[-1].final_layer_norm
    return norm if getattr(norm, "bias", None) is not None else None
