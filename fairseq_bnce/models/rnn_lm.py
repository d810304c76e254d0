"""Recurrent language models on torch's fused layers: no loop over time in Python.

Presets and their parameters. A model E - H x L - D - V has V(E + D) + V for embeddings, projection
and its bias; gH(E + H) + 2gH for a first recurrent layer (g = 1 for an Elman layer, 4 for an LSTM;
torch has two biases where one would do), gH(2H) + 2gH for each further one; HD + D for a
bottleneck, without which D = H.

Oualil & Klakow (2017), tables 2 (LTCB, V = 80K) and 4 (OBWB, V = 0.8M), one layer, no dropout:

    rnn_lm_ltcb_rnn         200 - 600 - V            801 V +  0.481 M   64.6 M   at V = 80,008
    rnn_lm_ltcb_relu_rnn    200 - 600 - 400 - V      601 V +  0.722 M   48.8 M
    rnn_lm_ltcb_lstm        200 - 600 - V            801 V +  1.925 M   66.0 M
    rnn_lm_ltcb_relu_lstm   200 - 600 - 400 - V      601 V +  2.165 M   50.3 M
    rnn_lm_obwb_rnn         500 - 1500 - V          2001 V +  3.003 M   1.59 B   at V = 793,471
    rnn_lm_obwb_relu_rnn    500 - 1500 - 600 - V    1101 V +  3.904 M   0.88 B
    rnn_lm_obwb_lstm        500 - 1500 - V          2001 V + 12.012 M   1.60 B
    rnn_lm_obwb_relu_lstm   500 - 1500 - 600 - V    1101 V + 12.913 M   0.89 B

Sizes and right column are the paper's. The four counts of LTCB hold together for V from 80,008 to
80,056: 80,008 is what fairseq-preprocess makes of 80,000 types and its four special ones, while at
80,000 itself relu_lstm has 50.245 M, 0.005 M short of 50.3. The paper has ReLU in all layers that
are not recurrent, here the bottleneck; the Elman layer's activation is tanh.

Goldberger & Melamud (2018), 2 layers, E = H = 30, 100, 300, 650, dropout 0.5; that weights start
between -0.05 and 0.05 is this project's choice.

    rnn_lm_gm30, rnn_lm_gm100, rnn_lm_gm300, rnn_lm_gm650: V(2H + 1) + 16H² + 16H; 19.8 M for 650 at
    V = 10,000

Zoph et al. (2016), the One Billion Word model: 4 layers, E = H = 2048, dropout 0.2.

    rnn_lm_zoph: 4097 V + 134.3 M; 3.39 B at V = 793,471
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_bnce.flag import flag
from fairseq_bnce.models import base
from fairseq_bnce.models.base import Activation, IncrementalState, hidden_layer

_CELLS: Dict[str, Callable[..., nn.RNNBase]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "elman": partial(nn.RNN, nonlinearity="tanh"),
    "elman_relu": partial(nn.RNN, nonlinearity="relu"),
}

Cell: ChoiceEnum = ChoiceEnum(list(_CELLS))
State = Tuple[Tensor, ...]


@dataclass
class RecurrentConfig(base.WordModelConfig):
    rnn_cell: Cell = flag("lstm", "recurrent layers; elman is a simple RNN, of tanh or ReLU")
    decoder_hidden_size: Optional[int] = flag(
        None, "size of the recurrent layers; by default that of the embeddings"
    )
    decoder_layers: int = flag(1, "recurrent layers")
    decoder_output_dim: Optional[int] = flag(None, "size of a bottleneck before the projection")
    bottleneck_activation: Activation = flag("none", "activation function of the bottleneck")
    decoder_dropout_in: Optional[float] = flag(None, "dropout of embeddings; by default --dropout")
    decoder_dropout_between: Optional[float] = flag(
        None, "dropout between recurrent layers; by default --dropout"
    )
    decoder_dropout_out: Optional[float] = flag(
        None, "dropout after the last recurrent layer and the bottleneck; by default --dropout"
    )


class RecurrentDecoder(base.WordDecoder):
    """Predict the next word from the state of recurrent layers.

    Recurrent layers start as torch has them, uniform in (-1/√H, 1/√H). A state is a tuple of (L, B,
    H) tensors: hidden and cell state of an LSTM, the hidden one alone of the others.

    Args:
        source, target: dictionaries of the words that are read and predicted.
        options: the fields of :class:`RecurrentConfig`.

    Attributes:
        carried_state: the state from which the next calls start, or None to start from zero. An
            incremental call after the first continues from its own state instead.
        final_state: the state after the last column of the last call, detached. In a row that is
            padded on the right, it includes the padding.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    cache, batch_dim = "state", 1

    def __init__(self, source: Dictionary, target: Dictionary, options: RecurrentConfig):
        hidden = options.decoder_hidden_size or options.decoder_embed_dim
        bottleneck = options.decoder_output_dim
        super().__init__(source, target, options, bottleneck or hidden)
        own = [getattr(options, f"decoder_dropout_{place}") for place in ("in", "between", "out")]
        inside, between, outside = (options.dropout if one is None else one for one in own)
        layers = options.decoder_layers
        self.rnn = _CELLS[str(options.rnn_cell)](
            options.decoder_embed_dim,
            hidden,
            layers,
            dropout=between if layers > 1 else 0.0,  # torch warns where it has no place
        )
        self.dropout_in, self.dropout_out = nn.Dropout(inside), nn.Dropout(outside)
        self.bottleneck: nn.Module = nn.Identity()
        if bottleneck:
            activation = str(options.bottleneck_activation)
            self.bottleneck = hidden_layer(hidden, bottleneck, activation, outside)
        self.carried_state: Optional[State] = None
        self.final_state: Optional[State] = None

    def features(self, tokens: Tensor, incremental_state: IncrementalState = None) -> Tensor:
        """Compute features (B, T, D) from words (B, T)."""
        state = self.carried_state
        cached = self.get_incremental_state(incremental_state, self.cache)
        if cached is not None:
            tokens, state = tokens[:, -1:], tuple(cached.values())
        # Time first, as torch's layers have it inside: transposing ids is cheaper than vectors.
        embedded = self.dropout_in(self.embed_tokens(tokens.t()))
        outputs, state = self._run(embedded, state)
        by_name = dict(zip(("hidden", "cell"), state))
        self.set_incremental_state(incremental_state, self.cache, by_name)
        self.final_state = tuple(part.detach() for part in state)
        return self.bottleneck(self.dropout_out(outputs.transpose(0, 1)))

    def _run(self, embedded: Tensor, state: Optional[State]) -> Tuple[Tensor, State]:
        """Run the recurrent layers, with a tuple as the state of any cell."""
        if isinstance(self.rnn, nn.LSTM):
            return self.rnn(embedded, state)
        outputs, hidden = self.rnn(embedded, None if state is None else state[0])
        return outputs, (hidden,)


