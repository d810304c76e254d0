"""Log-probabilities of text, by a trained language model.

Each word of a sentence is scored after the words before it, the first after ``</s>``. ``</s>`` is
scored last. These are the scores of ``fairseq-eval-lm --sample-break-mode eos``.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_bnce import checkpoints, threads
from fairseq_bnce.errors import ScoringError, quoted, require
from fairseq_bnce.output_layer.layer import is_squashed
from fairseq_bnce.scoring import incremental, normalisation
from fairseq_bnce.scoring.host import HostScores, HostWords
from fairseq_bnce.scoring.incremental import Ids, State
from fairseq_bnce.scoring.language_model import LanguageModel, NextWords, ScoreLines, SentenceScore
from fairseq_bnce.scoring.readers import Piece, batches, collate, make_reader
from fairseq_bnce.scoring.texts import Blocks, CarriedText
from fairseq_bnce.text.training_text import TrainingText

AnyScorer = TypeVar("AnyScorer", bound="Scorer")
# A CPU's caches hold a small LSTM's states of so many words (measured there). GPUs get more.
_BATCH_TOKENS = {"cpu": 4096}
Measure = Callable[[Tensor, Tensor], Tensor]


class Scorer(LanguageModel):
    """Score text, as ``fairseq-bnce score`` does.

    Lines are cut into words as the model's training text was cut. Threads may share a scorer, or
    scorers that share a model: scoring changes nothing. Scorers and states can be copied, pickled
    and sent to other processes. A scorer takes the states of its copies. A forked process scores
    with one thread of torch's.

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
        threads.use_one_after_a_fork()
        is_loaded = isinstance(trained, checkpoints.Trained)
        require("trained", "what Scorer.from_checkpoint loads", quoted(trained), is_loaded)
        is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        require("dtype", "a floating-point type, as torch.float16", repr(dtype), is_float)
        self.device = _device(device)
        self.batch_tokens = batch_tokens or _BATCH_TOKENS.get(self.device.type, 2**15)
        self.dictionary: Dictionary = trained.source
        text = trained.state.training_text
        self._set_training_text(None if text is None else TrainingText.of(text))
        self._kind = type(trained.model).__name__
        self._targets = len(trained.target)
        self._shift_choice, self._state = shift, trained.state
        self._squash = is_squashed(trained.model)
        self.log_z = trained.state.constant
        bos = [] if trained.bos is None else [trained.bos]
        model = trained.model.to(device=self.device, dtype=dtype)
        self._reader = make_reader(model, np.array([*bos, self.dictionary.eos()]), trained.longest)
        self.is_causal, self.order = self._reader.is_causal, self._reader.order
        self.is_self_normalised = trained.state.is_self_normalised
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

    def measuring(self: AnyScorer, measure: Measure) -> AnyScorer:
        """Return a scorer that shares the model, whose ``log_probs`` are other measures.

        Args:
            measure: returns the measures (N, M) of features (N, D) and the words (N,) after them.
        """
        other = copy.copy(self)
        other._measure = measure
        return other

    def is_oov(self, ids: Ids) -> np.ndarray:
        """Return which of n word ids, see :meth:`ids`, are scored as ``<unk>``: (n,) bool."""
        words = np.asarray(ids, dtype=np.int64)
        return (words == self.dictionary.unk()) | (words >= self._targets)

    @torch.no_grad()
    def start(self, n: int = 1) -> State:
        """Return n hypotheses without words.

        Raises:
            ScoringError: for a model that reads words on both sides.
        """
        threads.use_one_after_a_fork()
        self._reader.block()  # raises if the model has no room for a word
        return incremental.start(self._reader, n)

    def next_log_probs(self, state: State, word_ids: Ids) -> np.ndarray:
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
    def read_on(self, state: State, word_ids: Ids) -> State:
        """Return the state after a word for each of n hypotheses, unscored; see :meth:`extend`."""
        ids = self._next_ids(state, word_ids)
        return incremental.read_on(state, self._reader, ids)

    @torch.no_grad()
    def normalisers(self, state: State) -> np.ndarray:
        """Return what is subtracted from raw scores after n hypotheses: (n,) float64 nats.

        That is log Z and the shift; or log Z_c, the only work here that grows with the vocabulary.
        """
        self._check(state)
        found = self._normalisation.normalisers(self._reader.layer, state.features)
        return normalisation.finite(found.double().cpu().numpy())

    def host_scores(self) -> HostScores:
        """Return raw scores m(w, c) of single words, on the host, after ``state.features``."""
        words = len(self.dictionary)
        return HostScores(self._reader.layer, self._squash, self.dictionary.unk(), words)

    def next_words(self) -> Callable[[State], NextWords]:
        """Return what makes :class:`HostWords` of a state."""
        raw = self.host_scores()
        return lambda state: HostWords(raw, state, self.normalisers(state))

    def unigram_log_probs(self) -> np.ndarray:
        """Return log-probabilities (V,) of all words by the dictionary's counts plus one."""
        counts = np.array(self.dictionary.count, dtype=np.float64) + 1
        return np.log(counts / counts.sum())

    def _set_exact(self, exact: bool) -> None:
        self.exact, self.shift, layer = exact, 0.0, self._reader.layer
        self._normalisation = normalisation.Normalisation(None, self._squash)
        if not exact:
            self._normalisation, self.shift = normalisation.unnormalised(
                self._state, layer, self._squash, choice=self._shift_choice, name="shift"
            )
        self._measure: Measure = functools.partial(self._normalisation.log_probs, layer)

    def _line_scorer(self, document: bool, context_window: Optional[int]) -> ScoreLines:
        if document and not self.is_causal:
            got = "one with --bidirectional-context; score the sentences by themselves"
            raise ScoringError("document", "a model of past words", got)
        threads.use_one_after_a_fork()
        longest, context = self._reader.block(context_window)
        running = self._running_text(longest, context, context) if document else None
        most = math.inf if document or longest is None else longest

        def scores(window: List[List[str]]) -> List[SentenceScore]:
            texts = [np.array(self.ids(words), dtype=np.int64) for words in window]
            if running is None:
                found = self._sentence_scores(texts, longest, context)
            else:
                ends = np.cumsum([len(ids) for ids in texts])
                found = np.split(running.log_probs(np.concatenate(texts)), ends[:-1])
            return [
                SentenceScore(scores.astype(np.float64), words, self.is_oov(ids), len(ids) > most)
                for words, ids, scores in zip(window, texts, found)
            ]

        return scores

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

    def _check(self, state: State) -> None:
        threads.use_one_after_a_fork()
        incremental.check_state(state, self._reader)

    def _next_ids(self, state: State, word_ids: Ids, dims: int = 1) -> Tensor:
        self._check(state)
        known = len(self.dictionary)
        return incremental.as_ids("word_ids", word_ids, len(state), known, self.device, dims)

    @torch.no_grad()
    def _log_probs_after(self, features: Tensor, targets: Tensor) -> np.ndarray:
        """Return float32 nats of words (N,) or (N, K) after features (N, D), on the host."""
        if self._targets < len(self.dictionary):  # other words are read, and not predicted
            targets = targets.masked_fill(targets >= self._targets, self.dictionary.unk())
        return normalisation.finite(self._measure(features, targets).cpu().numpy())


def _device(name: Union[str, torch.device]) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, RuntimeError) as error:
        raise ScoringError("device", "one that torch has here", f"{name}: {error}") from None
