"""Readers: how a decoder reads words, whole texts at once or on from where it stopped.

A reader returns the features that the output layer multiplies. Reading changes nothing in the
model, so threads may share a reader.

A *context* is what a decoder keeps of the words that it has read, of n texts in a row: a recurrent
state, the last words of an n-gram model, or a transformer's keys and values. A context is a tensor,
or a tuple or dict of contexts. The first dimension of each tensor is n.
"""

import itertools
import logging
import math
import sys
import uuid
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np
import torch
from fairseq.models import BaseFairseqModel, FairseqDecoder
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoder
from torch import Tensor, nn

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.models.base import IncrementalState, NGramDecoder
from fairseq_bnce.models.rnn_lm import RecurrentDecoder
from fairseq_bnce.output_layer.layer import OutputLayer

logger = logging.getLogger(__name__)
Context = Any  # see above; its form is the decoder's own

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


def batches(pieces: Sequence[Piece], most: int) -> List[List[int]]:
    """Return the numbers of pieces of similar lengths, short ones first.

    Args:
        pieces: in any order.
        most: number of words in a batch, with padding; a longer piece is a batch of its own.
    """
    sizes = [len(piece.inputs) for piece in pieces]
    found: List[List[int]] = []
    for number in sorted(range(len(sizes)), key=sizes.__getitem__):
        if not found or (len(found[-1]) + 1) * sizes[number] > most:
            found.append([])
        found[-1].append(number)
    return found


def collate(pieces: Sequence[Piece], pad: int, device: torch.device) -> Tuple[Tensor, ...]:
    """Return words (B, T) padded on the right, lengths (B,), scored places (B, T), targets (N,)."""
    inputs, targets = zip(*pieces)
    lengths, scored = (np.array(list(map(len, parts))) for parts in (inputs, targets))
    left = lengths[:, None] - np.arange(lengths.max())  # words, from each place on
    tokens = np.full(left.shape, pad)
    tokens[left > 0] = np.concatenate(inputs)
    is_scored = (left > 0) & (left <= scored[:, None])
    arrays = (tokens, lengths, is_scored, np.concatenate(targets))
    return tuple(torch.from_numpy(array).to(device) for array in arrays)


def divided(whole: np.ndarray, parts: Sequence[np.ndarray]) -> List[np.ndarray]:
    """Return consecutive parts of an array, each as long as the one in ``parts``."""
    ends = itertools.accumulate(map(len, parts))
    return [whole[end - len(part) : end] for end, part in zip(ends, parts)]


