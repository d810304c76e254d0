"""How well a model normalises itself on a text: log Z_c and all that goes with it, word by word."""

from __future__ import annotations

import collections
import heapq
import math
from typing import Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.errors import ScoringError
from fairseq_bnce.output_layer.batch import target_scores
from fairseq_bnce.scoring import normalisation, reduction
from fairseq_bnce.scoring.reduction import Contexts, ReducedPartition
from fairseq_bnce.scoring.scorer import Scorer, SentenceScore

BINS = 10  # of confidence


class Measures(NamedTuple):
    """Of T contexts; logarithms are nats.

    Attributes:
        scores: (T,) m(w, c) - log Z of the word that came.
        deviations: (T,) log Z_c - log Z.
        entropies: (T,) of the normalised p(. | c).
        top_scores: (T,) m(v, c) - log Z of the likeliest word v.
        is_top: (T,) 1 where that is the word that came, else 0.
        log_partition: (T,) log Z_c itself, whatever stands for log Z.
    """

    scores: np.ndarray
    deviations: np.ndarray
    entropies: np.ndarray
    top_scores: np.ndarray
    is_top: np.ndarray
    log_partition: np.ndarray


class DiagnosingScorer(Scorer):
    """A scorer whose ``log_probs`` are (T, 6): the columns of :class:`Measures`.

    It does the work of exact scoring, whatever ``exact`` says, and takes no shift off. log Z is
    what unnormalised scores are less, from context to context if by a reduced partition function.

    Attributes:
        contexts: where some are given, features and log Z_c are added to them.
    """

    contexts: Optional[Contexts] = None

    def check_rows(self, rows: int) -> None:
        """Raise ScoringError for a reduced partition function of more rows than there are words."""
        words = len(self._reader.layer)
        if rows > words:
            raise ScoringError(f"rows: required at most {words:,}, a row a word, got {rows:,}")

    def _log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        layer, targets = self._reader.layer, self._predicted(targets)
        scores = target_scores(layer, features, targets, self._squash)
        found = layer.predictive_statistics(features, squash=self._squash)
        if self.contexts is not None:
            self.contexts.add(features, found.log_partition)
        how = normalisation.unnormalised(self._state, 0.0, layer, self._squash)
        log_z = how.normalisers(layer, features)
        columns = (
            scores - log_z,
            found.log_partition - log_z,
            found.entropy,
            found.best_score - log_z,
            (found.best == targets).to(scores.dtype),
            found.log_partition,
        )
        return torch.stack(columns, dim=1)


class Context(NamedTuple):
    """A context whose log Z_c is far out.

    Attributes:
        deviation: log Z_c - log Z, nats.
        entropy: of the normalised p(. | c), nats.
        before: the last words of the context.
        word: the one that came.
    """

    deviation: float
    entropy: float
    before: str
    word: str


class Diagnosis:
    """Measures of all contexts of a text, and the farthest out of them.

    Args:
        worst: how many contexts to keep on either side.
        context_words: how many of a context's words to keep.

    Attributes:
        count, lines, oov: of the contexts so far, their lines, and the words that are unknown.
    """

    def __init__(self, worst: int = 20, context_words: int = 12):
        self.worst, self.context_words = worst, context_words
        self._parts: List[np.ndarray] = []
        self._far: Dict[int, List[Any]] = {-1: [], 1: []}  # heaps, by the sign of the deviation
        self._sum = 0.0  # of the deviations
        self.count = self.lines = self.oov = 0

    def add(self, line: SentenceScore, before: Sequence[str] = ()) -> None:
        """Add a line as a :class:`DiagnosingScorer` scores it, and the words before it."""
        self._parts.append(line.log_probs.astype(np.float32))
        if self.worst:
            self._keep_far(line, before)
        self._sum += float(line.log_probs[:, 1].sum(dtype=np.float64))
        self.count, self.lines = self.count + len(line.words), self.lines + 1
        self.oov += line.oov

    def fill(
        self, scorer: DiagnosingScorer, lines: Iterable[str], *, document: bool = False
    ) -> Iterator[int]:
        """Add a text, window by window.

        Args:
            scorer: of the model.
            lines: of the text, words separated by spaces.
            document: whether they are one running text, as in :meth:`Scorer.score_windows`.

        Yields:
            how many contexts there are.
        """
        recent: Deque[str] = collections.deque(maxlen=self.context_words)
        for window in scorer.score_windows(lines, document=document):
            for line in window:
                self.add(line, recent)
                if document:
                    recent.extend(line.words)
            yield self.count

    @property
    def measures(self) -> Measures:
        """Of all contexts so far, float64."""
        whole = np.concatenate(self._parts or [np.zeros((0, len(Measures._fields)))])
        return Measures(*whole.astype(np.float64).T)

    def farthest(self) -> List[Context]:
        """Those farthest from the mean of log Z_c, the farthest first."""
        mean = self._sum / max(1, self.count)
        by_number = {entry[1]: entry[2] for heap in self._far.values() for entry in heap}
        ordered = sorted(by_number.values(), key=lambda context: -abs(context.deviation - mean))
        return ordered[: self.worst]

    def _keep_far(self, line: SentenceScore, before: Sequence[str]) -> None:
        """The farthest from any mean are among the lowest and the highest of all."""
        deviations = line.log_probs[:, 1]
        for sign, heap in self._far.items():
            for place in np.argsort(-sign * deviations, kind="stable")[: self.worst].tolist():
                distance = sign * deviations[place]
                if len(heap) == self.worst and distance <= heap[0][0]:
                    break  # the line's others are nearer yet
                context = self._context(line, place, before)
                heapq.heappush(heap, (distance, self.count + place, context))
                if len(heap) > self.worst:
                    heapq.heappop(heap)

    def _context(self, line: SentenceScore, place: int, before: Sequence[str]) -> Context:
        recent = line.words[max(0, place - self.context_words) : place]
        words = [*before, *recent][-self.context_words :] if self.context_words else []
        _, deviation, entropy, *_ = line.log_probs[place].tolist()
        return Context(deviation, entropy, " ".join(words), line.words[place])


