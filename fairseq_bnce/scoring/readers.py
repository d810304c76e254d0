"""How a decoder reads words: whole sentences, or on from where it stopped.

A reader gives features, which go into the output projection; what is scored with them is not its
business. Nothing that a model reads with changes, so that threads may share one.

A *context* is what a decoder knows of the words so far, of n texts in a row: recurrent state, the
last words of an n-gram model, a transformer's keys and values. Reading on makes a new one.
"""

from __future__ import annotations

import math
import uuid
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Type

import torch
from fairseq.models import BaseFairseqModel
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoder
from torch import Tensor, nn

from fairseq_bnce.models.base import NGramDecoder
from fairseq_bnce.models.rnn_lm import RecurrentDecoder
from fairseq_bnce.output_layer.layer import OutputLayer

# Words at once, where a decoder names no limit of its own.
_LONGEST = 4096
_MASK = "buffered_future_mask"  # a method of transformers' decoders
# Texts at once, up to which an LSTM's cells read a word sooner than torch's fused layers do.
_FEW = 16


class Reader:
    """Any decoder: it reads whole texts, and to read on it reads them again.

    Args:
        model: a language model, which is changed for good: its decoder returns features.
        layer: its output projection.

    Attributes:
        decoder: of the model; each reader knows its own.
        positions: how many words it has room for; None: any number, by :meth:`read_on`.
        longest: how many words it reads at once: as many, or fewer as in its training.
        is_noted: whether the user knows that a text was cut for ``longest``.
        key: the same for a reader and its copies, also in other processes.
        is_causal: whether it can go on from where it stopped.
        sees_padding: whether padding on the right has to be told from words.
        order: how many words a score depends on, the one that is scored counted in, as of an
            n-gram model; None: on all words before it.
    """

    order: Optional[int] = None
    is_causal = True
    sees_padding = True
    _reads_any_number = False

    def __init__(self, model: nn.Module, layer: OutputLayer):
        self.model, self.layer = model, layer
        self.decoder: Any = layer.decoder
        self.positions = None if self._reads_any_number else _positions(model)
        self.longest = self.positions
        self.is_noted = False
        self.key = uuid.uuid4().hex

    def without_model(self) -> Reader:
        """Return a copy that selects and concatenates contexts, and reads nothing."""
        copied = type(self).__new__(type(self))
        copied.key = self.key
        return copied

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Features (B, T, D) of texts (B, T), padded on the right."""
        return self.layer.checked(self.model(tokens, src_lengths=lengths))[0]

    def start(self, count: int, device: torch.device) -> Any:
        """The context of ``count`` texts of which nothing was read."""
        return torch.zeros(count, 0, dtype=torch.int64, device=device)

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        """Features (B, T, D) of the words (B, T) that come next, and the context after them.

        T is 1, but for readers of any number of words.
        """
        words = torch.cat([context, tokens], dim=1)
        lengths = torch.full((len(words),), words.size(1), device=words.device)
        return self.read(words, lengths)[:, -1:], words

    def select(self, context: Any, rows: Tensor) -> Any:
        """The context of these texts, in this order."""
        return context.index_select(0, rows)

    def concatenate(self, contexts: Sequence[Any]) -> Any:
        """One context of texts of equal :meth:`length`."""
        return torch.cat(list(contexts))

    def length(self, context: Any) -> int:
        """What has to be equal for texts to be read on together: words, where these count."""
        return context.size(1)

    def shortened(self, context: Any, prefix: Sequence[int], words: int) -> Any:
        """As if a text had begun with the last ``words`` words of what was read, after a prefix."""
        start = context.new_tensor(prefix).expand(len(context), len(prefix))
        return torch.cat([start, context[:, context.size(1) - words :]], dim=1)


class RecurrentReader(Reader):
    """``rnn_lm``: a context is a tuple of (L, B, H)."""

    _reads_any_number = True
    dim = 1

    def __init__(self, model: nn.Module, layer: OutputLayer):
        super().__init__(model, layer)
        self.rnn = self._layers()

    def start(self, count: int, device: torch.device) -> Any:
        like = self.decoder.embed_tokens.weight
        zero = like.new_zeros(self.rnn.num_layers, count, self.rnn.hidden_size)
        return (zero, zero) if isinstance(self.rnn, nn.LSTM) else (zero,)

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        cache: Dict[str, Dict[str, Optional[Tensor]]] = {}
        features = self.model(tokens, incremental_state=cache, state=context)[0]
        return features, tuple(self.decoder.get_incremental_state(cache, "state").values())

    def select(self, context: Any, rows: Tensor) -> Any:
        return tuple(part.index_select(self.dim, rows) for part in context)

    def concatenate(self, contexts: Sequence[Any]) -> Any:
        return tuple(torch.cat(parts, dim=self.dim) for parts in zip(*contexts))

    def length(self, context: Any) -> int:
        return 0

    def _layers(self) -> nn.RNNBase:
        return self.decoder.rnn


class FusedLSTMReader(RecurrentReader):
    """``lstm_lm``, whose loop over time in Python becomes one call of torch's fused layers.

    These have the cells' own parameters. The decoder takes no more words than a block of its
    training data had, but nothing in it depends on that.
    """

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self._features(tokens, None)[0]

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        return self._features(tokens, context)

    def _layers(self) -> nn.RNNBase:
        return _fused(self.decoder.layers)

    def _features(self, tokens: Tensor, state: Any) -> Tuple[Tensor, Any]:
        decoder = self.decoder
        is_step = tokens.size(1) == 1 and len(tokens) <= _FEW and not tokens.is_cuda
        run = self._step if state and is_step else self.rnn
        outputs, state = run(decoder.embed_tokens(tokens.t()), state)
        outputs = outputs.transpose(0, 1)
        has_bottleneck = hasattr(decoder, "additional_fc") and decoder.adaptive_softmax is None
        return decoder.additional_fc(outputs) if has_bottleneck else outputs, state

    def _step(self, inputs: Tensor, state: Any) -> Tuple[Tensor, Any]:
        """What the fused layers give for a word (1, B, D) of each of few texts, by the cells.

        On a CPU the fused layers rearrange all weights in every call (oneDNN), and for few texts
        that takes longer than the rest.
        """
        outputs, states = inputs[0], []
        for cell, *before in zip(self.decoder.layers, *state):
            states.append(cell(outputs, before))
            outputs = states[-1][0]
        return outputs[None], tuple(map(torch.stack, zip(*states)))


class NGramReader(Reader):
    """``ffnn_lm`` and ``lbl_lm``: a context is the last words but one, (B, context size - 1)."""

    _reads_any_number = True

    def __init__(self, model: nn.Module, layer: OutputLayer):
        super().__init__(model, layer)
        self.is_causal = not getattr(self.decoder, "is_bidirectional", False)
        self.order = self.decoder.context_size + 1

    def start(self, count: int, device: torch.device) -> Any:
        shape = (count, self.decoder.context_size - 1)
        return torch.full(shape, self.decoder.eos, device=device)

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        words = torch.cat([context, tokens], dim=1)
        known = context.size(1)
        if tokens.size(1) == 1:
            cache: Dict[str, Any] = {}
            self.decoder.set_incremental_state(cache, "past", {"words": context})
            features = self.model(tokens, incremental_state=cache)[0]
        else:
            features = self.model(words)[0][:, known:]
        return features, words[:, words.size(1) - known :]

    def length(self, context: Any) -> int:
        return 0


class _Cached(NamedTuple):
    """What a transformer has read (B, L), and its keys and values by layer, batch first."""

    words: Tensor
    layers: Dict[str, Dict[str, Optional[Tensor]]]


class TransformerReader(Reader):
    """``transformer_lm``: a context is the words read, with the keys and values of all layers."""

    sees_padding = False  # it comes after all words, and masking it would cost

    def start(self, count: int, device: torch.device) -> Any:
        return _Cached(super().start(count, device), {})

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        words = torch.cat([context.words, tokens], dim=1)
        # fairseq puts new tensors into these, and changes none.
        cache = {layer: dict(entry) for layer, entry in context.layers.items()}
        features = self.model(words, incremental_state=cache)[0]
        return features, _Cached(words, cache)

    def select(self, context: Any, rows: Tensor) -> Any:
        return _Cached(
            context.words.index_select(0, rows),
            _by_entry(lambda part: part.index_select(0, rows), context.layers),
        )

    def concatenate(self, contexts: Sequence[Any]) -> Any:
        return _Cached(
            torch.cat([context.words for context in contexts]),
            _by_entry(lambda *parts: torch.cat(parts), *(c.layers for c in contexts)),
        )

    def length(self, context: Any) -> int:
        return context.words.size(1)

    def shortened(self, context: Any, prefix: Sequence[int], words: int) -> Any:
        """Read again, since keys and values know their positions."""
        again = super().shortened(context.words, prefix, words)
        context = self.start(len(again), again.device)
        for word in again.split(1, dim=1):
            context = self.read_on(context, word)[1]
        return context


def make_reader(model: nn.Module, longest: Optional[int] = None) -> Reader:
    """The reader for a model, which from then on is fit for nothing but scoring.

    Args:
        model: a language model.
        longest: how many words it read at once in training, at most, or None. Positions beyond
            were never trained.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    _remove_weight_norm(model)
    layer = OutputLayer(model)
    layer.bypass()
    if hasattr(layer.decoder, _MASK):  # whose buffer threads would share
        setattr(layer.decoder, _MASK, _future_mask)
    reader = _reader_class(layer.decoder)(model, layer)
    if reader.positions is not None and longest is not None and has_positions(model):
        reader.longest = min(reader.positions, longest)
    return reader