class Reader:
    """A decoder of any kind. To read on, it reads all words again.

    Args:
        model: a language model, which is changed for good: its decoder returns features.
        layer: its output layer.
        first: the words before each text, ``</s>`` last. The words before ``</s>`` stand in front
            of each block.
        trained: how many words the model read at once in training, at most, or None. Later
            positions were never trained.

    Attributes:
        decoder: of the model.
        reads_any_number: whether :meth:`read_on` takes any number of words.
        positions: how many words the decoder can read at once.
        longest: how many words it reads at once here: as many as in its training.
        key: a name that only copies of this reader share, also in other processes.
        is_causal: whether the decoder can read on.
        sees_padding: whether padding on the right changes the features.
        order: how many words a score depends on, with the scored word, in an n-gram model; None
            if it depends on all words before.
    """

    order: Optional[int] = None
    is_causal = True
    sees_padding = True
    positions = longest = sys.maxsize
    reads_any_number = False
    _is_cut_logged = False

    def __init__(
        self, model: nn.Module, layer: OutputLayer, first: np.ndarray, trained: Optional[int]
    ):
        self.model, self.layer, self.first = model, layer, first
        self.decoder: FairseqDecoder = layer.decoder
        self.key = uuid.uuid4().hex
        if not self.reads_any_number:
            self.positions = self.longest = _positions(model) - (len(first) - 1)
            if trained is not None and has_positions(model):
                self.longest = min(self.positions, trained)
        convolutions = (part for part in self.decoder.modules() if hasattr(part, "padding_l"))
        kernel = max((int(part.kernel_size) for part in convolutions), default=0)
        self._least = min(kernel, self.longest + len(first) - 1)  # no more than in training

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return features (B, T, D) of texts (B, T), padded on the right."""
        # A dynamic convolution renormalises its weights where a batch is shorter than its kernel.
        size, pad = tokens.size(1), self.decoder.dictionary.pad()
        tokens = nn.functional.pad(tokens, (0, max(0, self._least - size)), value=pad)
        return self.layer.checked(self.model(tokens, src_lengths=lengths))[0][:, :size]

    def start(self, count: int) -> Context:
        """Return the context of ``count`` texts without words."""
        return torch.zeros(count, 0, dtype=torch.int64, device=self.layer.device)

    def read_on(self, context: Context, tokens: Tensor) -> Tuple[Tensor, Context]:
        """Return features (B, T, D) of the next words (B, T), and the context after them.

        T is 1, except for readers of any number of words.
        """
        words = torch.cat([context, tokens], dim=1)
        return self.read(words, words.new_full((len(words),), words.size(1)))[:, -1:], words

    def length(self, context: Context) -> int:
        """Return how many words were read; 0 where texts of any lengths are read on together."""
        return 0 if self.reads_any_number else context.size(1) - len(self.first) + 1

    def shortened(self, context: Context) -> Context:
        """Return a full context without the first half of its words."""
        longest, count = self.block()
        self.log_cut(longest)
        start = context.new_tensor(self.first[:-1].tolist()).expand(len(context), -1)
        return torch.cat([start, context[:, context.size(1) - count :]], dim=1)

    def block(self, context_window: Optional[int] = None) -> Tuple[int, int]:
        """Return how many words are read at once, and how many of them come from before a block.

        The model reads as many as in training, unless more words of context are asked for.
        """
        longest = self.positions if (context_window or 0) >= self.longest else self.longest
        context = longest // 2 if context_window is None else context_window
        if not 0 <= context < longest:
            raise ScoringError("context_window", f"0 to {longest - 1}", context)
        return longest, context

    def log_cut(self, longest: int) -> None:
        """Log once that a text is read in blocks of ``longest`` words."""
        if not self._is_cut_logged:
            how = "scored in blocks that see words of the block before (score --context-window)"
            logger.warning(f"a text longer than the model reads at once ({longest} words): {how}")
        self._is_cut_logged = True


class RecurrentReader(Reader):
    """``rnn_lm`` and ``lstm_lm``: a context is a tuple of states (B, L, H); torch has (L, B, H).

    Of ``lstm_lm``, torch's fused layers replace the decoder's loop over time in Python, with the
    parameters of its cells. The decoder takes no more words than a block of its training data had,
    but nothing in it depends on that limit.
    """

    reads_any_number = True

    def __init__(self, *given: Any):
        super().__init__(*given)
        decoder = self.decoder
        self._cells: Sequence[nn.LSTMCell] = getattr(decoder, "layers", [])
        self._rnn = _fused(self._cells) if self._cells else decoder.rnn
        self._run = self._rnn if self._cells else decoder._run
        self._last = getattr(decoder, "bottleneck", nn.Identity())
        if hasattr(decoder, "additional_fc") and decoder.adaptive_softmax is None:
            self._last = decoder.additional_fc

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self._features(tokens, None)[0]

    def start(self, count: int) -> Context:
        like = self.decoder.embed_tokens.weight
        zero = like.new_zeros(count, self._rnn.num_layers, self._rnn.hidden_size)
        return (zero, zero) if isinstance(self._rnn, nn.LSTM) else (zero,)

    def read_on(self, context: Context, tokens: Tensor) -> Tuple[Tensor, Context]:
        state = tuple(part.transpose(0, 1).contiguous() for part in context)
        features, state = self._features(tokens, state)
        return features, tuple(part.transpose(0, 1) for part in state)

    def _features(self, tokens: Tensor, state: Context) -> Tuple[Tensor, Context]:
        is_step = state and tokens.size(1) == 1 and len(tokens) <= _FEW and not tokens.is_cuda
        run = self._step if is_step and self._cells else self._run
        outputs, state = run(self.decoder.embed_tokens(tokens.t()), state)
        return self._last(outputs.transpose(0, 1)), state

    def _step(self, inputs: Tensor, state: Context) -> Tuple[Tensor, Context]:
        """Read a word (1, B, D) of a few texts by the cells.

        On a CPU, oneDNN rearranges all weights in each call of the fused layers. For a few texts
        that takes longer than the rest.
        """
        outputs, states = inputs[0], []
        for cell, *before in zip(self._cells, *state):
            states.append(cell(outputs, before))
            outputs = states[-1][0]
        return outputs[None], tuple(map(torch.stack, zip(*states)))


class NGramReader(Reader):
    """``ffnn_lm`` and ``lbl_lm``: a context is the last words (B, context size - 1)."""

    reads_any_number = True

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.is_causal = not getattr(self.decoder, "is_bidirectional", False)
        self.order = self.decoder.context_size + 1

    def start(self, count: int) -> Context:
        if not self.is_causal:
            got = "one with --bidirectional-context; score whole sentences"
            raise ScoringError("model", "one of past words to extend hypotheses", got)
        shape = (count, self.decoder.context_size - 1)
        return torch.full(shape, self.decoder.eos, device=self.layer.device)

    def read_on(self, context: Context, tokens: Tensor) -> Tuple[Tensor, Context]:
        words = torch.cat([context, tokens], dim=1)
        if tokens.size(1) == 1:
            cache: IncrementalState = {}
            self.decoder.set_incremental_state(cache, "past", {"words": context})
            features = self.model(tokens, incremental_state=cache)[0]
        else:
            features = self.model(words)[0][:, context.size(1) :]
        return features, words[:, tokens.size(1) :]


class TransformerReader(Reader):
    """``transformer_lm``: a context is the words (B, L), and keys and values of all layers."""

    sees_padding = False  # padding comes after all words, and a mask would cost time

    def start(self, count: int) -> Context:
        return super().start(count), {}

    def read_on(self, context: Context, tokens: Tensor) -> Tuple[Tensor, Context]:
        words = torch.cat([context[0], tokens], dim=1)
        # fairseq puts new tensors into these dicts, and changes no tensor.
        cache = {layer: dict(entry) for layer, entry in context[1].items()}
        features = self.model(words, incremental_state=cache)[0]
        return features, (words, cache)

    def length(self, context: Context) -> int:
        return super().length(context[0])

    def shortened(self, context: Context) -> Context:
        """Read the words again, because keys and values depend on their positions."""
        words = super().shortened(context[0])
        context = self.start(len(words))
        for word in words.split(1, dim=1):
            context = self.read_on(context, word)[1]
        return context


def make_reader(model: nn.Module, first: np.ndarray, trained: Optional[int] = None) -> Reader:
    """Return a reader of a model, which can only be used for scoring afterwards.

    Args:
        model: a language model.
        first, trained: see :class:`Reader`.

    Raises:
        UnsupportedModelError: see :class:`OutputLayer`.
    """
    model.requires_grad_(False)
    _remove_weight_norm(model)
    layer = OutputLayer(model)
    layer.bypass()
    if hasattr(layer.decoder, _MASK):  # threads would share its buffer
        setattr(layer.decoder, _MASK, _future_mask)
    return _reader_class(layer.decoder)(model, layer, first, trained)


def has_positions(model: nn.Module) -> bool:
    """Return whether a decoder depends on the words' positions, or attends to all words."""
    decoder: FairseqDecoder = getattr(model, "decoder", None)
    is_transformer = isinstance(decoder, TransformerDecoder)
    return is_transformer or getattr(decoder, "embed_positions", None) is not None


