"""Decode made emissions with one language model, in a process of its own: its memory is this one's.

Lexicon and emissions are made from a seed: the same for every language model.
"""

import collections
import gc
import math
import string
import time
from pathlib import Path
from typing import Any, Counter, Dict, Iterable, List, Sequence, Tuple

import numpy as np
from experiments.measures.data import probabilities

from . import BLANK, SILENCE, search

BEAM = 50  # hypotheses
TOKENS = ["-", "|", *string.ascii_lowercase]
_LETTERS = len(string.ascii_lowercase)
_LONGEST = 12  # letters of a word
_NOISE = 2.0  # standard deviation of what is added to emissions
_BACK_OFF = math.log10(0.4)
Spellings = List[List[int]]


def measure(
    system: str, checkpoint: str, data: str, arpa: str, lexicon: int, seconds: float, **size: int
) -> Dict[str, Any]:
    """Decode all utterances, or as many as the time suffices for; the first is not timed.

    Args:
        system: the language model; see search.make_system.
        data: folder with dict.txt, the commonest words first, and train.txt.
        arpa: the trigram of train.txt, which is made where it is missing.
        lexicon: words that the decoder knows.
        seconds: of processor time; then no more utterance begins.
        size: number and length of the utterances; see make.
    """
    dictionary, text = (Path(data, name).read_text("utf-8") for name in ("dict.txt", "train.txt"))
    words = [line.split()[0] for line in dictionary.splitlines()]
    if not Path(arpa).is_file():
        write_arpa(Path(arpa), map(str.split, text.splitlines()), words)
    words = words[:lexicon]
    spellings, emitted, counts = make(len(words), **size)
    model = search.make_system(system, Path(checkpoint), words, Path(arpa))
    trie = search.smeared_trie(spellings, counts.tolist(), len(TOKENS), model)
    decoder = search.decoder(trie, model, BEAM)
    gc.freeze()  # torch's and fairseq's objects stay: no collection need look at them
    decoder.decode(emitted[0].ctypes.data, *emitted[0].shape)
    model.end_utterance()
    results: List[Any] = []
    start = time.process_time()
    for emissions in emitted[1:]:
        results.append(decoder.decode(emissions.ctypes.data, *emissions.shape)[0])
        model.end_utterance()
        if time.process_time() - start > seconds:
            break
    spent = time.process_time() - start
    texts = [" ".join(words[w] for w in one.words if w >= 0) for one in results]
    return {"utterances": len(results), "processor_seconds": spent, "texts": texts}


def make(
    words: int, utterances: int, length: int
) -> Tuple[Spellings, List[np.ndarray], np.ndarray]:
    """Make emissions of ``utterances`` sentences of ``length`` Zipf-distributed words.

    Args:
        words: of the lexicon.

    Returns:
        the token ids of each word of the lexicon, silence last; the emissions (T, tokens) of each
        utterance, float32 log-probabilities; and the counts of each word in a million.
    """
    rng = np.random.default_rng(1)
    spellings = spell(words, rng)
    p = probabilities(words)
    chosen = rng.choice(words, size=(utterances, length), p=p)
    emissions = [emit([spellings[word] for word in sentence], rng) for sentence in chosen]
    return spellings, emissions, 1e6 * p


def spell(count: int, rng: np.random.Generator) -> Spellings:
    """Return distinct spellings, silence last; with common letters, many words begin alike."""
    p = 1 / (np.arange(_LETTERS) + 3.0)
    found: Dict[Tuple[int, ...], None] = {}
    while len(found) < count:
        letters = SILENCE + 1 + rng.choice(_LETTERS, size=(count, _LONGEST), p=p / p.sum())
        lengths = np.clip(2 + rng.poisson(4, size=count), 2, _LONGEST)
        found.update((tuple(row[:n]), None) for row, n in zip(letters.tolist(), lengths.tolist()))
    return [[*spelling, SILENCE] for spelling in list(found)[:count]]


def emit(spellings: Sequence[Sequence[int]], rng: np.random.Generator) -> np.ndarray:
    """Return noisy log-probabilities (T, tokens): two frames a token, the second a blank."""
    tokens = [token for spelling in spellings for token in spelling]
    scores = rng.normal(scale=_NOISE, size=(2 * len(tokens), len(TOKENS)))
    scores[np.arange(0, 2 * len(tokens), 2), tokens] += 6
    scores[1::2, BLANK] += 6
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores.astype(np.float32)


def write_arpa(path: Path, sentences: Iterable[Sequence[str]], vocabulary: Sequence[str]) -> None:
    """Write a trigram for KenLM: relative frequencies, and back-off by 0.4 (Brants et al. 2007).

    How fast KenLM scores does not depend on the estimates. Every word of the vocabulary has one.
    """
    counts: List[Counter[Tuple[str, ...]]] = [collections.Counter() for _ in range(3)]
    for sentence in sentences:
        words = ["<s>", *sentence, "</s>"]
        for order, some in enumerate(counts):
            some.update(zip(*(words[start:] for start in range(order + 1))))
    counts[0].update((word,) for word in ("<unk>", "</s>", *vocabulary))
    lines = ["\\data\\", *(f"ngram {n}={len(some)}" for n, some in enumerate(counts, 1))]
    for order, some in enumerate(counts):
        lines += ["", f"\\{order + 1}-grams:"]
        for ngram, count in some.items():
            total = counts[order - 1][ngram[:-1]] if order else sum(counts[0].values())
            line = f"{math.log10(count / total):.6f}\t{' '.join(ngram)}"
            lines.append(line + f"\t{_BACK_OFF:.6f}" * (order < 2))
    part = path.with_name(f"{path.name}.part")  # the file appears when it is whole
    part.write_text("\n".join([*lines, "", "\\end\\", ""]), encoding="utf-8")
    part.replace(path)
