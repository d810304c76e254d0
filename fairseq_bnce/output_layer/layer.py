"""The output projection of any supported decoder, and the features that go into it.

A decoder is always run through ``model(...)``, with its projection replaced by the identity for
the time of the call: calling a decoder behind DistributedDataParallel's back leaves ranks silently
unsynchronised, and ``features_only`` is not known to all decoders (fconv_lm swallows it and
returns logits).
"""

from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
from fairseq.models.fconv import FConvDecoder
from fairseq.models.lightconv import LightConvDecoder
from fairseq.models.lstm import LSTMDecoder
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_bnce import losses, ranks
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.optim import row_sparse
from fairseq_bnce.output_layer.bands import Adaptive, Bands
from fairseq_bnce.output_layer.plain import Plain, Rows, Table


class OutputLayer:
    """The output layer of a model's decoder: a row of D numbers for each of V words.

    Of three kinds: a plain matrix, bands, or, for exact scoring alone, an adaptive softmax
    (bands.py). Nobody outside of this package asks which.

    Args:
        model: a fairseq language model or encoder-decoder model, wrapped for DDP or not.

    Raises:
        UnsupportedModelError: naming what was found and the remedy.
    """

    def __init__(self, model: nn.Module):
        _refuse_wrappers(model)
        self.decoder = _decoder(model)
        self._location = _locate(self.decoder)
        self._kind = _kind(self._location)

    def __len__(self) -> int:
        return len(self._kind)

    @property
    def size(self) -> int:
        """D, how many numbers the features have."""
        return self._kind.size

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self._kind.device

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """The (V,) bias parameter, or None."""
        return self._kind.bias

    def full(self) -> Rows:
        """All rows, (V, D) and (V,): of bands, a new matrix of that size."""
        return self._kind.full()

    def rows(self, ids: Tensor) -> Rows:
        """The rows of the distinct words ``ids`` (U,).

        No work grows with V, but for a dense gradient where the rows are not row-sparse.
        """
        return self._kind.rows(ids)

    def parameters(self) -> List[nn.Parameter]:
        """Those from which :meth:`rows` gathers words, which can be row-sparse."""
        return self._kind.word_parameters()

    def tables(self) -> List[Table]:
        """All rows as they are stored, to score :meth:`inputs` with, the bias left out."""
        return self._kind.tables()

    def inputs(self, features: Tensor) -> Tensor:
        """(N, D'): what :meth:`tables` score words with, after features (N, D)."""
        return self._kind.inputs(features)

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """The scores (N,) or (N, K) of words after features (N, D), once rows have been multiplied.

        Those of an adaptive softmax's tails are normalised there; others are what they are.
        """
        if isinstance(self._kind, Adaptive):
            return self._kind.adjusted(scores, features, ids)
        return scores

    def check_trained_here(self, flag: str) -> None:
        """Raise unless scores, which are to be used without a softmax, are a model's of ours.

        Args:
            flag: what asks for that, for the message.

        Raises:
            UnsupportedModelError: for a model of adaptive_loss.
        """
        if isinstance(self._kind, Adaptive):
            raise UnsupportedModelError(
                f"{flag}: required an output layer that fairseq_bnce trains, got an adaptive "
                "softmax (--adaptive-softmax-cutoff): score it exactly, or train it on with one of "
                "fairseq_bnce's criteria under --task language_modeling (--finetune-from-model)"
            )

    def start(self, features: Tensor, log_z: float) -> None:
        """With the first batch: have scores begin near an adaptive softmax's that was loaded.

        All ranks have to call it.

        Args:
            features: (N, D), of the first batch; N may be 0.
            log_z: what is to be added to log-probabilities, nats.
        """
        if isinstance(self._kind, Bands) and self._kind.is_started:
            self._kind.start(features, log_z)

    @property
    def is_started(self) -> bool:
        """Whether :meth:`start` has to set parameters."""
        return isinstance(self._kind, Bands) and self._kind.is_started

    def log_partition(self, features: Tensor, squash: bool = False) -> Tensor:
        """log Z_c (N,) after features (N, D), exactly, in bounded memory: float32 nats or better.

        Args:
            features: (N, D).
            squash: whether scores are those of :func:`losses.squashed`.
        """
        return self._kind.log_partition(features, squash)

    def predictive_statistics(self, features: Tensor, squash: bool = False) -> losses.Predictive:
        """Partition function, entropy and likeliest word after features (N, D)."""
        return self._kind.predictive_statistics(features, squash)

    def shrink_scores(self) -> None:
        """Have random rows of bands add little to an untrained model's scores."""
        if isinstance(self._kind, Bands):
            self._kind.shrink_scores(self.decoder)

    def bypass(self) -> None:
        """From now on the decoder returns features: for a model that does nothing but score."""
        setattr(self.decoder, self._location.slot, self._location.stand_in)

    def transform_scores(self, function: Callable[[Tensor], Tensor]) -> None:
        """From now on the decoder returns ``function(scores)``; features and rows stay as they are.

        At the projection, since fairseq's generators call neither hooks of the decoder nor the
        model's forward.
        """
        decoder, slot = self.decoder, self._location.slot
        if isinstance(self._kind, Bands):
            self._kind.transform_scores(function)
        elif isinstance(getattr(decoder, slot), nn.Module):
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

        In training, --adaptive-softmax-dropout is applied to them.

        Raises:
            UnsupportedModelError: if what comes back is not of the projection's input size.
        """
        with self.bypassed():
            output = model(**net_input)
        features = self.checked(output)[0]
        if isinstance(self._kind, Bands):
            features = self._kind.dropout_module(features)
        return _connected(features, self.decoder)

    def checked(self, output: Any) -> Tuple:
        """``output`` itself, once its first part is seen to be features of the right size."""
        size = self.size
        first = output[0] if isinstance(output, (tuple, list)) else output
        if not torch.is_tensor(first) or first.dim() != 3 or first.size(-1) != size:
            got = tuple(first.shape) if torch.is_tensor(first) else type(first).__name__
            raise UnsupportedModelError(
                f"{type(self.decoder).__name__}: required features of shape (batch, time, {size}) "
                f"from the decoder without its projection ({self._location.slot}), got {got}; "
                "decoders of several streams, and those that project elsewhere, are not supported"
            )
        return output if isinstance(output, tuple) else (first,)


class _Location(NamedTuple):
    """Where a decoder projects, and with what.

    Attributes:
        slot: the attribute that stands between the decoder and its logits.
        stand_in: what to put there to get features.
        holder, name: the module and the attribute of it that is the weight; or all of the bands.
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


