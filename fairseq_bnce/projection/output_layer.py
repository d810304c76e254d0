"""The output projection of any supported decoder, and the features that go into it.

A decoder is always run through ``model(...)``, with its projection replaced by the identity for
the time of the call: calling a decoder behind DistributedDataParallel's back leaves ranks silently
unsynchronised, and ``features_only`` is not known to all decoders (fconv_lm swallows it and
returns logits).
"""

from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from fairseq.models.fconv import FConvDecoder
from fairseq.models.lightconv import LightConvDecoder
from fairseq.models.lstm import LSTMDecoder
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.sparse.row_sparse import gather

_DIRECTION, _GAIN = "weight_v", "weight_g"  # what torch.nn.utils.weight_norm makes of a weight


class Rows(NamedTuple):
    """A part of the output projection.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
    """

    weight: Tensor
    bias: Optional[Tensor]


class OutputLayer:
    """The projection (V, D) of a model's decoder.

    Args:
        model: a fairseq language model or encoder-decoder model, wrapped for DDP or not.

    Raises:
        UnsupportedModelError: naming what was found and the remedy.
    """

    def __init__(self, model: nn.Module):
        _refuse_wrappers(model)
        self.decoder = _decoder(model)
        self._location = _with_parameter(_locate(self.decoder))

    def __len__(self) -> int:
        return self._stored_weight.size(0)

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """The (V,) bias parameter, or None."""
        return getattr(self._location.holder, "bias", None)

    def full(self) -> Rows:
        """All rows, (V, D) and (V,)."""
        weight, gain = self._stored_weight, self._gain
        return Rows(weight if gain is None else _normalise(weight, gain), self.bias)

    def rows(self, ids: Tensor) -> Rows:
        """The rows of the distinct words ``ids`` (U,).

        No work grows with V, but for a dense gradient where the rows are not row-sparse.
        """
        weight, gain, bias = gather(self._stored_weight, ids), self._gain, self.bias
        weight = weight if gain is None else _normalise(weight, gather(gain, ids))
        return Rows(weight, None if bias is None else gather(bias, ids))

    def parameters(self) -> List[nn.Parameter]:
        """All that :meth:`rows` reads."""
        held = (self._stored_weight, self._gain, self.bias)
        return [parameter for parameter in held if parameter is not None]

    def bypass(self) -> None:
        """From now on the decoder returns features: for a model that does nothing but score."""
        setattr(self.decoder, self._location.slot, self._location.stand_in)

    def transform_scores(self, function: Callable[[Tensor], Tensor]) -> None:
        """From now on the decoder returns ``function(scores)``; features and rows stay as they are.

        At the projection, since fairseq's generators call neither hooks of the decoder nor the
        model's forward.
        """
        decoder, slot = self.decoder, self._location.slot
        if isinstance(getattr(decoder, slot), nn.Module):
            getattr(decoder, slot).register_forward_hook(partial(_transform_output, function))
        elif slot == "adaptive_softmax":
            decoder.forward = partial(_transformed_forward, decoder, function)
        else:
            setattr(decoder, slot, partial(_transformed_call, decoder, slot, function))

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """While this lasts, the decoder returns features (B, T, D) in the place of logits."""
        decoder, slot = self.decoder, self._location.slot
        is_own = slot in decoder._modules or slot in decoder.__dict__
        original = getattr(decoder, slot)
        self.bypass()
        try:
            yield
        finally:
            if is_own:
                setattr(decoder, slot, original)
            else:
                delattr(decoder, slot)  # uncovers the class's method

    def features(self, model: nn.Module, net_input: Dict[str, Any]) -> Tensor:
        """h (B, T, D) for a batch, by way of ``model(**net_input)``.

        Raises:
            UnsupportedModelError: if what comes back is not of the projection's input size.
        """
        with self.bypassed():
            output = model(**net_input)
        return self.checked(output)[0]

    def checked(self, output: Any) -> Tuple:
        """``output`` itself, once its first part is seen to be features of the right size."""
        size = self._stored_weight.size(1)
        first = output[0] if isinstance(output, (tuple, list)) else output
        if not torch.is_tensor(first) or first.dim() != 3 or first.size(-1) != size:
            got = tuple(first.shape) if torch.is_tensor(first) else type(first).__name__
            raise UnsupportedModelError(
                f"{type(self.decoder).__name__}: required features of shape (batch, time, {size}) "
                f"from the decoder without its projection ({self._location.slot}), got {got}; "
                "decoders of several streams, and those that project elsewhere, are not supported"
            )
        return output if isinstance(output, tuple) else (first,)

    @property
    def _gain(self) -> Optional[nn.Parameter]:
        """Under weight_norm, whose ``weight`` is stale until the module's own forward is called."""
        location = self._location
        return getattr(location.holder, _GAIN) if location.name == _DIRECTION else None

    @property
    def _stored_weight(self) -> nn.Parameter:
        return getattr(self._location.holder, self._location.name)


class _Location(NamedTuple):
    """Where a decoder projects, and with what.

    Attributes:
        slot: the attribute that stands between the decoder and its logits.
        stand_in: what to put there to get features.
        holder, name: the module and the attribute of it that is the weight.
    """

    slot: str
    stand_in: Any
    holder: nn.Module
    name: str = "weight"


