"""Measures of hypotheses: counts that add up over sentences, and a formula of summed counts."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np

from fairseq_bnce.errors import InputError, quoted

ORDER = 4  # of BLEU's n-grams


class Bleu:
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

        if tokenize not in BLEU.TOKENIZERS:
            known = ", ".join(BLEU.TOKENIZERS)
            raise InputError(f"BLEU: required a tokeniser of {known}, got {quoted(tokenize)}")
        self._class = BLEU
        # The effective order stops warnings about single sentences; counts are the same.
        try:
            self._metric = self._class(tokenize=tokenize, effective_order=True)
        except Exception as error:  # some tokenisers need packages or a download
            raise InputError(
                f"--bleu-tokenize: required a tokeniser that works here, got {tokenize!r}: {error}"
            ) from error
        self.description = f"BLEU (sacrebleu, tokenize {tokenize})"

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return (hypotheses, 10) int64 counts, for one sentence with one or more references."""
        return np.array([self._count(text, references) for text in hypotheses], dtype=np.int64)

    def value(self, sums: np.ndarray) -> float:
        """Return BLEU of summed counts (10,), as sacrebleu computes it."""
        length, reference, *ngrams = sums.tolist()
        found = self._class.compute_bleu(
            ngrams[:ORDER], ngrams[ORDER:], length, reference, smooth_method="exp"
        )
        return found.score

    def values(self, sums: np.ndarray) -> np.ndarray:
        """Return BLEU (n,) of summed counts (n, 10)."""
        found = np.empty(len(sums))
        is_plain = (sums[:, 2:] > 0).all(1)
        plain = sums[is_plain].astype(np.float64)
        length, reference = plain[:, 0], plain[:, 1]
        precisions = np.log(plain[:, 2 : 2 + ORDER] / plain[:, 2 + ORDER :]).mean(1)
        found[is_plain] = 100 * np.exp(np.minimum(0, 1 - reference / length) + precisions)
        found[~is_plain] = [self.value(row) for row in sums[~is_plain]]  # these are smoothed
        return found

    def _count(self, hypothesis: str, references: Sequence[str]) -> List[int]:
        score = self._metric.sentence_score(hypothesis, references)
        return [score.sys_len, score.ref_len, *score.counts, *score.totals]


class WordErrorRate:
    """Word error rate, per cent, with jiwer's counts: errors, words of the reference.

    Raises:
        InputError: for a jiwer before 3.
    """

    sign = -1

    def __init__(self) -> None:
        import jiwer

        if not hasattr(jiwer, "process_words"):
            raise InputError("WER: required jiwer 3 or later: pip install --upgrade jiwer")
        self._process = jiwer.process_words
        self.description = "word error rate (jiwer), per cent"

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return (hypotheses, 2) int64 counts, for one sentence with one reference."""
        return np.array([self._count(text, references[0]) for text in hypotheses], dtype=np.int64)

    def value(self, sums: np.ndarray) -> float:
        """Return the rate of summed counts (2,); raise InputError if references have no word."""
        if not sums[1]:
            raise InputError("WER: required words in the references, got none")
        return float(self.values(sums[None])[0])

    def values(self, sums: np.ndarray) -> np.ndarray:
        """Return rates (n,) of summed counts (n, 2); nan if the references have no word."""
        errors, words = sums.astype(np.float64).T
        return np.divide(100 * errors, words, out=np.full(len(sums), np.nan), where=words > 0)

    def _count(self, hypothesis: str, reference: str) -> List[int]:
        if not reference:  # older versions of jiwer refuse it
            return [len(hypothesis.split()), 0]
        found = self._process(reference, hypothesis)
        errors = found.substitutions + found.deletions + found.insertions
        return [errors, found.hits + found.substitutions + found.deletions]


def distinct_counts(measure: Any, words: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return ``measure.counts`` of hypotheses, computed once for each distinct hypothesis."""
    numbers: Dict[str, int] = {}
    rows = [numbers.setdefault(text, len(numbers)) for text in words]
    return measure.counts(list(numbers), references)[rows]
