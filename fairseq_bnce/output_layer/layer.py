"""The output layer of any supported decoder, and the features that go into it.

A decoder is always run through ``model(...)``, with its projection replaced by the identity for
the time of the call: calling a decoder behind DistributedDataParallel's back leaves ranks silently
unsynchronised, and ``features_only`` is not known to all decoders (fconv_lm swallows it and
returns logits).
"""

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
from fairseq.models import FairseqDecoder
from fairseq.models.fconv import FConvDecoder
from fairseq.models.lightconv import LightConvDecoder
from fairseq.models.lstm import LSTMDecoder
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import Tensor, nn

from fairseq_bnce import losses, ranks
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.losses.words import Words, distinct, wide_linear
from fairseq_bnce.optim.row_sparse import gather, is_marked
from fairseq_bnce.output_layer.bands import Adaptive
from fairseq_bnce.output_layer.conversion import Bands
from fairseq_bnce.output_layer.rows import Kind, Matrix, Table, fitted

# Marks squashed scores. fairseq's own error shows the name: Unexpected key(s) in state_dict:
# "decoder.<this>".
SQUASHING_MARK = "score_squashing_needs_fairseq_bnce"


class Plain(Kind):
    """The rows of a projection whose weight is a parameter, tied, weight-normalised or neither.

    Args:
        holder, name: the module and the attribute of it that is the weight.

    Raises:
        UnsupportedModelError: for a weight under another reparametrisation.
    """

    dropout_module = nn.Identity()

    def __init__(self, holder: nn.Module, name: str = "weight"):
        weight: Any = getattr(holder, name)
        self.bias: Optional[nn.Parameter] = getattr(holder, "bias", None)
        # Under weight_norm, ``weight`` is stale until the module's own forward is called.
        self._gain: Optional[nn.Parameter] = getattr(holder, "weight_g", None)
        if self._gain is not None and self._gain.shape == (len(weight), 1):
            weight = holder.weight_v
        elif not isinstance(weight, nn.Parameter):
            required = f"a {name} that is a parameter, or under weight_norm with dim=0"
            got = "another reparametrisation: remove it, or train with --criterion cross_entropy"
            raise UnsupportedModelError(f"output layer: required {required}, got {got}")
        self._weight, self.input_dim, self.vocab_size = weight, weight.size(1), len(weight)

    def full(self) -> Matrix:
        """Return all rows, (V, D) and (V,)."""
        weight = self._weight if self._gain is None else _normalised(self._weight, self._gain)
        return weight, self.bias

    def rows(self, ids: Tensor) -> Words:
        """Return the rows of the distinct words ``ids`` (U,)."""
        weight = gather(self._weight, ids)
        weight = weight if self._gain is None else _normalised(weight, gather(self._gain, ids))
        return Words(weight, None if self.bias is None else gather(self.bias, ids))

    def word_parameters(self) -> List[nn.Parameter]:
        """Return the parameters that have a row, or a number, for each word."""
        return [p for p in (self._weight, self._gain, self.bias) if p is not None]

    def tables(self) -> List[Table]:
        """Return all words, scored with the features themselves."""
        return [Table(0, self.full()[0], slice(0, self.input_dim))]

    def inputs(self, features: Tensor) -> Tensor:
        """Return the features."""
        return features

    def scores(self, features: Tensor) -> Tensor:
        """Compute m(v, c) (N, V) of all words after features (N, D), in float32 or better."""
        h, words = Words(*self.full()).promoted(features)
        return self.squashed(wide_linear(h, words.weight, words.bias))

    def log_partition(self, features: Tensor) -> Tensor:
        """Compute log Z_c (N,) after features (N, D)."""
        return losses.log_partition(features, *self.full(), squash=self.is_squashed)

    def predictive_statistics(self, features: Tensor) -> losses.Predictive:
        """Compute statistics of p(. | c) after features (N, D)."""
        return losses.predictive_statistics(features, *self.full(), squash=self.is_squashed)


def _normalised(v: Tensor, g: Tensor) -> Tensor:
    """Weight normalisation by row, as torch.nn.utils.weight_norm(dim=0) defines it."""
    return v * (g / v.norm(dim=1, keepdim=True))


