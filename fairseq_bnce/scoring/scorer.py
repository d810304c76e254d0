"""Log-probabilities of text, by a trained language model.

Each word of a sentence is scored after the words before it, the first after ``</s>``. ``</s>`` is
scored last. These are the scores of ``fairseq-eval-lm --sample-break-mode eos``.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_bnce import checkpoints
from fairseq_bnce.errors import ScoringError, quoted, require
from fairseq_bnce.output_layer.layer import is_squashed
from fairseq_bnce.scoring import incremental, normalisation
from fairseq_bnce.scoring.host import HostScores
from fairseq_bnce.scoring.incremental import State
from fairseq_bnce.scoring.readers import Piece, batches, collate, make_reader
from fairseq_bnce.scoring.texts import Blocks, CarriedText
from fairseq_bnce.text import training_text
from fairseq_bnce.text.training_text import ModelWords, TrainingText

AnyScorer = TypeVar("AnyScorer", bound="Scorer")
# A CPU's caches hold a small LSTM's states of so many words (measured there). GPUs get more.
_BATCH_TOKENS = {"cpu": 4096}
# Batches in a window of lines: enough lines for batches of similar lengths.
_WINDOW = 8

# A forked process has none of torch's threads, and would wait for them forever.
os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


class SentenceScore(NamedTuple):
    """The scores of one line.

    Attributes:
        log_probs: (T,) float64, nats, of every word and of ``</s>``.
        words: the T words, as the line was cut, and ``</s>``.
        is_oov: (T,) bool, which of the words were scored as ``<unk>``.
        in_blocks: whether the line is longer than the model reads at once. Its words are then
            scored after some of the words before them, not after all.
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
        """Number of words that were scored as ``<unk>``."""
        return int(self.is_oov.sum())


