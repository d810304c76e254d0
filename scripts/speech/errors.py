"""Word error rates, per cent, with the ends of their 95 % intervals."""

from typing import Iterable, List

import numpy as np

from fairseq_bnce.rescoring.measures import WordErrorRate, compare


def counts(texts: Iterable[str], references: Iterable[str]) -> np.ndarray:
    """Return (n, 2) errors, and words of the reference, of each sentence."""
    measure = WordErrorRate()
    return np.array([measure.counts([text], [right])[0] for text, right in zip(texts, references)])


def rate(found: np.ndarray) -> List[float]:
    """Return the rate of counts, and its interval."""
    return compare(found, found, WordErrorRate())[1].tolist()


def difference(before: np.ndarray, after: np.ndarray) -> List[float]:
    """Return the change from one's counts to another's of the same sentences, and its interval."""
    return compare(before, after, WordErrorRate())[2].tolist()