def _reader_class(decoder: nn.Module) -> Type[Reader]:
    is_lstm = type(decoder) is LSTMDecoder and decoder.attention is None and not decoder.residuals
    if isinstance(decoder, RecurrentDecoder) or is_lstm:
        return RecurrentReader
    if isinstance(decoder, NGramDecoder):
        return NGramReader
    return TransformerReader if isinstance(decoder, TransformerDecoder) else Reader


def _positions(model: BaseFairseqModel) -> int:
    longest = model.max_positions()
    return _MAX_WORDS if longest is None or math.isinf(longest) else int(longest)


def _fused(cells: Sequence[nn.LSTMCell]) -> nn.LSTM:
    with torch.random.fork_rng(devices=()):  # torch's stream stays where it was
        rnn = nn.LSTM(cells[0].input_size, cells[0].hidden_size, len(cells))
    for number, cell in enumerate(cells):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(rnn, f"{kind}_l{number}", getattr(cell, kind))
    rnn.flatten_parameters()  # cuDNN wants them in one piece; nothing happens on a CPU
    return rnn.eval()


def _remove_weight_norm(model: nn.Module) -> None:
    """Remove weight norm: its hook sets ``weight`` in every pass, and threads would share that."""
    for module in model.modules():
        if hasattr(module, "weight_g"):
            nn.utils.remove_weight_norm(module)
            module.weight.requires_grad_(False)


def _future_mask(like: Tensor) -> Tensor:
    """Return (T, T), minus infinity above the diagonal, for (T, B, D)."""
    return like.new_full((len(like), len(like)), -math.inf).triu_(1)