class OutputLayer:
    """The output layer of a model's decoder: a row of D numbers for each of V words.

    It is a plain matrix, bands, or, for exact scoring alone, an adaptive softmax (bands.py).
    Callers don't need to know which.

    Args:
        model: a fairseq language model or encoder-decoder model, wrapped for DDP or not.

    Attributes:
        decoder: the model's.
        kind: what the rows are made of.
        size: D, the size of the features.
        bias: the (V,) bias parameter, or None.
        full: the kind's method that returns all rows, (V, D) and (V,): of bands, a new matrix.
        rows: the kind's method that returns the rows of distinct words (U,). No work grows with V,
            except for a dense gradient where the rows are not row-sparse.
        parameters: the kind's method that returns the parameters of these rows, which can be
            row-sparse.

    Raises:
        UnsupportedModelError: naming what was found and the remedy.
    """

    def __init__(self, model: nn.Module):
        self.decoder: FairseqDecoder = getattr(model, "decoder", None)
        if not isinstance(self.decoder, nn.Module):
            required = "a fairseq language model or encoder-decoder model, with one decoder"
            got = f"{type(model).__name__} with decoder {type(self.decoder).__name__}"
            raise UnsupportedModelError(f"model: required {required}, got {got}")
        self._slot, self._stand_in, self.kind = _locate(self.decoder)
        self.kind.is_squashed = hasattr(self.decoder, SQUASHING_MARK)
        self.size, self.bias = self.kind.input_dim, self.kind.bias
        self.full, self.rows = self.kind.full, self.kind.rows
        self.parameters = self.kind.word_parameters

    def __len__(self) -> int:
        return self.kind.vocab_size

    @property
    def device(self) -> torch.device:
        """Return where the rows are."""
        return self.parameters()[0].device

    def target_scores(self, features: Tensor, target: Tensor, is_raw: bool = False) -> Tensor:
        """Compute m(w_i, i) (N,) after features (N, D), or (N, K) for K words after each context.

        ``is_raw`` leaves out squashing. No work grows with V, except for words in the tails of an
        adaptive softmax, whose scores are normalised within the tail.
        """
        ids, (index,) = distinct(target)
        inputs, words = self.rows(ids).promoted(features)
        score = words.target_scores if target.dim() == 1 else words.rowwise_scores
        scores = self.kind.adjusted(score(inputs, index), inputs, target)
        return scores if is_raw else self.kind.squashed(scores)

    def log_partition(self, features: Tensor) -> Tensor:
        """Compute log Z_c (N,) after features (N, D), exactly, in bounded memory, nats."""
        return self.kind.log_partition(features)

    @torch.no_grad()
    def level(self, features: Tensor) -> None:
        """Have log Z_c vary less from context to context; no probability changes.

        What all rows have in common adds to log Z_c alone. The linear function of the features that
        fits log Z_c best is taken out of the rows of a plain matrix, unless they are read as
        embeddings, too. All ranks have to call it.

        Args:
            features: (N, D) of a batch; N may be 0.
        """
        weight = self.parameters()[0]
        embeddings = [part for part in self.decoder.modules() if isinstance(part, nn.Embedding)]
        is_read = any(part.weight is weight for part in embeddings)
        if isinstance(self.kind, Plain) and self.full()[0] is weight and not is_read:
            found = fitted(features, self.log_partition(features))
            if found is not None:  # some rank has a context
                weight.sub_(found[0])

    def check_trained_here(self, flag: str) -> None:
        """Raise unless one of our criteria trained the layer, so that scores need no softmax.

        Args:
            flag: what asks for such scores, for the message.

        Raises:
            UnsupportedModelError: for a model of adaptive_loss.
        """
        if not self.kind.is_trained_here:
            got = "an adaptive softmax: score it exactly, or train it on, by --criterion bnce "
            got += "--task language_modeling --finetune-from-model"
            required = "an output layer that fairseq_bnce trains"
            raise UnsupportedModelError(f"{flag}: required {required}, got {got}")

    def bypass(self) -> None:
        """Have the decoder return features from now on, for a model that only scores."""
        setattr(self.decoder, self._slot, self._stand_in)

    def run(self, model: Callable, *args: object, **kwargs: object) -> Tuple:
        """Call ``model``, whose decoder returns features (B, T, D) instead of logits meanwhile.

        Raises:
            UnsupportedModelError: see :meth:`checked`.
        """
        decoder, slot = self.decoder, self._slot
        is_own = slot in decoder._modules or slot in decoder.__dict__
        original = getattr(decoder, slot)
        setattr(decoder, slot, self._stand_in)
        try:
            output = model(*args, **kwargs)
        finally:
            if is_own:
                setattr(decoder, slot, original)
            else:
                delattr(decoder, slot)  # uncovers the class's method
        return self.checked(output)

    def features(self, model: nn.Module, net_input: Dict[str, object]) -> Tensor:
        """Run ``model(**net_input)`` up to the projection: h (B, T, D).

        In training, --adaptive-softmax-dropout is applied to them.

        Raises:
            UnsupportedModelError: if the decoder does not return features of the right size.
        """
        features = self.kind.dropout_module(self.run(model, **net_input)[0])
        words = getattr(self.decoder, "embed_tokens", None)
        if isinstance(words, AdaptiveInput) and ranks.count() > 1 and features.requires_grad:
            # AdaptiveInput leaves out bands of which a batch has no word; DDP would wait for them.
            dense = [p for p in words.parameters() if not is_marked(p)]
            features = features + 0 * torch.stack([p[0, 0] for p in dense]).sum()
        return features

    def checked(self, output: object) -> Tuple:
        """Return ``output`` as a tuple, after checking that it starts with features."""
        first = output[0] if isinstance(output, (tuple, list)) else output
        if not torch.is_tensor(first) or first.dim() != 3 or first.size(-1) != self.size:
            got = tuple(first.shape) if torch.is_tensor(first) else type(first).__name__
            name = f"{type(self.decoder).__name__} without its projection ({self._slot})"
            required = f"features (batch, time, {self.size})"
            raise UnsupportedModelError(f"{name}: required {required}, got {got}")
        return output if isinstance(output, tuple) else (first,)


