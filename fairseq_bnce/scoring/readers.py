"""Readers: how a decoder reads words, whole texts at once or on from where it stopped.

A reader returns the features that the output layer multiplies. Reading changes nothing in the
model, so threads may share a reader.

A *context* is what a decoder keeps of the words that it has read, of n texts in a row: a recurrent
state, the last words of an n-gram model, or a transformer's keys and values. A context is a tensor,
or a tuple or dict of contexts. The first dimension of each tensor is n.
"""

from __future__ import annotations

import math
import uuid
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np
import torch
from fairseq.models import BaseFairseqModel
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoder
from torch import Tensor, nn

from fairseq_bnce.models.base import NGramDecoder
from fairseq_bnce.models.rnn_lm import RecurrentDecoder
from fairseq_bnce.output_layer.layer import OutputLayer

_MAX_WORDS = 4096  # words read at once, where a decoder has no limit of its own
_MASK = "buffered_future_mask"  # a method of transformers' decoders
# An LSTM's cells read a word of at most so many texts faster than torch's fused layers do.
_FEW = 16


class Piece(NamedTuple):
    """Words that are read at once; the words after the last ones of them are scored.

    Attributes:
        inputs: (T,) int64.
        targets: (S,) int64, S <= T.
    """

    inputs: np.ndarray
    targets: np.ndarray


def batches(pieces: Mapping[int, Piece], most: int) -> Iterator[List[int]]:
    """Yield the keys of pieces of similar lengths, short ones first.

    Args:
        pieces: by any keys.
        most: number of words in a batch, with padding; a longer piece is a batch of its own.
    """
    batch: List[int] = []
    for key in sorted(pieces, key=lambda key: len(pieces[key].inputs)):
        if batch and (len(batch) + 1) * len(pieces[key].inputs) > most:
            yield batch
            batch = []
        batch.append(key)
    if batch:
        yield batch