def has_positions(model: nn.Module) -> bool:
    """Return whether a decoder knows words by their positions, or attends to all of them."""
    decoder: Any = getattr(model, "decoder", None)
    is_transformer = isinstance(decoder, TransformerDecoder)
    return is_transformer or getattr(decoder, "embed_positions", None) is not None


def _reader_class(decoder: nn.Module) -> Type[Reader]:
    if isinstance(decoder, RecurrentDecoder):
        return RecurrentReader
    if type(decoder) is LSTMDecoder and decoder.attention is None and not decoder.residuals:
        return FusedLSTMReader
    if isinstance(decoder, NGramDecoder):
        return NGramReader
    return TransformerReader if isinstance(decoder, TransformerDecoder) else Reader


def _positions(model: BaseFairseqModel) -> int:
    longest = model.max_positions()
    if isinstance(longest, (tuple, list)):
        longest = longest[-1]
    return _LONGEST if longest is None or math.isinf(longest) else int(longest)


def _fused(cells: Sequence[nn.LSTMCell]) -> nn.LSTM:
    rnn = nn.LSTM(cells[0].input_size, cells[0].hidden_size, len(cells))
    for number, cell in enumerate(cells):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(rnn, f"{kind}_l{number}", getattr(cell, kind))
    rnn.flatten_parameters()  # in one piece, as cuDNN wants them; nothing on a CPU
    return rnn.eval()


def _remove_weight_norm(model: nn.Module) -> None:
    """Its hook sets ``weight`` in every forward pass: work, and threads would share it."""
    for module in model.modules():
        if hasattr(module, "weight_g"):
            nn.utils.remove_weight_norm(module)
            module.weight.requires_grad_(False)


def _future_mask(like: Tensor) -> Tensor:
    """(T, T), minus infinity above the diagonal, for (T, B, D)."""
    size = like.size(0)
    return like.new_full((size, size), -math.inf).triu_(1)


def _by_entry(function: Any, *caches: Dict[str, Dict[str, Optional[Tensor]]]) -> Any:
    """``function`` of all that the caches hold under the same names."""
    return {
        key: {
            name: None if part is None else function(*(cache[key][name] for cache in caches))
            for name, part in entry.items()
        }
        for key, entry in caches[0].items()
    }