def _identity(features: Tensor, **_: Any) -> Tensor:
    return features


# What transform_scores() puts in place: all partials of functions here, which deepcopy follows.


def _transform_output(function: Callable, _: nn.Module, __: Tuple, scores: Tensor) -> Tensor:
    """A forward hook of the projection."""
    return function(scores)


def _transformed_call(
    decoder: nn.Module, slot: str, function: Callable, *args: Any, **kwargs: Any
) -> Tensor:
    """In the place of the method that projects."""
    return function(getattr(type(decoder), slot)(decoder, *args, **kwargs))


def _transformed_forward(
    decoder: nn.Module, function: Callable, *args: Any, **kwargs: Any
) -> Tuple:
    """In the place of the forward of a decoder that projects inside it; see _locate_inline()."""
    output = type(decoder).forward(decoder, *args, **kwargs)
    if decoder.adaptive_softmax is not None:  # bypassed: features
        return output
    return (function(output[0]), *output[1:])


def _normalise(v: Tensor, g: Tensor) -> Tensor:
    """Weight normalisation by row, as torch.nn.utils.weight_norm(dim=0) defines it."""
    return v * (g / v.norm(dim=1, keepdim=True))


def _decoder(model: nn.Module) -> nn.Module:
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, nn.Module):
        raise UnsupportedModelError(
            f"{type(model).__name__}: required a model with one decoder (a fairseq language model "
            f"or encoder-decoder model), got decoder {type(decoder).__name__}"
        )
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise UnsupportedModelError(
            f"{type(decoder).__name__}: required a plain output projection, got an adaptive "
            "softmax; take an architecture without one (transformer_lm_big with its sizes in the "
            "place of transformer_lm_wiki103 or transformer_lm_gbw) and leave out "
            "--adaptive-softmax-cutoff, or train with --criterion adaptive_loss and score with "
            "fairseq-eval-lm; scripts/migrate_checkpoint.py gives a trained model a plain one"
        )
    return decoder


def _locate(decoder: nn.Module) -> _Location:
    if isinstance(decoder, LSTMDecoder) and decoder.share_input_output_embed:
        return _Location("output_layer", _identity, decoder.embed_tokens)
    if isinstance(decoder, LSTMDecoder):
        return _Location("fc_out", nn.Identity(), decoder.fc_out)
    if isinstance(decoder, FConvDecoder):
        return _Location("fc3", nn.Identity(), decoder.fc3)
    projection = getattr(decoder, "output_projection", None)
    # type(), not isinstance(): a vocabulary-parallel or quantised subclass holds other rows.
    if type(projection) is nn.Linear:
        return _Location("output_projection", nn.Identity(), projection)
    if isinstance(decoder, LightConvDecoder):
        return _locate_inline(decoder)
    raise UnsupportedModelError(
        f"{type(decoder).__name__}: required a decoder whose projection is known (transformer, "
        "lightconv, lstm and fconv decoders, or one with a torch.nn.Linear named "
        "output_projection), got none of these; give it that attribute, or train with "
        "--criterion cross_entropy"
    )


def _with_parameter(location: _Location) -> _Location:
    """What the weight is made of, where it is none itself: weight_norm by row is understood."""
    slot, _, holder, name = location
    gain: Any = getattr(holder, _GAIN, None)
    if gain is not None and gain.shape == (len(getattr(holder, name)), 1):
        return location._replace(name=_DIRECTION)
    if not isinstance(getattr(holder, name), nn.Parameter):
        raise UnsupportedModelError(
            f"{slot}.{name}: required a parameter, or one under weight_norm with dim=0, got what "
            "another reparametrisation makes anew in each forward pass; remove it, or train with "
            "--criterion cross_entropy"
        )
    return location


def _locate_inline(decoder: LightConvDecoder) -> _Location:
    """fairseq 0.12.2's lightconv projects inside forward, unless it has an adaptive softmax."""
    if decoder.share_input_output_embed:
        return _Location("adaptive_softmax", True, decoder.embed_tokens)
    return _Location("adaptive_softmax", True, decoder, "embed_out")


def _refuse_wrappers(model: Optional[nn.Module]) -> None:
    """Name the distributed wrappers under which the projection can't be used from outside."""
    while isinstance(model, nn.Module):
        if type(model).__name__ == "FullyShardedDataParallel":
            refuse_fully_sharded()
        if isinstance(model, DistributedDataParallel) and model.find_unused_parameters:
            raise UnsupportedModelError(
                "--find-unused-parameters: required off with --ddp-backend pytorch_ddp (the "
                "projection is used outside of the model's forward, which that option forbids), "
                "got on; leave it out, or take --ddp-backend legacy_ddp"
            )
        model = model._modules.get("module")


def refuse_fully_sharded() -> None:
    """Raise for FSDP, which shards the projection's rows away between forward passes.

    Raises:
        UnsupportedModelError: always.
    """
    raise UnsupportedModelError(
        "--ddp-backend: required pytorch_ddp or legacy_ddp with the criteria of fairseq_bnce, got "
        "fully_sharded (FSDP), under which the output projection cannot be used outside of the "
        "model's forward"
    )
