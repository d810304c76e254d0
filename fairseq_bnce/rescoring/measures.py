"""Measures of hypotheses: counts that add up over sentences, and a formula of summed counts.

:func:`compare` gives the confidence of a difference: a paired bootstrap over sentences (Efron 1979;
Koehn 2004).
"""

from typing import Callable, List, Sequence

import numpy as np

from fairseq_bnce.errors import InputError

ORDER = 4  # the longest n-grams of BLEU


class Measure:
    """A measure.

    Attributes:
        sign: 1 if a higher value is better, else -1.
        description: for messages.
    """

    sign: int
    description: str

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return (hypotheses, C) int64 counts, for one sentence with one or more references."""
        rows = {text: self._count(text, references) for text in dict.fromkeys(hypotheses)}
        return np.array([rows[text] for text in hypotheses], dtype=np.int64)

    def value(self, sums: np.ndarray) -> float:
        """Return the measure of summed counts (C,)."""
        return float(self.values(sums[None])[0])

    values: Callable[[np.ndarray], np.ndarray]
    _count: Callable[[str, Sequence[str]], List[int]]


class Bleu(Measure):
    """BLEU, 0 to 100, with sacrebleu's counts and formula.

    A sentence's counts are: hypothesis and reference length, matched n-grams (1 to 4), n-grams.

    Args:
        tokenize: a tokeniser of sacrebleu; "none" compares words at spaces.

    Raises:
        InputError: for a tokeniser that sacrebleu lacks or cannot run here.
    """

    sign = 1

    def __init__(self, tokenize: str = "none"):
        from sacrebleu.metrics import BLEU

        # The effective order stops warnings about single sentences; counts are the same.
        try:
            self._metric = BLEU(tokenize=tokenize, effective_order=True)
        except Exception as error:  # some tokenisers need packages or a download
            required = f"required one of {', '.join(BLEU.TOKENIZERS)}, that works here"
            raise InputError(f"--bleu-tokenize: {required}, got {tokenize!r}: {error}") from error
        self.description = f"BLEU (sacrebleu, tokenize {tokenize})"

    def values(self, sums: np.ndarray) -> np.ndarray:
        """Return BLEU (n,) of summed counts (n, 10)."""
        found = np.empty(len(sums))
        is_plain = (sums[:, 2:] > 0).all(1)
        plain = sums[is_plain].astype(np.float64)
        length, reference = plain[:, 0], plain[:, 1]
        precisions = np.log(plain[:, 2 : 2 + ORDER] / plain[:, 2 + ORDER :]).mean(1)
        found[is_plain] = 100 * np.exp(np.minimum(0, 1 - reference / length) + precisions)
        found[~is_plain] = [self._smoothed(*row.tolist()) for row in sums[~is_plain]]
        return found

    def _smoothed(self, length: int, reference: int, *ngrams: int) -> float:
        counts = list(ngrams[:ORDER]), list(ngrams[ORDER:]), length, reference
        return self._metric.compute_bleu(*counts, smooth_method="exp").score

    def _count(self, hypothesis: str, references: Sequence[str]) -> List[int]:
        score = self._metric.sentence_score(hypothesis, references)
        return [score.sys_len, score.ref_len, *score.counts, *score.totals]


class WordErrorRate(Measure):
    """Word error rate, per cent, with jiwer's counts: errors, words of the reference."""

    sign = -1

    def __init__(self) -> None:
        import jiwer

        self._process = jiwer.process_words
        self.description = "word error rate (jiwer), per cent"

    def values(self, sums: np.ndarray) -> np.ndarray:
        """Return rates (n,) of summed counts (n, 2); nan if the references have no word."""
        errors, words = sums.astype(np.float64).T
        return np.divide(100 * errors, words, out=np.full(len(sums), np.nan), where=words > 0)

    def _count(self, hypothesis: str, references: Sequence[str]) -> List[int]:
        (reference,) = references
        if not reference:  # older versions of jiwer refuse it
            return [len(hypothesis.split()), 0]
        found = self._process(reference, hypothesis)
        errors = found.substitutions + found.deletions + found.insertions
        return [errors, found.hits + found.substitutions + found.deletions]


def compare(
    before: np.ndarray, after: np.ndarray, measure: Measure, *, resamples: int = 1000, seed: int = 1
) -> np.ndarray:
    """Compare two choices of hypotheses for the same sentences by their counts (sentences, C).

    Args:
        before, after: int64 counts of ``measure`` for each sentence.
        measure: :class:`Bleu` or :class:`WordErrorRate`.
        resamples: number of resamples; both choices share them.
        seed: of the resamples.

    Returns:
        (3, 3) the measure before, after and its difference, each with a 95 % interval: percentiles
        2.5 and 97.5 of the resamples.
    """
    generator, size = np.random.default_rng(seed), len(before)
    sums = [before.sum(0), after.sum(0)]
    for _ in range(resamples):
        times = np.bincount(generator.integers(size, size=size), minlength=size)
        sums += [times @ before, times @ after]
    old, new = measure.values(np.stack(sums)).reshape(-1, 2).T
    found = np.stack([old, new, new - old])
    # A resample may have no word in its references, and so no word error rate.
    intervals = np.nanpercentile(found[:, 1:], [2.5, 97.5], axis=1)
    return np.column_stack([found[:, 0], *intervals])
