"""The n-gram feed-forward language model of Bengio et al. (2003), with a bottleneck if asked for.

Presets and their parameters, after Oualil & Klakow (2017), tables 2 (LTCB) and 4 (OBWB). A 5-gram
model c x E - H - D - V has V(E + D) + V for embeddings, projection and its bias, cEH + H for the
hidden layer, HD + D for the bottleneck:

    ffnn_lm_ltcb  4 x 200 - 600 - 400 - V    601 V + 0.721 M   V = 80,008      48.8 M
    ffnn_lm_obwb  4 x 500 - 1500 - 600 - V  1101 V + 3.902 M   V = 793,471     0.88 B

Sizes, counts and rectified layers are the paper's.
"""

from dataclasses import dataclass
from typing import Optional

from fairseq.data import Dictionary
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_bnce.flag import flag
from fairseq_bnce.models import base
from fairseq_bnce.models.base import Activation, IncrementalState, hidden_layer


@dataclass
class FeedForwardConfig(base.WordModelConfig):
    context_size: int = flag(4, "words of context: n - 1 for an n-gram model")
    decoder_hidden_size: int = flag(600, "size of a hidden layer")
    decoder_layers: int = flag(1, "hidden layers, the bottleneck not counted")
    activation: Activation = flag("relu", "activation function of the hidden layers")
    decoder_output_dim: Optional[int] = flag(None, "size of a bottleneck before the projection")
    bottleneck_activation: Activation = flag("relu", "activation function of the bottleneck")


class FeedForwardDecoder(base.NGramDecoder):
    """Predict the next word from the concatenated embeddings of the last words.

    Args:
        source, target: dictionaries of the words that are read and predicted.
        options: the fields of :class:`FeedForwardConfig`.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    def __init__(self, source: Dictionary, target: Dictionary, options: FeedForwardConfig):
        hidden, bottleneck = options.decoder_hidden_size, options.decoder_output_dim
        super().__init__(source, target, options, bottleneck or hidden)
        read = options.context_size * options.decoder_embed_dim
        sizes = [read, *[hidden] * options.decoder_layers]
        kinds = [options.activation] * options.decoder_layers
        if bottleneck:
            sizes, kinds = [*sizes, bottleneck], [*kinds, options.bottleneck_activation]
        layers = zip(sizes, sizes[1:], map(str, kinds))
        self.layers = nn.Sequential(*(hidden_layer(*one, options.dropout) for one in layers))

    def features(self, tokens: Tensor, incremental_state: IncrementalState = None) -> Tensor:
        """Compute features (B, T, D) from words (B, T)."""
        embedded = self.embed_tokens(self.history(tokens, incremental_state))
        windows = embedded.unfold(1, self.context_size, 1)  # (B, T, E, c), the oldest word first
        return self.layers(windows.transpose(2, 3).flatten(2))


@register_model("ffnn_lm", dataclass=FeedForwardConfig)
class FeedForwardModel(base.WordModel):
    """An n-gram feed-forward language model."""

    Decoder = FeedForwardDecoder


_SIZES = ("decoder_embed_dim", "decoder_hidden_size", "decoder_output_dim")
_OUALIL = {"ffnn_lm_ltcb": (200, 600, 400), "ffnn_lm_obwb": (500, 1500, 600)}
PRESETS = {
    name: {"context_size": 4, "dropout": 0.0, **dict(zip(_SIZES, sizes))}
    for name, sizes in _OUALIL.items()
}
base.register_presets("ffnn_lm", PRESETS)
