"""A trigram in ARPA's format for KenLM, by interpolated absolute discounting."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, TextIO, Tuple

_DISCOUNT = 0.75
Counts = Dict[Tuple[str, ...], int]


def write_arpa(path: Path, sentences: Iterable[Sequence[str]], vocabulary: Sequence[str]) -> None:
    """Estimate it from sentences; every word of the vocabulary has a probability.

    Args:
        path: of the file.
        sentences: their words, without <s> and </s>.
        vocabulary: all words that there are.
    """
    counts: List[Counts] = [collections.Counter() for _ in range(3)]
    for sentence in sentences:
        words = ["<s>", *sentence, "</s>"]
        for end in range(1, len(words)):
            for order in range(min(3, end + 1)):
                counts[order][tuple(words[end - order : end + 1])] += 1
    estimates, back_offs = _estimate(counts, ["<unk>", "</s>", *vocabulary])
    estimates[0][("<s>",)] = 10**-9.9  # never predicted
    part = path.with_name(f"{path.name}.part")  # the file appears when it is whole
    with part.open("w", encoding="utf-8") as stream:
        _write(stream, estimates, back_offs)
    part.replace(path)


def _estimate(counts: Sequence[Counts], words: Sequence[str]) -> Tuple[List[Dict], Dict]:
    """Return the probabilities of all n-grams by order, and the back-off weights of histories."""
    total, uniform = sum(counts[0].values()), 1 / len(words)
    left = _DISCOUNT * len(counts[0]) / total
    unigrams: Dict[Tuple[str, ...], float] = {
        (w,): max(counts[0].get((w,), 0) - _DISCOUNT, 0) / total + left * uniform for w in words
    }
    estimates, back_offs = [unigrams], {}
    for ngrams in counts[1:]:
        totals: Counts = collections.Counter()
        distinct: Counts = collections.Counter()
        for ngram, count in ngrams.items():
            totals[ngram[:-1]] += count
            distinct[ngram[:-1]] += 1
        weights = {h: _DISCOUNT * distinct[h] / totals[h] for h in totals}
        found = {}
        for ngram, count in ngrams.items():
            lower = weights[ngram[:-1]] * estimates[-1][ngram[1:]]
            found[ngram] = (count - _DISCOUNT) / totals[ngram[:-1]] + lower
        estimates.append(found)
        back_offs.update(weights)
    return estimates, back_offs


def _write(stream: TextIO, estimates: Sequence[Dict], back_offs: Dict) -> None:
    stream.write("\\data\\\n")
    for order, found in enumerate(estimates, start=1):
        stream.write(f"ngram {order}={len(found)}\n")
    for order, found in enumerate(estimates, start=1):
        stream.write(f"\n\\{order}-grams:\n")
        for ngram, probability in found.items():
            back_off = back_offs.get(ngram)
            end = "" if back_off is None else f"\t{math.log10(back_off):.6f}"
            stream.write(f"{math.log10(probability):.6f}\t{' '.join(ngram)}{end}\n")
    stream.write("\n\\end\\\n")
