"""A network and KenLM, mixed word by word: perplexities of both and of the mixture.

Not by ``fairseq_bnce.scoring.Mixture``: KenLM reads another text, with UNK for <unk>; the sum over
an unnormalised mixture needs a network's exact and raw scores of the same words; and this process
stays small, because its children's memory is measured.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from . import processes

Scores = List[float]  # nats of every word and </s>
_WORD = re.compile(r"=\d+ \d+ (-[\d.e+-]+|0)\t")  # as query prints it
WAYS = {"lines": [], "running": ["--document"]}  # every line by itself; running text


def ngram_scores(query: Path, binary: Path, text: Path, out: Path) -> Scores:
    """Return what KenLM's query says of every word."""
    # query reads standard input.
    shell = ["sh", "-c", f'"$@" < "{text}"', "query", query, "-v", "word", binary]
    processes.run(shell, out.with_suffix(".log"), 1, out)
    found = _WORD.findall(out.read_text(encoding="utf-8"))
    return [float(score) * math.log(10) for score in found]


def measure(
    checkpoint: Path,
    texts: Mapping[str, Path],
    ngrams: Mapping[str, Scores],
    ways: Sequence[str],
    is_normalised: bool,
) -> Dict[str, Any]:
    """Mix a network with n-grams, and return perplexities by way of reading and split.

    The weight of the network is the one that EM finds for the other split. The sum is that of an
    unnormalised network's probabilities mixed with KenLM's: its mean and standard deviation. Only a
    network that normalises itself has one.
    """
    found: Dict[str, Any] = {}
    for way in ways:
        flags = WAYS[way]
        own = {split: _network_scores(checkpoint, text, flags) for split, text in texts.items()}
        weights = {split: _fit(own[split], ngrams[split]) for split in texts}
        for split, other in zip(texts, reversed(list(texts))):
            mixed = [_mix(weights[one], own[split], ngrams[split]) for one in (other, split)]
            found.setdefault(way, {})[split] = {
                "weight": weights[other],
                "mixed": _perplexity(mixed[0]),
                "mixed_own_weight": _perplexity(mixed[1]),
                "network": _perplexity(own[split]),
                "ngrams": _perplexity(ngrams[split]),
            }
        if is_normalised:
            raw = _network_scores(checkpoint, texts["valid"], flags, "")
            sums = _sums(weights["test"], raw, own["valid"], ngrams["valid"])
            found[way]["valid"]["unnormalised"] = sums
    return found


def _network_scores(
    checkpoint: Path, text: Path, flags: Sequence[str], exact: str = "--exact"
) -> Scores:
    printed = checkpoint.with_name("scores.txt")
    command = [sys.executable, "-m", "fairseq_bnce.cli", "score", "--per-word", *exact.split()]
    command += ["--tokenize", "none", *flags, "--path", str(checkpoint), str(text)]
    processes.run(command, printed.with_suffix(".log"), 1, printed)
    lines = printed.read_text(encoding="utf-8").splitlines()
    return [float(pair.rpartition(" ")[2]) for line in lines for pair in line.split("\t")[3:]]


def _sums(weight: float, raw: Scores, exact: Scores, ngrams: Scores) -> Dict[str, float]:
    sums = [weight * math.exp(a - b) + 1 - weight for a, b in zip(raw, exact)]
    mean = math.fsum(sums) / len(sums)
    variance = math.fsum((one - mean) ** 2 for one in sums) / len(sums)
    found = {"mixed": _perplexity(_mix(weight, raw, ngrams)), "network": _perplexity(raw)}
    return {**found, "sum": mean, "sum_deviation": math.sqrt(variance)}


def _mix(weight: float, first: Scores, second: Scores) -> Scores:
    if len(first) != len(second):
        raise processes.CommandFailed(f"{len(first)} and {len(second)} words of one text")
    both = zip(first, second)
    return [math.log(weight * math.exp(a) + (1 - weight) * math.exp(b)) for a, b in both]


def _fit(first: Scores, second: Scores) -> float:
    """Return the weight of the first scores, by EM."""
    ratios, weight = [math.exp(b - a) for a, b in zip(first, second)], 0.5
    for _ in range(100):
        shares = (weight / (weight + (1 - weight) * ratio) for ratio in ratios)
        weight = math.fsum(shares) / len(ratios)
    return weight


def _perplexity(scores: Scores) -> float:
    return math.exp(-math.fsum(scores) / len(scores))