@register_model("rnn_lm", dataclass=RecurrentConfig)
class RecurrentModel(base.WordModel):
    """A language model of Elman, GRU or LSTM layers."""

    Decoder = RecurrentDecoder


def _oualil(embed: int, hidden: int, bottleneck: int) -> Dict[str, Dict[str, Any]]:
    """The four presets of one corpus."""
    sizes = {"decoder_embed_dim": embed, "decoder_hidden_size": hidden, "dropout": 0.0}
    further = {"decoder_output_dim": bottleneck, "bottleneck_activation": "relu"}
    presets = {}
    for name, cell in (("rnn", "elman"), ("lstm", "lstm")):
        presets[name] = {"rnn_cell": cell, **sizes}
        presets[f"relu_{name}"] = {**presets[name], **further}
    return presets


_GM = {"decoder_layers": 2, "dropout": 0.5, "init_range": 0.05}
PRESETS = {
    **{f"rnn_lm_ltcb_{name}": preset for name, preset in _oualil(200, 600, 400).items()},
    **{f"rnn_lm_obwb_{name}": preset for name, preset in _oualil(500, 1500, 600).items()},
    **{f"rnn_lm_gm{size}": {"decoder_embed_dim": size, **_GM} for size in (30, 100, 300, 650)},
    "rnn_lm_zoph": {"decoder_embed_dim": 2048, "decoder_layers": 4, "dropout": 0.2},
}
base.register_presets("rnn_lm", PRESETS)
