"""Log-probabilities of text, by a trained language model.

Each word of a sentence is scored after the words before it, the first after ``</s>``. ``</s>`` is
scored last. These are the scores of ``fairseq-eval-lm --sample-break-mode eos``.
"""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Iterable
from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_bnce import checkpoints, threads
from fairseq_bnce.errors import ScoringError
from fairseq_bnce.scoring import incremental, normalisation
from fairseq_bnce.scoring.host import HostScores, HostWords
from fairseq_bnce.scoring.incremental import Ids, State
from fairseq_bnce.scoring.language_model import LanguageModel, NextWords, ScoreLines, SentenceScore
from fairseq_bnce.scoring.readers import Piece, batches, collate, divided, make_reader
from fairseq_bnce.scoring.texts import Blocks, CarriedText
from fairseq_bnce.text.training_text import TrainingText

# A CPU's caches hold a small LSTM's states of fewer words (measured there).
_BATCH_TOKENS = 2**15  # on a GPU
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
        self.device = _device(device)
        suits = LanguageModel.batch_tokens if self.device.type == "cpu" else _BATCH_TOKENS
        self.batch_tokens = batch_tokens or suits
        self.dictionary: Dictionary = trained.source
        text = trained.state.training_text
        self._set_training_text(None if text is None else TrainingText.of(text))
        self._targets = len(trained.target)
        self._is_oov = np.arange(len(self.dictionary)) >= self._targets
        self._is_oov[self.dictionary.unk()] = True
        self._shift_choice, self._state = shift, trained.state
        self.log_z = trained.state.constant
        bos = [] if trained.bos is None else [trained.bos]
        model = trained.model.to(device=self.device, dtype=dtype)
        self._reader = make_reader(model, np.array([*bos, self.dictionary.eos()]), trained.longest)
        self._reader.decoder.dictionary = self.dictionary  # TruncatedDictionary can't be pickled
        self.key, self.order = self._reader.key, self._reader.order
        self.is_causal = self._reader.is_causal
        self.is_self_normalised = trained.state.is_self_normalised
        self._set_exact(exact)

    @classmethod
    def from_checkpoint(
        cls,
        path: str,
        data: Optional[str] = None,
        *,
        device: Union[str, torch.device] = "cpu",
        dtype: torch.dtype = torch.float32,
        exact: bool = False,
        shift: normalisation.Shift = "checkpoint",
        batch_tokens: Optional[int] = None,
    ) -> Scorer:
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
        model, size = type(self._reader.model).__name__, f"{len(self.dictionary):,} words"
        return f"Scorer({model}, {size}, device={str(self.device)!r}, exact={self.exact})"

    def with_exact(self, exact: bool) -> Scorer:
        """Return a scorer that shares the model, for exact or unnormalised scores.

        Raises:
            ScoringError: for unnormalised scores of a checkpoint without log Z.
        """
        other = copy.copy(self)
        other._set_exact(exact)
        return other

    def measuring(self, measure: Measure) -> Scorer:
        """Return a scorer that shares the model, whose ``log_probs`` are other measures.

        Args:
            measure: returns the measures (N, M) of features (N, D) and the words (N,) after them.
        """
        other = copy.copy(self)
        other._measure = measure
        return other

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
        ids = self._ids(state, word_ids, dims=2)
        return self._log_probs_after(state.features, ids).astype(np.float64)

    @torch.no_grad()
    def read_on(self, state: State, word_ids: Ids) -> State:
        """Return the state after a word for each of n hypotheses, unscored; see :meth:`extend`."""
        return incremental.read_on(state, self._reader, self._ids(state, word_ids))

    @torch.no_grad()
    def normalisers(self, state: State) -> np.ndarray:
        """Return what is subtracted from raw scores after n hypotheses: (n,) float64 nats.

        That is log Z and the shift; or log Z_c, the only work here that grows with the vocabulary.
        """
        self._check(state)
        found = self._normalisation.normalisers(self._reader.layer, state.features)
        return normalisation.finite(found.double().cpu().numpy())

    def next_words(self) -> Callable[[State], NextWords]:
        """Return what makes :class:`HostWords` of a state."""
        raw = HostScores(self._reader.layer, self.dictionary.unk(), len(self.dictionary))
        return lambda state: HostWords(raw, state, self.normalisers(state))

    def unigram_log_probs(self) -> np.ndarray:
        """Return log-probabilities (V,) of all words by the dictionary's counts plus one."""
        counts = np.array(self.dictionary.count, dtype=np.float64) + 1
        return np.log(counts / counts.sum())

    def _set_exact(self, exact: bool) -> None:
        self.exact, self.shift, layer = exact, 0.0, self._reader.layer
        self._normalisation = normalisation.Normalisation(None)
        if not exact:
            found = normalisation.unnormalised(self._state, layer, self._shift_choice, "shift")
            self._normalisation, self.shift = found
        self._measure: Measure = functools.partial(self._normalisation.log_probs, layer)

    def _line_scorer(self, document: bool, context_window: Optional[int]) -> ScoreLines:
        if document and not self.is_causal:
            got = "one with --bidirectional-context; score the sentences by themselves"
            raise ScoringError("document", "a model of past words", got)
        threads.use_one_after_a_fork()
        longest, context = self._reader.block(context_window)
        limit = sys.maxsize if document else longest
        begin = functools.partial(Blocks, self._reader, longest, context)
        running = begin(longest - context)
        carried: Optional[CarriedText] = None
        if document and self._reader.reads_any_number:
            carried = CarriedText(self._reader, self._log_probs_after)

        def scores(window: List[List[str]]) -> List[SentenceScore]:
            texts = [np.array(self.ids(words), dtype=np.int64) for words in window]
            if carried is not None:
                whole = carried.log_probs(np.concatenate(texts))
            elif document:
                whole = self._piece_scores(running.pieces(np.concatenate(texts)))
            else:
                each = (begin(longest).pieces(ids) for ids in texts)
                whole = self._piece_scores(itertools.chain.from_iterable(each))
            return [
                SentenceScore(part.astype(np.float64), words, self.is_oov(ids), len(ids) > limit)
                for words, ids, part in zip(window, texts, divided(whole, texts))
            ]

        return scores

    @torch.no_grad()
    def _piece_scores(self, read: Iterable[Piece]) -> np.ndarray:
        """Return log-probabilities of all pieces' targets, one piece after the other: float32."""
        pieces, known = list(read), self.dictionary
        scores = [np.zeros(0)] * len(pieces)
        pad = known.pad() if self._reader.sees_padding else known.eos()
        carries = self._reader.reads_any_number and self.is_causal
        for batch in batches(pieces, self.batch_tokens):
            some = [pieces[number] for number in batch]
            words = [piece.targets for piece in some]
            if carries and len(words[0]) > self.batch_tokens:  # a batch of its own
                found = CarriedText(self._reader, self._log_probs_after).log_probs(words[0])
            else:
                tokens, lengths, is_scored, targets = collate(some, pad, self.device)
                features = self._reader.read(tokens, lengths)[is_scored]
                found = self._log_probs_after(features, targets)
            for number, part in zip(batch, divided(found, words)):
                scores[number] = part
        return np.concatenate(scores)

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
