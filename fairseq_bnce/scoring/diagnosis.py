"""How well a model normalises itself on a text: log Z_c, entropy and more, context by context."""

import math
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from fairseq_bnce.scoring import normalisation, reduction
from fairseq_bnce.scoring.reduction import Contexts, ReducedPartition
from fairseq_bnce.scoring.scorer import Scorer, SentenceScore

_BINS = 10  # bins of confidence
_CONTEXT_WORDS = 12  # words that are shown of a context


class Measures(NamedTuple):
    """Measures of T contexts; logarithms are nats.

    Attributes:
        scores: (T,) m(w, c) - log Z of the word that came.
        deviations: (T,) log Z_c - log Z.
        entropies: (T,) of the normalised p(. | c).
        top_scores: (T,) m(v, c) - log Z of the likeliest word v.
        is_top: (T,) 1 where the likeliest word came, else 0.
        log_partition: (T,) log Z_c.
    """

    scores: np.ndarray
    deviations: np.ndarray
    entropies: np.ndarray
    top_scores: np.ndarray
    is_top: np.ndarray
    log_partition: np.ndarray


def measuring(scorer: Scorer, contexts: Optional[Contexts] = None) -> Scorer:
    """Return a scorer whose ``log_probs`` are (T, 6): the columns of :class:`Measures`.

    It does the work of exact scoring, whatever ``exact`` is, and subtracts no shift. log Z is a
    constant, or is predicted for each context by a reduced partition function.

    Args:
        scorer: of the model.
        contexts: where to add features and log Z_c of each context; None for nowhere.

    Raises:
        UnsupportedModelError: for an adaptive softmax.
    """
    layer = scorer._reader.layer
    how, _ = normalisation.unnormalised(scorer._state, layer)

    def measures(features: Tensor, targets: Tensor) -> Tensor:
        found = layer.kind.predictive_statistics(features)
        if contexts is not None:
            contexts.add(features, found.log_partition)
        log_z = how.normalisers(layer, features)
        scores = layer.target_scores(features, targets) - log_z
        deviations, top_scores = found.log_partition - log_z, found.best_score - log_z
        is_top = (found.best == targets).to(scores.dtype)
        columns = (scores, deviations, found.entropy, top_scores, is_top, found.log_partition)
        return torch.stack(columns, dim=1)

    return scorer.measuring(measures)


class Context(NamedTuple):
    """A context whose log Z_c is far from the mean.

    Attributes:
        deviation: log Z_c - log Z, nats.
        entropy: of the normalised p(. | c), nats.
        before: the last words of the context.
        word: the word that came.
    """

    deviation: float
    entropy: float
    before: str
    word: str


class Diagnosis:
    """Measures of all contexts of a text, and the contexts that are farthest from the mean.

    Args:
        worst: how many of these contexts to return, each with its last twelve words.
        kept: see :func:`measuring`; also an attribute.

    Attributes:
        lines: of the text, words separated by spaces.
    """

    def __init__(self, worst: int = 20, kept: Optional[Contexts] = None):
        self.worst, self.kept = worst, kept
        self._parts: List[np.ndarray] = []
        self.lines: List[str] = []
        self._is_document = False

    def fill(
        self, scorer: Scorer, lines: Iterable[str], *, document: bool = False
    ) -> Iterator[List[SentenceScore]]:
        """Add a text, window by window, until ``kept`` is full.

        Args:
            scorer: of the model.
            lines: of the text, words separated by spaces.
            document: whether they are one running text, as in :meth:`Scorer.score_windows`.

        Yields:
            the scored lines of each window.
        """
        self._is_document = document
        scorer = measuring(scorer, self.kept)
        for window in scorer.score_windows(lines, document=document, tokenized=True):
            for line in window:
                self._parts.append(line.log_probs.astype(np.float32))
                self.lines.append(" ".join(line.words))
            yield window
            if self.kept is not None and self.kept.is_full:
                return

    @property
    def measures(self) -> Measures:
        """Return the measures of all contexts so far, float64."""
        whole = np.concatenate(self._parts or [np.zeros((0, len(Measures._fields)))])
        return Measures(*whole.astype(np.float64).T)

    def farthest(self) -> List[Context]:
        """Return the contexts farthest from the mean of log Z_c, the farthest first."""
        deviations = self.measures.deviations
        distances = np.abs(deviations - deviations.mean())
        places = np.argsort(-distances, kind="stable")[: self.worst]
        ends = np.cumsum([len(part) for part in self._parts])
        lines = np.searchsorted(ends, places, side="right")
        pairs = zip(lines.tolist(), (places - ends[lines]).tolist())
        return [self._context(line, place) for line, place in pairs]

    def _context(self, line: int, place: int) -> Context:
        """Return the context of a line's word ``place``, counted from the line's end: below 0."""
        first = max(0, line - _CONTEXT_WORDS) if self._is_document else line
        *before, word = " ".join(self.lines[first : line + 1]).split(" ")[: place + 1 or None]
        _, deviation, entropy, *_ = self._parts[line][place].tolist()
        return Context(deviation, entropy, " ".join(before[-_CONTEXT_WORDS:]), word)