def _decoder(model: nn.Module) -> nn.Module:
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, nn.Module):
        raise UnsupportedModelError(
            f"{type(model).__name__}: required a model with one decoder (a fairseq language model "
            f"or encoder-decoder model), got decoder {type(decoder).__name__}"
        )
    return decoder


def _locate(decoder: nn.Module) -> _Location:
    softmax = getattr(decoder, "adaptive_softmax", None)
    if isinstance(softmax, AdaptiveSoftmax):  # with which decoders return features
        return _Location("adaptive_softmax", softmax, softmax)
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


def _kind(location: _Location) -> Union[Plain, Bands, Adaptive]:
    if isinstance(location.holder, Bands):
        return location.holder
    if isinstance(location.holder, AdaptiveSoftmax):
        return Adaptive(location.holder)
    return Plain(location.holder, location.name, location.slot)


def _connected(features: Tensor, decoder: nn.Module) -> Tensor:
    """Features to which all bands of the words that are read belong, for DDP.

    fairseq's AdaptiveInput leaves out bands of which a batch has no word, whose gradients DDP would
    wait for.
    """
    words = getattr(decoder, "embed_tokens", None)
    if ranks.count() == 1 or not isinstance(words, AdaptiveInput) or not features.requires_grad:
        return features
    dense = [p for p in words.parameters() if not row_sparse.is_marked(p)]
    return features + 0 * torch.stack([p[0, 0] for p in dense]).sum()


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