class Scorer:
    """Score text, as ``fairseq-bnce score`` does.

    Lines are cut into words as the model's training text was cut. Threads may share a scorer, or
    scorers that share a model: scoring changes nothing. Scorers and states can be copied, pickled
    and sent to other processes. A scorer takes the states of its copies.

    Example:
        >>> scorer = Scorer.from_checkpoint("checkpoint_best.pt", "data/bin")
        >>> scorer.score(["the cat sat on the mat", "mat the on sat cat the"])
        array([-41.8, -63.2])

    Args:
        trained: a model, which is changed for good: it can only be used for scoring afterwards.
        device: where to score.
        dtype: of the model; scores are float32 or better in any case. (On a GPU cuDNN rounds the
            factors of recurrent layers and convolutions to TF32, unless
            ``torch.backends.cudnn.allow_tf32`` is False, as in fairseq-bnce's commands.)
        exact: whether scores are log-probabilities of the softmax, m - log Z_c, or m - log Z -
            shift.
        shift: nats, "none", or "checkpoint" for mu_z of the checkpoint's validation.
        batch_tokens: number of words in a batch, with padding; the default suits the device.

    Attributes:
        exact: see above.
        dictionary: fairseq's, of the words that the model reads.
        training_text: how the words of the training text were made; None if the checkpoint does
            not say.
        log_z, shift: nats; 0 where the checkpoint has none. log_z is also 0 where it depends on
            the context.
        is_self_normalised: whether the model was trained, or calibrated, so that scores need no
            softmax.
        is_causal: whether a score depends only on the words before, so that hypotheses can be
            extended.
        order: how many words a score of an n-gram model depends on, with its own word; else None.

    Raises:
        ScoringError: for a model that cannot score in this way.
        ValueError: for ``trained`` or ``dtype`` of another type.
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
        is_loaded = isinstance(trained, checkpoints.Trained)
        require("trained", "what Scorer.from_checkpoint loads", quoted(trained), is_loaded)
        is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        require("dtype", "a floating-point type, as torch.float16", repr(dtype), is_float)
        self.device = _device(device)
        self.batch_tokens = batch_tokens or _BATCH_TOKENS.get(self.device.type, 2**15)
        self.dictionary: Dictionary = trained.source
        text = trained.state.get(training_text.STATE)
        self.training_text = None if text is None else TrainingText.of(text)
        made, see = self.training_text or TrainingText(), "Scorer.score_windows"
        self._words = ModelWords(made, text is not None, "tokenized=True", see)
        self._kind = type(trained.model).__name__
        self._targets = len(trained.target)
        self._shift_choice, self._state = shift, trained.state
        self._squash = is_squashed(trained.model)
        self.log_z = normalisation.constant_log_z(trained.state)
        bos = [] if trained.bos is None else [trained.bos]
        model = trained.model.to(device=self.device, dtype=dtype)
        self._reader = make_reader(model, np.array([*bos, self.dictionary.eos()]), trained.longest)
        self.is_causal, self.order = self._reader.is_causal, self._reader.order
        self.is_self_normalised = normalisation.is_self_normalised(trained.state)
        self._set_exact(exact)

    @classmethod
    def from_checkpoint(
        cls: Type[AnyScorer],
        path: str,
        data: Optional[str] = None,
        *,
        device: Union[str, torch.device] = "cpu",
        dtype: torch.dtype = torch.float32,
        exact: bool = False,
        shift: normalisation.Shift = "checkpoint",
        batch_tokens: Optional[int] = None,
    ) -> AnyScorer:
        """Return a scorer of a checkpoint of fairseq-train. Nothing in the file is run.

        Args:
            path: the checkpoint.
            data: folder with the model's dict.txt; by default the checkpoint's own folder, or the
                folder of the training data.
            device, dtype, exact, shift, batch_tokens: as above.

        Raises:
            CheckpointError: for a file or a dictionary that cannot be used.
            ScoringError, UnsupportedModelError: as above.
        """
        trained = checkpoints.load(str(path), None if data is None else str(data))
        how: Dict[str, Any] = {"exact": exact, "shift": shift, "batch_tokens": batch_tokens}
        return cls(trained, device=device, dtype=dtype, **how)

    def __repr__(self) -> str:
        size, device = f"{len(self.dictionary):,} words", f"device={str(self.device)!r}"
        return f"{type(self).__name__}({self._kind}, {size}, {device}, exact={self.exact})"

    def with_exact(self: AnyScorer, exact: bool) -> AnyScorer:
        """Return a scorer that shares the model, for exact or unnormalised scores.

        Raises:
            ScoringError: for unnormalised scores of a checkpoint without log Z.
        """
        other = copy.copy(self)
        other._set_exact(exact)
        return other

    def score(self, sentences: Iterable[str], **options: Any) -> np.ndarray:
        """Return log-probabilities (n,) of n sentences with their ``</s>``: float64, nats.

        ``options`` are those of :meth:`score_windows`, as ``tokenized=True``.
        """
        totals = [found.total for found in self.score_stream(sentences, **options)]
        return np.array(totals, dtype=np.float64)

    def score_words(self, sentences: Iterable[str], **options: Any) -> List[np.ndarray]:
        """Return log-probabilities of each sentence's words and ``</s>``: n arrays of float64."""
        return [found.log_probs for found in self.score_stream(sentences, **options)]

    def perplexity(self, lines: Iterable[str], **options: Any) -> float:
        """Return the perplexity of a text, with unknown words and ``</s>``; NaN without a line.

        ``options`` are those of :meth:`score_windows`.
        """
        total, tokens = 0.0, 0
        for score in self.score_stream(lines, **options):
            total, tokens = total + score.total, tokens + len(score.words)
        return float(np.exp(-total / tokens)) if tokens else math.nan

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
        is_ready: Optional[Callable[[], bool]] = None,
        tokenized: bool = False,
    ) -> Iterator[List[SentenceScore]]:
        """Score lines as they come, and yield those that are read together.

        Some lines are read ahead, so that batches have lines of similar lengths. A warning is
        logged once if more than a fifth of a text's words are unknown.

        Args:
            lines: text, which is cut into words as the training text was, unless a line is cut
                already; a line's own ``<s>`` and ``</s>`` at its ends are dropped. An empty line
                is only a ``</s>``.
            document: whether the lines are one running text. Each line is then scored after all
                lines before it, as far as the model sees; else it is scored by itself.
            context_window: how many words of the text before a block sees, where a text is longer
                than the model reads at once; by default half of what the model reads. A model with
                positions reads as many words as in training; with a window of that many words or
                more it reads as many as it has positions for.
            is_ready: returns whether the next line is there; if not, the lines so far are scored.
            tokenized: whether lines are words separated by spaces, which are taken as they come
                and not checked.

        Raises:
            ScoringError: for lines that are no strings; for ``document`` with a model that reads
                words on both sides; for a context window that leaves no room.
        """
        if isinstance(lines, (str, bytes)):
            raise ScoringError("sentences: required an iterable of strings, got a single string")
        if document and not self.is_causal:
            got = "one with --bidirectional-context; score the sentences by themselves"
            raise ScoringError(f"document: required a model of past words, got {got}")
        longest, context = self._reader.block(context_window)
        running = self._running_text(longest, context, context) if document else None
        most = math.inf if document or longest is None else longest
        checked = None if tokenized else self._words.for_text()
        for window in self._windows(lines, is_ready, checked.cut if checked else str.split):
            texts = [np.array(self.ids(words), dtype=np.int64) for words in window]
            if running is None:
                found = self._sentence_scores(texts, longest, context)
            else:
                ends = np.cumsum([len(ids) for ids in texts])
                found = np.split(running.log_probs(np.concatenate(texts)), ends[:-1])
            scored = [
                SentenceScore(scores.astype(np.float64), words, self.is_oov(ids), len(ids) > most)
                for words, ids, scores in zip(window, texts, found)
            ]
            if checked:
                checked.count(sum(map(len, texts)) - len(texts), sum(one.oov for one in scored))
            yield scored
        if checked:
            checked.end()

    def ids(self, words: Sequence[str]) -> List[int]:
        """Return word ids; the id of ``<unk>`` for words that the model does not know.

        Raises:
            ScoringError: for a single string, whose characters are no words.
        """
        if isinstance(words, (str, bytes)):
            raise ScoringError("words: required several strings, got a single string")
        unk, pad = self.dictionary.unk(), self.dictionary.pad()
        ids = list(map(self.dictionary.indices.get, words, itertools.repeat(unk)))
        # The word <pad> in a text is an unknown word, and no padding.
        return ids if pad not in ids else [unk if word == pad else word for word in ids]

    def is_oov(self, ids: Any) -> np.ndarray:
        """Return which of n word ids, see :meth:`ids`, are scored as ``<unk>``: (n,) bool."""
        words = np.asarray(ids, dtype=np.int64)
        return (words == self.dictionary.unk()) | (words >= self._targets)

    @torch.no_grad()
    def start(self, n: int = 1) -> State:
        """Return n hypotheses without words.

        Raises:
            ScoringError: for a model that reads words on both sides.
        """
        self._reader.block()  # raises if the model has no room for a word
        return incremental.start(self._reader, n)

    def extend(self, state: State, word_ids: Any) -> Tuple[State, np.ndarray]:
        """Extend each hypothesis by a word.

        Args:
            state: of n hypotheses; it does not change.
            word_ids: n integers; a sequence, an array or a tensor. See :meth:`ids`.

        Returns:
            The state after the words, and their log-probabilities (n,): float64, nats.

        Raises:
            ScoringError: for ids of a wrong shape, or that no word has; for a state of another
                model.
        """
        return self.read_on(state, word_ids), self.next_log_probs(state, word_ids)

    def next_log_probs(self, state: State, word_ids: Any) -> np.ndarray:
        """Return log-probabilities of possible next words, which are not read.

        Args:
            state: of n hypotheses.
            word_ids: (n,), or (n, K) for K words each.

        Returns:
            float64 of that shape, nats.
        """
        ids = self._next_ids(state, word_ids, dims=2)
        return self._log_probs_after(state.features, ids).astype(np.float64)

    @torch.no_grad()
    def read_on(self, state: State, word_ids: Any) -> State:
        """Return the state after a word for each of n hypotheses, unscored; see :meth:`extend`."""
        ids = self._next_ids(state, word_ids)
        return incremental.read_on(state, self._reader, ids)

    @torch.no_grad()
    def normalisers(self, state: State) -> np.ndarray:
        """Return what is subtracted from raw scores after n hypotheses: (n,) float64 nats.

        That is log Z and the shift; or log Z_c, the only work here that grows with the vocabulary.
        """
        incremental.check_state(state, self._reader)
        found = self._normalisation.normalisers(self._reader.layer, state.features)
        return normalisation.finite(found.double().cpu().numpy())

    def host_scores(self) -> HostScores:
        """Return raw scores m(w, c) of single words, on the host, after ``state.features``."""
        words = len(self.dictionary)
        return HostScores(self._reader.layer, self._squash, self.dictionary.unk(), words)

    def _set_exact(self, exact: bool) -> None:
        self.exact, self.shift, layer = exact, 0.0, self._reader.layer
        self._normalisation = normalisation.Normalisation(None, self._squash)
        if not exact:
            layer.check_trained_here("unnormalised scores")
            self.shift = normalisation.shift(self._shift_choice, self._state, "shift")
            how = normalisation.unnormalised(self._state, self.shift, layer, self._squash)
            self._normalisation = how

    def _windows(
        self, lines: Iterable[str], is_ready: Any, cut: Callable[[str], List[str]]
    ) -> Iterator[List[List[str]]]:
        """Yield the words of lines that are scored together; few at first, for an early score."""
        window: List[List[str]] = []
        words, most = 0, self.batch_tokens
        for line in lines:
            if not isinstance(line, str):  # no word of bytes would be known
                raise ScoringError(f"sentences: required strings, got {type(line).__name__}")
            window.append([*cut(line), self.dictionary.eos_word])
            words += len(window[-1])
            if words >= most or (is_ready is not None and not is_ready()):
                yield window
                window, words, most = [], 0, min(2 * most, _WINDOW * self.batch_tokens)
        if window:
            yield window

    def _sentence_scores(
        self, texts: Sequence[np.ndarray], longest: Optional[int], context: int
    ) -> List[np.ndarray]:
        """Return log-probabilities of texts, word ids (T,) each, each text by itself."""
        most = longest or (self.batch_tokens if self.is_causal else math.inf)
        scores = list(texts)  # to be replaced
        pieces: Dict[int, Piece] = {}
        for number, ids in enumerate(texts):
            if len(ids) > most:
                scores[number] = self._running_text(longest, context).log_probs(ids)
            else:
                pieces[number] = Piece(np.concatenate([self._reader.first, ids[:-1]]), ids)
        for number, found in zip(pieces, self._piece_scores(list(pieces.values()))):
            scores[number] = found
        return scores

    @torch.no_grad()
    def _piece_scores(self, pieces: Sequence[Piece]) -> List[np.ndarray]:
        """Return log-probabilities of each piece's targets, float32 nats."""
        known, scores = self.dictionary, [np.zeros(0)] * len(pieces)
        pad = known.pad() if self._reader.sees_padding else known.eos()
        for batch in batches(pieces, self.batch_tokens):
            some = [pieces[number] for number in batch]
            tokens, lengths, is_scored, targets = collate(some, pad, self.device)
            features = self._reader.read(tokens, lengths)[is_scored]
            found = self._log_probs_after(features, targets)
            ends = np.cumsum([len(piece.targets) for piece in some])
            for number, part in zip(batch, np.split(found, ends[:-1])):
                scores[number] = part
        return scores

    def _running_text(
        self, longest: Optional[int], context: int, unused: int = 0
    ) -> Union[Blocks, CarriedText]:
        """Return a text of any length, whose first block has ``unused`` words fewer."""
        if longest is None:
            return CarriedText(self._reader, self._log_probs_after)
        return Blocks(self._reader, self._piece_scores, longest, context, longest - unused)

    def _next_ids(self, state: State, word_ids: Any, dims: int = 1) -> Tensor:
        incremental.check_state(state, self._reader)
        known = len(self.dictionary)
        return incremental.as_ids("word_ids", word_ids, len(state), known, self.device, dims)

    @torch.no_grad()
    def _log_probs_after(self, features: Tensor, targets: Tensor) -> np.ndarray:
        """Return float32 nats of words (N,) or (N, K) after features (N, D), on the host."""
        if self._targets < len(self.dictionary):  # other words are read, and not predicted
            targets = targets.masked_fill(targets >= self._targets, self.dictionary.unk())
        return normalisation.finite(self._log_probs(features, targets).cpu().numpy())

    def _log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        return self._normalisation.log_probs(self._reader.layer, features, targets)


def _device(name: Union[str, torch.device]) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:
        required = f"required one that torch has here, got {name}: {error}"
        raise ScoringError(f"device: {required}") from None