def fit_offset(
    scorer: DiagnosingScorer, contexts: Contexts, rows: int = 0
) -> Tuple[ReducedPartition, Dict[str, Any]]:
    """A reduced partition function of ``rows`` rows (0: as many as suit V), and how far it strays.

    Fitted to the scorer's ``contexts`` but a tenth, on which mean (mu_z), standard deviation
    (sigma_z), lowest and highest of log Z_c less what it says are measured, nats.

    Raises:
        ValueError: see :func:`fairseq_bnce.scoring.reduction.fit`.
    """
    weight, bias = scorer._reader.layer.full()
    rows = rows or reduction.default_rows(len(weight))
    known, others = contexts.parts()
    found = reduction.fit(*known, weight, bias, rows)
    deviations = (others[1] - found.log_partition(others[0])).double()
    measured = {
        "rows": rows,
        "fitted_on": len(known[1]),
        "measured_on": len(others[1]),
        "mu_z": deviations.mean().item(),
        "sigma_z": deviations.std(unbiased=False).item(),
        "lowest": deviations.min().item(),
        "highest": deviations.max().item(),
    }
    return found, measured


def summary(measures: Measures) -> Dict[str, float]:
    """The numbers of a diagnosis, by their names.

    mu_z and sigma_z are mean and standard deviation of log Z_c - log Z; ppl is exact; u_ppl takes
    m - log Z for the log-probability (and less this text's own mu_z would be ppl);
    entropy_correlation is Pearson's of entropy and log Z_c (table 5 of Goldberger & Melamud 2018),
    NaN where one of them does not vary; the calibration errors are :func:`calibration`'s.
    """
    deviations = measures.deviations
    mu_z = float(deviations.mean())
    nll = -float((measures.scores - deviations).mean())
    raw = -float(measures.scores.mean())
    return {
        "contexts": len(deviations),
        "mu_z": mu_z,
        "sigma_z": float(deviations.std()),
        "lowest": float(deviations.min()),
        "highest": float(deviations.max()),
        "ppl": _exp(nll),
        "u_ppl": _exp(raw),
        "entropy": float(measures.entropies.mean()),
        "entropy_correlation": _correlation(measures.entropies, measures.log_partition),
        "accuracy": float(measures.is_top.mean()),
        "calibration_error": expected_error(calibration(measures)),
        "u_calibration_error": expected_error(calibration(measures, shift=mu_z)),
    }


class Bin(NamedTuple):
    """Contexts whose likeliest word has about the same probability.

    Attributes:
        count: how many.
        confidence: mean probability of the likeliest word.
        accuracy: how often it came.
    """

    count: int  # type: ignore[assignment]  # in the place of tuple.count, which no bin needs
    confidence: float
    accuracy: float


def calibration(measures: Measures, shift: Any = None) -> List[Bin]:
    """Confidence in the likeliest word against how often it comes, in bins of equal width.

    Args:
        measures: of a text.
        shift: None for exact probabilities; nats for the unnormalised ones, m - log Z - shift,
            which may be over 1 and count as 1 then.
    """
    off = measures.deviations if shift is None else shift
    confidence = np.exp(np.minimum(measures.top_scores - off, 0.0))
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    chosen = [(confidence[numbers == n], measures.is_top[numbers == n]) for n in range(BINS)]
    return [Bin(len(c), float(c.mean()), float(a.mean())) for c, a in chosen if len(c)]


def expected_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean over contexts of |confidence - accuracy| of the bin."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / total


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if x.std() == 0 or y.std() == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