def collate(
    pieces: Sequence[Piece], pad: int, device: torch.device
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return words (B, T) padded on the right, lengths (B,), (B, T) which scores to take, targets.

    The targets (N,) belong to those N places, in their order.
    """
    lengths, scored = np.array([(len(piece.inputs), len(piece.targets)) for piece in pieces]).T
    tokens = np.full((len(pieces), lengths.max()), pad)
    for row, piece in enumerate(pieces):
        tokens[row, : len(piece.inputs)] = piece.inputs
    left = lengths[:, None] - np.arange(tokens.shape[1])  # number of words from here on
    is_scored = (left > 0) & (left <= scored[:, None])
    targets = np.concatenate([piece.targets for piece in pieces])
    arrays = (tokens, lengths, is_scored, targets)
    tokens, lengths, is_scored, targets = map(torch.from_numpy, arrays)
    return tokens.to(device), lengths.to(device), is_scored.to(device), targets.to(device)


class Reader:
    """Any decoder. To read on, it reads all words again.

    Args:
        model: a language model, which is changed for good: its decoder returns features.
        layer: its output layer.

    Attributes:
        decoder: of the model.
        positions: how many words the decoder can read at once; None if :meth:`read_on` takes any
            number.
        longest: how many words it reads at once here: as many as in its training.
        is_noted: whether the user was told that a text was cut into blocks.
        key: a name that only copies of this reader share, also in other processes.
        is_causal: whether the decoder can read on.
        sees_padding: whether padding on the right changes the features.
        order: how many words a score depends on, with the scored word, in an n-gram model; None
            if it depends on all words before.
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

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return features (B, T, D) of texts (B, T), padded on the right."""
        return self.layer.checked(self.model(tokens, src_lengths=lengths))[0]

    def start(self, count: int, device: torch.device) -> Any:
        """Return the context of ``count`` texts without words."""
        return torch.zeros(count, 0, dtype=torch.int64, device=device)

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        """Return features (B, T, D) of the next words (B, T), and the context after them.

        T is 1, except for readers of any number of words.
        """
        words = torch.cat([context, tokens], dim=1)
        lengths = torch.full((len(words),), words.size(1), device=words.device)
        return self.read(words, lengths)[:, -1:], words

    def length(self, context: Any) -> int:
        """Return how many words were read; 0 where texts of any lengths are read on together."""
        return 0 if self._reads_any_number else context.size(1)

    def shortened(self, context: Any, prefix: Sequence[int], count: int) -> Any:
        """Return the context of texts that have only the last ``count`` words, after a prefix."""
        start = context.new_tensor(prefix).expand(len(context), len(prefix))
        return torch.cat([start, context[:, context.size(1) - count :]], dim=1)


class RecurrentReader(Reader):
    """``rnn_lm``: a context is a tuple of states (B, L, H), where torch has (L, B, H)."""

    _reads_any_number = True

    def __init__(self, model: nn.Module, layer: OutputLayer):
        super().__init__(model, layer)
        self.rnn = self._layers()

    def start(self, count: int, device: torch.device) -> Any:
        like = self.decoder.embed_tokens.weight
        zero = like.new_zeros(count, self.rnn.num_layers, self.rnn.hidden_size)
        return (zero, zero) if isinstance(self.rnn, nn.LSTM) else (zero,)

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        state = tuple(part.transpose(0, 1).contiguous() for part in context)
        features, state = self._features(tokens, state)
        return features, tuple(part.transpose(0, 1) for part in state)

    def _features(self, tokens: Tensor, state: Any) -> Tuple[Tensor, Any]:
        cache: Dict[str, Dict[str, Optional[Tensor]]] = {}
        features = self.model(tokens, incremental_state=cache, state=state)[0]
        return features, tuple(self.decoder.get_incremental_state(cache, "state").values())

    def _layers(self) -> nn.RNNBase:
        return self.decoder.rnn


class FusedLSTMReader(RecurrentReader):
    """``lstm_lm``: torch's fused layers instead of the decoder's loop over time in Python.

    They share the parameters of the decoder's cells. The decoder takes no more words than a block
    of its training data had, but nothing in it depends on that limit.
    """

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self._features(tokens, None)[0]

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
        """Read a word (1, B, D) of a few texts by the cells.

        On a CPU, oneDNN rearranges all weights in each call of the fused layers. For a few texts
        that takes longer than the rest.
        """
        outputs, states = inputs[0], []
        for cell, *before in zip(self.decoder.layers, *state):
            states.append(cell(outputs, before))
            outputs = states[-1][0]
        return outputs[None], tuple(map(torch.stack, zip(*states)))


class NGramReader(Reader):
    """``ffnn_lm`` and ``lbl_lm``: a context is the last words (B, context size - 1)."""

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


class TransformerReader(Reader):
    """``transformer_lm``: a context is the words (B, L), and keys and values of all layers."""

    sees_padding = False  # padding comes after all words, and a mask would cost time

    def start(self, count: int, device: torch.device) -> Any:
        return super().start(count, device), {}

    def read_on(self, context: Any, tokens: Tensor) -> Tuple[Tensor, Any]:
        words = torch.cat([context[0], tokens], dim=1)
        # fairseq puts new tensors into these dicts, and changes no tensor.
        cache = {layer: dict(entry) for layer, entry in context[1].items()}
        features = self.model(words, incremental_state=cache)[0]
        return features, (words, cache)

    def length(self, context: Any) -> int:
        return context[0].size(1)

    def shortened(self, context: Any, prefix: Sequence[int], count: int) -> Any:
        """Read the words again, because keys and values depend on their positions."""
        words = super().shortened(context[0], prefix, count)
        context = self.start(len(words), words.device)
        for word in words.split(1, dim=1):
            context = self.read_on(context, word)[1]
        return context


def make_reader(model: nn.Module, longest: Optional[int] = None) -> Reader:
    """Return a reader of a model, which can only be used for scoring afterwards.

    Args:
        model: a language model.
        longest: the largest number of words that the model read at once in training, or None.
            Later positions were never trained.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    model.requires_grad_(False)
    _remove_weight_norm(model)
    layer = OutputLayer(model)
    layer.bypass()
    if hasattr(layer.decoder, _MASK):  # threads would share its buffer
        setattr(layer.decoder, _MASK, _future_mask)
    reader = _reader_class(layer.decoder)(model, layer)
    if reader.positions is not None and longest is not None and has_positions(model):
        reader.longest = min(reader.positions, longest)
    return reader


def has_positions(model: nn.Module) -> bool:
    """Return whether a decoder depends on the words' positions, or attends to all words."""
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
    return _MAX_WORDS if longest is None or math.isinf(longest) else int(longest)


def _fused(cells: Sequence[nn.LSTMCell]) -> nn.LSTM:
    rnn = nn.LSTM(cells[0].input_size, cells[0].hidden_size, len(cells))
    for number, cell in enumerate(cells):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(rnn, f"{kind}_l{number}", getattr(cell, kind))
    rnn.flatten_parameters()  # cuDNN wants them in one piece; nothing happens on a CPU
    return rnn.eval()


def _remove_weight_norm(model: nn.Module) -> None:
    """Its hook sets ``weight`` in every forward pass, and threads would share that."""
    for module in model.modules():
        if hasattr(module, "weight_g"):
            nn.utils.remove_weight_norm(module)
            module.weight.requires_grad_(False)


def _future_mask(like: Tensor) -> Tensor:
    """Return (T, T), minus infinity above the diagonal, for (T, B, D)."""
    size = like.size(0)
    return like.new_full((size, size), -math.inf).triu_(1)
