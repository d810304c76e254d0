"""Word error rates, per cent, with the ends of their 95 % intervals."""

from typing import Dict, Iterable, List, Mapping

import numpy as np

from fairseq_bnce.rescoring.measures import WordErrorRate, compare


def counts(texts: Iterable[str], references: Iterable[str]) -> np.ndarray:
    """Return (n, 2) errors, and words of the reference, of each sentence."""
    measure = WordErrorRate()
    return np.array([measure.counts([text], [right])[0] for text, right in zip(texts, references)])


def rate(found: np.ndarray) -> List[float]:
    """Return the rate of counts, and its interval."""
    return compare(found, found, WordErrorRate())[1].tolist()


def differences(
    found: Mapping[str, np.ndarray], pairs: Mapping[str, Iterable[str]]
) -> Dict[str, List[float]]:
    """Return the changes from one's counts to others' of the same sentences, and their intervals.

    Args:
        pairs: those after, by the one before; what has no counts is left out.
    """
    return {
        f"{after} - {before}": compare(found[before], found[after], WordErrorRate())[2].tolist()
        for before, others in pairs.items()
        for after in others
        if {before, after} <= set(found)
    }