def fit_offset(
    scorer: Scorer, contexts: Contexts, rows: int = 0
) -> Tuple[ReducedPartition, Dict[str, float]]:
    """Fit a reduced partition function, and measure its error.

    It is fitted to nine tenths of the contexts. On the others, mean (mu_z), standard deviation
    (sigma_z), lowest and highest of log Z_c minus its prediction are measured, in nats.

    Args:
        scorer: of the model.
        contexts: of a text, see :func:`measuring`.
        rows: of the reduced partition function; 0 for a twentieth of the vocabulary, within bounds.

    Raises:
        ValueError: see :func:`fairseq_bnce.scoring.reduction.fit`.
    """
    layer = scorer._reader.layer
    known, others = contexts.parts()
    most = len(known[1]) // reduction.CONTEXTS_A_ROW
    rows = rows or min(len(layer), max(16, min(1000, most, len(layer) // 20)))
    found = reduction.fit(*known, layer, rows)
    deviations = (others[1] - found.log_partition(others[0])).double()
    measured = {
        "rows": len(found.bias),
        "fitted_on": len(known[1]),
        "measured_on": len(others[1]),
        **_spread(deviations.numpy()),
    }
    return found, measured


@np.errstate(over="ignore")
def summary(measures: Measures) -> Dict[str, float]:
    """Return the numbers of a diagnosis, by their names.

    mu_z and sigma_z are mean and standard deviation of log Z_c - log Z. ppl is exact; u_ppl takes
    m - log Z for the log-probability (with this text's own mu_z subtracted it would be ppl).
    entropy_correlation is Pearson's of entropy and log Z_c (table 5 of Goldberger & Melamud 2018),
    NaN where one of them does not vary. The calibration errors are :func:`expected_error`'s.
    """
    spread = _spread(measures.deviations)
    return {
        "contexts": len(measures.deviations),
        **spread,
        "ppl": float(np.exp((measures.deviations - measures.scores).mean())),
        "u_ppl": float(np.exp(-measures.scores.mean())),
        "entropy": float(measures.entropies.mean()),
        "entropy_correlation": _correlation(measures.entropies, measures.log_partition),
        "accuracy": float(measures.is_top.mean()),
        "calibration_error": expected_error(calibration(measures)),
        "u_calibration_error": expected_error(calibration(measures, shift=spread["mu_z"])),
    }


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else math.nan


def _spread(deviations: np.ndarray) -> Dict[str, float]:
    found = (deviations.mean(), deviations.std(), deviations.min(), deviations.max())
    return dict(zip(("mu_z", "sigma_z", "lowest", "highest"), map(float, found)))


def calibration(measures: Measures, shift: Optional[float] = None) -> np.ndarray:
    """Return confidence in the likeliest word and how often it comes, in bins of equal width.

    Args:
        measures: of a text.
        shift: None for exact probabilities; nats for unnormalised ones, exp(m - log Z - shift).
            Those above 1 count as 1.

    Returns:
        (B, 3) of the bins that have contexts: their number, the mean probability of the likeliest
        word, and how often it came.
    """
    off = measures.deviations if shift is None else shift
    confidence = np.exp(np.minimum(measures.top_scores - off, 0.0))
    numbers = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    columns = (np.ones_like(confidence), confidence, measures.is_top)
    count, *sums = (np.bincount(numbers, column, _BINS) for column in columns)
    bins = np.stack([count, *sums / np.maximum(count, 1)], axis=1)
    return bins[count > 0]


def expected_error(bins: np.ndarray) -> float:
    """Return the calibration error: the mean over contexts of |confidence - accuracy|."""
    count, confidence, accuracy = bins.T
    return float(np.average(abs(confidence - accuracy), weights=count))