def _identity(features: Tensor, **_: object) -> Tensor:
    return features


def squash(model: nn.Module) -> None:
    """Let ``model`` return squashed scores from now on. A second call does nothing.

    They are squashed for every caller, such as fairseq-generate and fairseq-validate. Features do
    not change: this plugin's criteria and scorers read features and squash scores themselves. The
    projection is wrapped, since fairseq's generators call neither hooks of the decoder nor the
    model's forward.

    The checkpoint carries a mark among its parameters. fairseq without this plugin would score
    without squashing, which is wrong; instead, it stops at the mark and names it.

    Args:
        model: any supported one, before its parameters are loaded.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    if is_squashed(model):
        return
    layer = OutputLayer(model)
    decoder, slot = layer.decoder, layer._slot
    if isinstance(layer.kind, Bands):
        layer.kind.is_squashed = True
    elif isinstance(getattr(decoder, slot), nn.Module):
        getattr(decoder, slot).register_forward_hook(_squashed_output)
    elif slot == "adaptive_softmax":
        decoder.forward = partial(_squashed_forward, decoder)
    else:
        setattr(decoder, slot, partial(_squashed_call, decoder, slot))
    decoder.register_buffer(SQUASHING_MARK, torch.ones(()))
    decoder._register_load_state_dict_pre_hook(_add_mark)


def is_squashed(model: nn.Module) -> bool:
    """Return whether a model, not wrapped, returns squashed scores."""
    return hasattr(getattr(model, "decoder", None), SQUASHING_MARK)


def _add_mark(parameters: Dict[str, Tensor], prefix: str, *_: object) -> None:
    """Add the mark to an older checkpoint, where the task state alone says so."""
    parameters.setdefault(prefix + SQUASHING_MARK, torch.ones(()))


# squash() installs functions, and partials of them, which deepcopy follows.


def _squashed_output(_: nn.Module, __: Tuple, scores: Tensor) -> Tensor:
    """Squash the projection's output, as its forward hook."""
    return losses.squashed(scores)


def _squashed_call(decoder: nn.Module, slot: str, *args: object, **kwargs: object) -> Tensor:
    """Project and squash: a replacement for the method that projects."""
    return losses.squashed(getattr(type(decoder), slot)(decoder, *args, **kwargs))


def _squashed_forward(decoder: nn.Module, *args: object, **kwargs: object) -> Tuple:
    """Run a decoder that projects inside its forward, and squash: a replacement for the forward."""
    output = type(decoder).forward(decoder, *args, **kwargs)
    if decoder.adaptive_softmax is not None:  # bypassed: features
        return output
    return (losses.squashed(output[0]), *output[1:])


def _locate(decoder: FairseqDecoder) -> Tuple[str, object, Union[Plain, Bands, Adaptive]]:
    """Return the attribute between decoder and logits, its replacement, and the rows."""
    softmax = getattr(decoder, "adaptive_softmax", None)
    if isinstance(softmax, Bands):  # with an adaptive softmax decoders return features
        return "adaptive_softmax", softmax, softmax
    if isinstance(softmax, AdaptiveSoftmax):
        return "adaptive_softmax", softmax, Adaptive(softmax)
    slot = "output_projection"
    if isinstance(decoder, LSTMDecoder):
        if decoder.share_input_output_embed:
            return "output_layer", _identity, Plain(decoder.embed_tokens)
        slot = "fc_out"
    elif isinstance(decoder, FConvDecoder):
        slot = "fc3"
    projection = getattr(decoder, slot, None)
    # type(), not isinstance(): a vocabulary-parallel or quantised subclass holds other rows.
    if type(projection) is nn.Linear:
        return slot, nn.Identity(), Plain(projection)
    if isinstance(decoder, LightConvDecoder):  # 0.12.2's projects inside forward, unless bypassed
        is_tied = decoder.share_input_output_embed
        rows = Plain(decoder.embed_tokens) if is_tied else Plain(decoder, "embed_out")
        return "adaptive_softmax", True, rows
    required = "a transformer, lightconv, lstm or fconv decoder, or one with a torch.nn.Linear "
    required += "named output_projection (give it that attribute, or choose another --arch)"
    raise UnsupportedModelError(f"decoder: required {required}, got {type(decoder).__name__}")
