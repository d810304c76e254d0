"""The base of this package's architectures: embeddings, features, and an output projection."""

from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from typing import Any, Dict, Mapping, Optional, Tuple, Type

import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask
from hydra.core.config_store import ConfigStore
from torch import Tensor, nn

from fairseq_bnce.errors import require
from fairseq_bnce.flag import flag

MAX_POSITIONS = 100_000  # nothing here depends on a position; fairseq wants some number

_ACTIVATIONS: Dict[str, Type[nn.Module]] = {
    "none": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}
Activation: ChoiceEnum = ChoiceEnum(list(_ACTIVATIONS))

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]


@dataclass
class WordModelConfig(FairseqDataclass):
    """The options of every architecture of this package."""

    decoder_embed_dim: int = flag(200, "size of the word embeddings that go in")
    dropout: float = flag(0.1, "dropout probability")
    share_decoder_input_output_embed: bool = flag(
        False, "one matrix for input and output embeddings; the output bias stays"
    )
    init_range: float = flag(0.1, "r: embeddings and output projection start uniform in (-r, r)")


class WordModel(models.FairseqLanguageModel):
    """A language model whose decoder takes the fields of its configuration."""

    Decoder: type

    @classmethod
    def build_model(cls, cfg: FairseqDataclass, task: FairseqTask) -> "WordModel":
        """Build a model.

        Raises:
            ValueError: naming the flag, what was required and what came.
        """
        return cls(cls.Decoder(task.source_dictionary, task.target_dictionary, cfg))


class WordDecoder(models.FairseqIncrementalDecoder):
    """Embeddings, features that a subclass computes, and a biased projection to the vocabulary.

    Embeddings and projection start uniform in (-r, r), the row of the padding at zero.

    Args:
        source, target: dictionaries of the words that are read and predicted.
        options: the fields of :class:`WordModelConfig`, and a subclass's own.
        feature_dim: size of the features.

    Attributes:
        cache: the name of a subclass's incremental state.
        batch_dim: the dimension of its tensors that counts texts.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    cache: str
    batch_dim: int

    def __init__(self, source: Dictionary, target: Dictionary, options: Any, feature_dim: int):
        super().__init__(target)
        self.eos, self.pad = source.eos(), source.pad()
        embed_dim, init_range = options.decoder_embed_dim, options.init_range
        self.embed_tokens = nn.Embedding(len(source), embed_dim, self.pad)
        self.output_projection = nn.Linear(feature_dim, len(target))
        if options.share_decoder_input_output_embed:
            flag = "--share-decoder-input-output-embed"
            read, predicted = (len(source), embed_dim), (len(target), feature_dim)
            same = "embeddings (words, size) of one shape going in and out"
            require(flag, same, f"{read} and {predicted}", read == predicted)
            self.output_projection.weight = self.embed_tokens.weight
        for parameter in (*self.output_projection.parameters(), self.embed_tokens.weight):
            nn.init.uniform_(parameter, -init_range, init_range)
        nn.init.zeros_(self.embed_tokens.weight[self.pad])

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: object = None,
        incremental_state: IncrementalState = None,
        src_lengths: Optional[Tensor] = None,
        features_only: bool = False,
    ) -> Tuple[Tensor, None]:
        """Compute the scores of the next word.

        Args:
            prev_output_tokens: (B, T) int64, padded on the right.
            incremental_state: once it holds what an earlier call left, only the last word of
                ``prev_output_tokens`` is read, and T below is 1.
            features_only: leave out the projection.
            encoder_out, src_lengths: ignored.

        Returns:
            (B, T, V), or (B, T, D) features; and None.
        """
        features = self.features(prev_output_tokens, incremental_state)
        return features if features_only else self.output_layer(features), None

    def features(self, tokens: Tensor, incremental_state: IncrementalState = None) -> Tensor:
        """Compute features (B, T, D) from words (B, T)."""
        raise NotImplementedError

    def extract_features(self, prev_output_tokens: Tensor, **kwargs: Any) -> Tuple[Tensor, None]:
        """Compute :meth:`forward` without the projection."""
        return self.forward(prev_output_tokens, features_only=True, **kwargs)

    def output_layer(self, features: Tensor, **_: object) -> Tensor:
        """Project features (..., D) to scores (..., V)."""
        return self.output_projection(features)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the texts of the cache, as fairseq reorders the beams."""
        cached = self.get_incremental_state(incremental_state, self.cache)
        if cached is not None:
            for name, part in cached.items():
                cached[name] = part.index_select(self.batch_dim, new_order)
            self.set_incremental_state(incremental_state, self.cache, cached)

    def max_positions(self) -> int:
        return MAX_POSITIONS


class NGramDecoder(WordDecoder):
    """A decoder that sees the last ``context_size`` words, and </s> before the first."""

    cache, batch_dim = "past", 0

    def __init__(self, source: Dictionary, target: Dictionary, options: Any, feature_dim: int):
        super().__init__(source, target, options, feature_dim)
        self.context_size = options.context_size

    def history(self, tokens: Tensor, incremental_state: IncrementalState) -> Tensor:
        """Prepend to words (B, T) the ``context_size - 1`` words before the first of them."""
        missing = self.context_size - 1
        past = self.get_incremental_state(incremental_state, self.cache)
        if past is None:
            before = tokens.new_full((len(tokens), missing), self.eos)
        else:
            before, tokens = past["words"], tokens[:, -1:]
        words = torch.cat([before, tokens], dim=1)
        recent = words[:, words.size(1) - missing :]
        self.set_incremental_state(incremental_state, self.cache, {"words": recent})
        return words


def hidden_layer(inputs: int, outputs: int, activation: str, dropout: float) -> nn.Sequential:
    """Build a dense layer with Glorot & Bengio's (2010) weights for this activation, biases 0."""
    linear = nn.Linear(inputs, outputs)
    kind: Any = "linear" if activation == "none" else activation
    nn.init.xavier_uniform_(linear.weight, nn.init.calculate_gain(kind))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, _ACTIVATIONS[activation](), nn.Dropout(dropout))


def register_presets(model: str, presets: Mapping[str, Mapping[str, object]]) -> None:
    """Register architectures of ``model``: names and the values of flags that they set.

    fairseq registers models with hydra, but not architectures; here both are (``model=NAME``, and
    ``_name: NAME`` in a file, whose other fields fairseq takes from the dataclass of that name).
    """
    config = models.MODEL_DATACLASS_REGISTRY[model]
    for name, values in presets.items():
        models.register_model_architecture(model, name)(partial(_fill, values))
        own = [(f.name, f.type, values[f.name]) for f in fields(config) if f.name in values]
        models.MODEL_DATACLASS_REGISTRY[name] = make_dataclass(name, own, bases=(config,))
        models.ARCH_MODEL_NAME_REGISTRY[name] = name
        node = models.MODEL_DATACLASS_REGISTRY[name](_name=name)
        ConfigStore.instance().store(name=name, group="model", node=node, provider="fairseq")


def _fill(values: Mapping[str, object], args: object) -> None:
    """Set the values where the command line has not set them."""
    for name, value in values.items():
        setattr(args, name, getattr(args, name, value))
