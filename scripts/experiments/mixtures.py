"""A network and KenLM, mixed word by word: perplexities of both and of the mixture.

Not by ``fairseq_bnce.scoring.Mixture``: KenLM reads another text, with UNK for <unk>, and the sum
over an unnormalised mixture needs a network's exact and raw scores of the same words.
"""

import re
from pathlib import Path
from typing import Any, Dict, List, Mapping

import numpy as np

from fairseq_bnce import Scorer

Texts = Mapping[str, str]  # files by their splits
_WORD = re.compile(r"=\d+ \d+ (-[\d.e+-]+|0)\t")  # as KenLM's query prints it


def measure(checkpoint: str, texts: Texts, ngrams: Texts, ways: List[str]) -> Dict[str, Any]:
    """Mix a network with n-grams, and return perplexities by way of reading and split.

    The weight of the network is the one that EM finds for the other split. The sum is that of an
    unnormalised network's probabilities mixed with KenLM's: its mean and standard deviation. Only a
    network that normalises itself has one.

    Args:
        texts, ngrams: files of two splits: words, and what KenLM's query printed of them.
        ways: "lines", each by itself, and "running".
    """
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    known = {split: _ngram_scores(path) for split, path in ngrams.items()}
    found: Dict[str, Any] = {}
    for way in ways:
        own = {split: _scores(scorer, text, way) for split, text in texts.items()}
        weights = {split: _fit(own[split], known[split]) for split in texts}
        for split, other in zip(texts, reversed(list(texts))):
            found.setdefault(way, {})[split] = {
                "weight": weights[other],
                "mixed": _perplexity(_mix(weights[other], own[split], known[split])),
                "mixed_own_weight": _perplexity(_mix(weights[split], own[split], known[split])),
                "network": _perplexity(own[split]),
                "ngrams": _perplexity(known[split]),
            }
        if scorer.is_self_normalised:
            weight, raw = weights["test"], _scores(scorer.with_exact(False), texts["valid"], way)
            sums = weight * np.exp(raw - own["valid"]) + 1 - weight
            found[way]["valid"]["unnormalised"] = {
                "mixed": _perplexity(_mix(weight, raw, known["valid"])),
                "network": _perplexity(raw),
                "sum": sums.mean(),
                "sum_deviation": sums.std(),
            }
    return found


def _ngram_scores(path: str) -> np.ndarray:
    """Return the nats of every word and </s> from the output of KenLM's query."""
    found = _WORD.findall(Path(path).read_text(encoding="utf-8"))
    return np.array(found, float) * np.log(10)


def _scores(scorer: Scorer, text: str, way: str) -> np.ndarray:
    """Return the nats of every word and </s>."""
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    scores = scorer.score_stream(lines, tokenized=True, document=way == "running")
    return np.concatenate([score.log_probs for score in scores])


def _mix(weight: float, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.log(weight) + first, np.log1p(-weight) + second)


def _fit(first: np.ndarray, second: np.ndarray) -> float:
    """Return the weight of the first scores, by EM."""
    ratios, weight = np.exp(second - first), 0.5
    for _ in range(100):
        weight = float((weight / (weight + (1 - weight) * ratios)).mean())
    return weight


def _perplexity(scores: np.ndarray) -> float:
    return float(np.exp(-scores.mean()))
