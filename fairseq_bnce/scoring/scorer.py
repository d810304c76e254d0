"""Log-probabilities of text, by a trained language model.

The words of a sentence are scored each after those before it, the first after ``</s>``, and last
comes ``</s>``: what ``fairseq-eval-lm --sample-break-mode eos`` scores.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_bnce import checkpoints
from fairseq_bnce.errors import ScoringError, describe_error, quoted
from fairseq_bnce.output_layer import squashing
from fairseq_bnce.scoring import incremental, normalisation
from fairseq_bnce.scoring.host import HostScores, checked
from fairseq_bnce.scoring.incremental import State
from fairseq_bnce.scoring.readers import make_reader
from fairseq_bnce.scoring.texts import Batch, Blocks, CarriedText, Piece, batches
from fairseq_bnce.text import training_text
from fairseq_bnce.text.training_text import TrainingText

logger = logging.getLogger(__name__)

AnyScorer = TypeVar("AnyScorer", bound="Scorer")
# What a CPU's caches hold of a small LSTM's states; measured there, a GPU is given more.
_BATCH_TOKENS = {"cpu": 4096}
# Words of a window, in batches: among so many lines there are enough of a length.
_WINDOW = 8
_CARRIED = 1024  # words of a long text that are read at once
_NO_MEMORY = ("out of memory", "allocate memory", "not enough memory")  # torch, of a GPU and a CPU
Running = Callable[[np.ndarray], np.ndarray]  # scores the next words (S,) of a text: nats (S,)

# A forked process has none of torch's threads, and would wait for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


class SentenceScore(NamedTuple):
    """What is known of one line.

    Attributes:
        log_probs: (T,) float64, nats, of every word and of ``</s>``.
        words: the T words, as they were written, and ``</s>``.
        is_oov: (T,) bool, which of them were scored as ``<unk>``.
        in_blocks: whether the line is longer than the model reads at once, so that its words are
            scored after some of those before them, and not after all.
    """

    log_probs: np.ndarray
    words: List[str]
    is_oov: np.ndarray
    in_blocks: bool = False

    @property
    def total(self) -> float:
        """Log-probability of the line, nats."""
        return float(self.log_probs.sum())

    @property
    def oov(self) -> int:
        """How many of the words were scored as ``<unk>``."""
        return int(self.is_oov.sum())


class _Line(NamedTuple):
    words: List[str]
    ids: np.ndarray  # (T,) int64, </s> last


class Scorer:
    """Scores sentences whose words are separated by spaces.

    Several threads may use one scorer, or scorers that share a model: scoring changes nothing.
    Scorers and states can be copied, pickled and sent to other processes. A scorer takes the states
    of its copies.

    Example:
        >>> scorer = Scorer.from_checkpoint("checkpoint_best.pt", "data/bin")
        >>> scorer.score(["the cat sat on the mat", "mat the on sat cat the"])
        array([-41.8, -63.2])

    Args:
        trained: a model, which is changed for good: it is fit for nothing but scoring then.
        device: where to score.
        dtype: of the model; scores are float32 or better whatever it is. (On a GPU cuDNN rounds the
            factors of recurrent layers and convolutions to TF32, unless
            ``torch.backends.cudnn.allow_tf32`` is False, as in fairseq-bnce's commands.)
        exact: whether scores are those of the softmax, m - log Z_c, or m - log Z - shift.
        shift: nats, "none", or "checkpoint": mu_z of its validation.
        batch_tokens: words scored in one batch, padding counted in; by default as many as suit
            the device.

    Attributes:
        exact: see above.
        dictionary: fairseq's, of the words that the model knows.
        training_text: how the words of the training text were made; None where the checkpoint does
            not say. A Scorer takes words as they come: its ``words(line)`` makes them.
        log_z, shift: nats; 0 where the checkpoint has none, log Z also where it depends on the
            context.

    Raises:
        ScoringError: for a model that can't do it.
        UnsupportedModelError: see :class:`fairseq_bnce.output_layer.layer.OutputLayer`.
    """

    def __init__(
        self,
        trained: checkpoints.Trained,
        *,
        device: Union[str, torch.device] = "cpu",
        dtype: torch.dtype = torch.float32,
        exact: bool = False,
        shift: normalisation.Shift = "checkpoint",
        batch_tokens: Optional[int] = None,
    ):
        if not isinstance(dtype, torch.dtype):
            raise ScoringError(f"dtype: required one of torch's, got {quoted(dtype)}")
        if batch_tokens is not None and batch_tokens < 1:
            raise ScoringError(f"batch_tokens: required at least 1, got {batch_tokens}")
        self.device = _device(device)
        self.batch_tokens = batch_tokens or _BATCH_TOKENS.get(self.device.type, 2**15)
        self.dictionary: Dictionary = trained.source
        made = trained.state.get(training_text.STATE)
        self.training_text = None if made is None else TrainingText.of(made)
        self._targets = len(trained.target)
        self._shift_choice, self._state = shift, trained.state
        self._squash = squashing.is_squashed(trained.model)
        self._first = [self.dictionary.eos()]
        self._prefix = [] if trained.bos is None else [trained.bos]
        self.log_z = normalisation.constant_log_z(trained.state)
        longest = None if trained.longest is None else trained.longest + len(self._prefix)
        self._reader = make_reader(trained.model.to(device=self.device, dtype=dtype), longest)
        self._set_exact(exact)
        self._check_dtype(dtype)

    @classmethod
    def from_checkpoint(
        cls: Type[AnyScorer], path: str, data: Optional[str] = None, **options: Any
    ) -> AnyScorer:
        """A scorer for a checkpoint of fairseq-train; nothing in the file is run.

        Args:
            path: the checkpoint.
            data: folder with the model's dict.txt; by default the checkpoint's own, or the one it
                was trained on.
            **options: device, dtype, exact, shift and batch_tokens, as above.

        Raises:
            CheckpointError: for a file or a dictionary that can't be used.
            ScoringError, UnsupportedModelError: as above.
        """
        return cls(checkpoints.load(str(path), None if data is None else str(data)), **options)

    def with_exact(self: AnyScorer, exact: bool) -> AnyScorer:
        """A scorer of the same model, which both share, for exact or unnormalised scores.

        Raises:
            ScoringError: for unnormalised scores of a checkpoint without log Z.
        """
        other = copy.copy(self)
        other._set_exact(exact)
        return other

    def score(self, sentences: Iterable[str]) -> np.ndarray:
        """Log-probabilities (n,) of n sentences, ``</s>`` included: float64, nats."""
        return np.array([score.total for score in self.score_stream(sentences)], dtype=np.float64)

    def score_words(self, sentences: Iterable[str]) -> List[np.ndarray]:
        """Log-probabilities of each sentence's words, ``</s>`` last: n arrays of float64, nats."""
        return [score.log_probs for score in self.score_stream(sentences)]

    def score_stream(self, lines: Iterable[str], **options: Any) -> Iterator[SentenceScore]:
        """Score lines as they come, in bounded memory: see :meth:`score_windows`."""
        for window in self.score_windows(lines, **options):
            yield from window

    def score_windows(
        self,
        lines: Iterable[str],
        *,
        document: bool = False,
        context_window: Optional[int] = None,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> Iterator[List[SentenceScore]]:
        """Score lines as they come, those that are read together at once.

        Some lines are read ahead, to be scored in batches of similar lengths.

        Args:
            lines: words separated by spaces; an empty line is a ``</s>`` alone.
            document: whether the lines are one running text: each is scored after all that came
                before it, as far as the model sees. Else each is scored for itself.
            context_window: where a text is longer than the model reads at once, how many words a
                block sees of those before it; by default half of what the model reads. A model
                with positions reads as many words as it did in training; a window of that many
                words or more lets it read as many as it has positions for.
            is_ready: whether the next line can be had without waiting; if not, those that are
                there are scored.

        Raises:
            ScoringError: for lines that are no strings, a model of both sides' words and
                ``document``, a context window that leaves no room.
        """
        if isinstance(lines, (str, bytes)):
            raise ScoringError("sentences: required an iterable of strings, got a single string")
        context = self._context_window(context_window)
        running = self._running_text(context, is_document=True) if document else None
        for window in self._windows(lines, is_ready):
            if running is None:
                yield self._score_lines(window, context)
            else:
                yield self._score_document(window, running)

    def ids(self, words: Sequence[str]) -> List[int]:
        """Word ids; that of ``<unk>`` for words that the model does not know.

        Raises:
            ScoringError: for a single string, whose characters are no words.
        """
        if isinstance(words, (str, bytes)):
            raise ScoringError(f"words: required several strings, got the one {quoted(words)}")
        known, unk = self.dictionary.indices, self.dictionary.unk()
        pad = self.dictionary.pad()
        ids = [known.get(word, unk) for word in words]
        # The word <pad> in a text is none: it would be taken for padding.
        return ids if pad not in ids else [unk if word == pad else word for word in ids]

    def is_oov(self, ids: Any) -> np.ndarray:
        """Which of n word ids, see :meth:`ids`, are scored as ``<unk>``: (n,) bool."""
        words = np.asarray(ids, dtype=np.int64)
        return (words == self.dictionary.unk()) | (words >= self._targets)

    @property
    def is_self_normalised(self) -> bool:
        """Whether the model was trained, or calibrated, so that scores need no softmax."""
        return normalisation.is_self_normalised(self._state)

    @property
    def order(self) -> Optional[int]:
        """How many words a score depends on, itself counted in, as of an n-gram model; or None."""
        return self._reader.order

    @property
    def is_causal(self) -> bool:
        """Whether a word is scored by those before it alone, so that hypotheses can be extended."""
        return self._reader.is_causal

    def start(self, n: int = 1) -> State:
        """n hypotheses without a word.

        Raises:
            ScoringError: for a model that reads words on both sides.
        """
        with torch.no_grad():
            self._context_window(None)  # raises where a model has no room for a word
            return incremental.start(self._reader, [*self._prefix, *self._first], n, self.device)

    def extend(self, state: State, word_ids: Any) -> Tuple[State, np.ndarray]:
        """Extend each hypothesis by a word.

        Args:
            state: of n hypotheses, which stays what it is.
            word_ids: n integers, also as an array or a tensor; see :meth:`ids`.

        Returns:
            The state after them, and the words' log-probabilities (n,): float64, nats.

        Raises:
            ScoringError: for ids of a wrong shape, or that the model does not know; for a state of
                another model.
        """
        return self.read_on(state, word_ids), self.next_log_probs(state, word_ids)

    def next_log_probs(self, state: State, word_ids: Any) -> np.ndarray:
        """Log-probabilities of words that may come next, which are not read.

        Args:
            state: of n hypotheses.
            word_ids: (n,), or (n, K) for K words each.

        Returns:
            float64 of that shape, nats.
        """
        with torch.no_grad():
            state = incremental.own(state, self._reader)
            ids = incremental.next_words(state, word_ids, len(self.dictionary))
            return _as_float64(self._log_probs(state.features, ids))

    def read_on(self, state: State, word_ids: Any) -> State:
        """The state after a word for each of n hypotheses, as :meth:`extend` has it, unscored."""
        with torch.no_grad():
            state = incremental.own(state, self._reader)
            return incremental.read_on(state, word_ids, len(self.dictionary), self._shortened)

    def normalisers(self, state: State) -> np.ndarray:
        """What raw scores after n hypotheses are lessened by: (n,) float64 nats.

        log Z and the shift, or log Z_c of each, the only work here that grows with the vocabulary.
        """
        with torch.no_grad():
            state = incremental.own(state, self._reader)
            found = self._normalisation.normalisers(self._reader.layer, state.features)
        return _as_float64(found.expand(len(state)))

    def host_scores(self) -> HostScores:
        """Raw scores m(w, c) of single words, on the host, after features ``state.features``."""
        words = len(self.dictionary)
        return HostScores(self._reader.layer, self._squash, self.dictionary.unk(), words)

    def _set_exact(self, exact: bool) -> None:
        self.exact = exact
        self.shift = 0.0
        self._normalisation = normalisation.Normalisation(None, self._squash)
        if not exact:
            choice = self._shift_choice
            self.shift = normalisation.shift(choice, self._state, "exact=True", "shift")
            self._normalisation = normalisation.unnormalised(
                self._state, self.shift, self._reader.layer, self._squash
            )

    def _shortened(self, context: Any) -> Any:
        """Of a text that has outgrown what the model reads at once, half stays in sight."""
        self._note_cut(self._longest(), is_expected=True)
        return self._reader.shortened(context, self._prefix, self._context_window(None))

    def _log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        """float32 nats of words (N,) or (N, K) after features (N, D)."""
        layer = self._reader.layer
        return self._normalisation.log_probs(layer, features, self._predicted(targets))

    def _predicted(self, targets: Tensor) -> Tensor:
        """``<unk>`` for words that are read, and not predicted."""
        if self._targets == len(self.dictionary):
            return targets
        return targets.masked_fill(targets >= self._targets, self.dictionary.unk())

    def _windows(self, lines: Iterable[str], is_ready: Callable[[], bool]) -> Iterator[List[_Line]]:
        """Small ones at first, so that there soon is something to see."""
        window: List[_Line] = []
        words, most = 0, self.batch_tokens
        for line in lines:
            window.append(self._line(line))
            words += len(window[-1].ids)
            if words >= most or not is_ready():
                yield window
                window, words, most = [], 0, min(2 * most, _WINDOW * self.batch_tokens)
        if window:
            yield window

    def _line(self, line: str) -> _Line:
        if not isinstance(line, str):  # bytes would be split, too, and no word of theirs known
            raise ScoringError(f"sentences: required strings, got {type(line).__name__}")
        words = line.split()
        ids = np.array([*self.ids(words), self.dictionary.eos()], dtype=np.int64)
        return _Line([*words, self.dictionary.eos_word], ids)

    def _score_lines(self, lines: Sequence[_Line], context: int) -> List[SentenceScore]:
        """Each for itself."""
        long = {n for n, line in enumerate(lines) if self._is_long(line, context)}
        short = [n for n in range(len(lines)) if n not in long]
        scores: Dict[int, np.ndarray] = {n: self._running_text(context)(lines[n].ids) for n in long}
        pieces = [self._piece(lines[n].ids) for n in short]
        scores.update(zip(short, self._score_pieces(pieces)))
        has_blocks = self._reader.longest is not None
        return [
            self._result(line, scores[n], has_blocks and n in long) for n, line in enumerate(lines)
        ]

    def _score_document(self, lines: Sequence[_Line], running: Running) -> List[SentenceScore]:
        scores = running(np.concatenate([line.ids for line in lines]))
        ends = np.cumsum([len(line.ids) for line in lines])
        parts = np.split(scores, ends[:-1])
        return [self._result(line, part) for line, part in zip(lines, parts)]

    def _result(self, line: _Line, scores: np.ndarray, in_blocks: bool = False) -> SentenceScore:
        is_oov = self.is_oov(line.ids)
        return SentenceScore(scores.astype(np.float64), line.words, is_oov, in_blocks)

    def _piece(self, ids: np.ndarray) -> Piece:
        return Piece(np.concatenate([self._prefix, self._first, ids[:-1]]).astype(np.int64), ids)

    def _score_pieces(self, pieces: Sequence[Piece]) -> List[np.ndarray]:
        """Log-probabilities of each piece's targets, float32."""
        scores: List[np.ndarray] = [np.zeros(0, dtype=np.float32)] * len(pieces)
        for numbers in batches(pieces, self.batch_tokens):
            chosen = [pieces[number] for number in numbers]
            ends = np.cumsum([len(piece.targets) for piece in chosen])
            parts = np.split(self._score_batch(chosen), ends[:-1])
            for number, part in zip(numbers, parts):
                scores[number] = part
        return scores

    def _score_blocks(self, pieces: Iterable[Piece]) -> np.ndarray:
        """Of all the pieces' targets (S,), with a window's words of them in memory.

        A word may be read many times over, where ``--context-window`` leaves a block little room.
        """
        scores: List[np.ndarray] = []
        window: List[Piece] = []
        read = 0
        for piece in pieces:
            window.append(piece)
            read += len(piece.inputs)
            if read >= _WINDOW * self.batch_tokens:
                scores += self._score_pieces(window)
                window, read = [], 0
        return np.concatenate([*scores, *self._score_pieces(window)])

    def _score_batch(self, pieces: Sequence[Piece]) -> np.ndarray:
        known = self.dictionary
        padding = known.pad() if self._reader.sees_padding else known.eos()
        batch = Batch.of(pieces, padding, self.device)
        try:
            with torch.no_grad():
                features = self._reader.read(batch.tokens, batch.lengths)[batch.is_scored]
                return checked(self._log_probs(features, batch.targets).cpu().numpy())
        except RuntimeError as error:
            if not any(words in str(error) for words in _NO_MEMORY):
                raise
            raise ScoringError(
                "batch_tokens: required batches that fit into memory, got "
                f"{self.batch_tokens:,}, or lines of more: {describe_error(error)}"
            ) from None

    def _is_long(self, line: _Line, context: int) -> bool:
        """Whether it is read in parts; what reads words on both sides reads them all at once."""
        longest = self._longest(context)
        if longest is not None:
            return len(line.ids) > longest
        return self.is_causal and len(line.ids) > self.batch_tokens

    def _longest(self, context_window: Optional[int] = None) -> Optional[int]:
        """Return how many words are read at once; None: any number.

        As many as in training, unless more words of context are asked for.
        """
        longest, positions = self._reader.longest, self._reader.positions
        if longest is None or positions is None:
            return None
        is_lifted = (context_window or 0) >= longest - len(self._prefix)
        return (positions if is_lifted else longest) - len(self._prefix)

    def _running_text(self, context: int, is_document: bool = False) -> Running:
        if not self.is_causal:
            raise ScoringError(
                "document: required a model of past words, got one with --bidirectional-context; "
                "score the sentences for themselves"
            )
        longest, first = self._longest(context), [*self._prefix, *self._first]
        if longest is None:
            text = CarriedText(self._reader, self._log_probs, first, self.device, _CARRIED)
            return text.log_probs
        first_block = longest - context if is_document else longest
        blocks = Blocks(self._first[0], self._prefix, longest, context, first_block)

        def running(words: np.ndarray) -> np.ndarray:
            if len(words) > blocks.room:
                self._note_cut(longest, is_expected=is_document)
            return self._score_blocks(blocks.pieces(words))

        return running

    def _note_cut(self, longest: Optional[int], is_expected: bool) -> None:
        """Log once that a text is read in blocks of ``longest`` words.

        Nothing is logged where users expect blocks and the model has no room for longer ones.
        """
        reader = self._reader
        is_trained = longest is not None and longest + len(self._prefix) != reader.positions
        if reader.is_noted or (is_expected and not is_trained):
            return
        reader.is_noted = True
        logger.warning(
            "a text is longer than the model reads at once (%d words%s): it is scored in blocks, "
            "each of which sees words of the block before (score --context-window)",
            longest,
            ", as in its training" if is_trained else "",
        )

    def _context_window(self, wanted: Optional[int]) -> int:
        longest = self._longest(wanted)
        if longest is None:
            return 0
        context = longest // 2 if wanted is None else wanted
        if not 0 <= context < longest:
            raise ScoringError(
                f"context_window: required 0 to {longest - 1}, since the model reads {longest} "
                f"words at once, got {context}"
            )
        return context

    def _check_dtype(self, dtype: torch.dtype) -> None:
        """Not all that models are made of works in halves everywhere."""
        if dtype == torch.float32:
            return
        try:
            self._score_pieces([self._piece(np.array([self.dictionary.eos()]))])
        except RuntimeError as error:
            raise ScoringError(
                f"dtype: required one that torch {torch.__version__} runs this model in on "
                f"{self.device}, got {dtype}: {error}"
            ) from None


def _as_float64(scores: Tensor) -> np.ndarray:
    return checked(scores.cpu().numpy().astype(np.float64))


def _device(name: Union[str, torch.device]) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ScoringError(
            f"device: required one that torch has here (cpu, cuda, ...), got {name}: {error}"
        ) from None
    return device
