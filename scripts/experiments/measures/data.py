"""Make Zipf-distributed data, as text and as fairseq-preprocess --only-source binarises text.

The word of rank r has a probability proportional to 1 / (r + 2.7)^1.1 (Zipf-Mandelbrot);
words are independent of each other. The dictionary has exactly V types, fairseq's four specials
counted in. The same arguments make the same data.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import data_file_path, index_file_path, make_builder

_EXPONENT, _SHIFT = 1.1, 2.7
SENTENCE = 20  # mean length in tokens, </s> counted in
_OTHER_SPLITS = 4000  # tokens of valid and test, which nothing is measured on


def probabilities(words: int) -> np.ndarray:
    """Return the probabilities of the ranks 1 to ``words``, float64."""
    weights = (np.arange(1, words + 1) + _SHIFT) ** -_EXPONENT
    return weights / weights.sum()


def draw(rng: np.random.Generator, count: int, dictionary: Dictionary, p: np.ndarray) -> np.ndarray:
    """Return (count,) int64 word ids in sentences that end in </s>, the last one too."""
    cumulative = np.cumsum(p)
    ranks = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    ids = dictionary.nspecial + np.minimum(ranks, len(p) - 1)
    ids[rng.random(count) < 1 / SENTENCE] = dictionary.eos()
    ids[-1] = dictionary.eos()
    return ids


def write_split(prefix: Path, ids: np.ndarray, dictionary: Dictionary) -> None:
    """Write one item a sentence, memory-mapped, and the same as text."""
    builder = make_builder(data_file_path(str(prefix)), "mmap", vocab_size=len(dictionary))
    ends = np.flatnonzero(ids == dictionary.eos()) + 1
    with prefix.with_suffix(".txt").open("w", encoding="utf-8") as text:
        for sentence in np.split(ids, ends[:-1]):
            builder.add_item(torch.from_numpy(sentence))
            text.write(" ".join(dictionary[word] for word in sentence[:-1]) + "\n")
    builder.finalize(index_file_path(str(prefix)))


def make(folder: str, vocab: int, tokens: int) -> None:
    """Write the dictionary, with the counts of the training data, and the three splits.

    They appear all at once: an interruption leaves no folder of this name.
    """
    unfinished = Path(f"{folder}.tmp")
    shutil.rmtree(str(unfinished), ignore_errors=True)
    unfinished.mkdir(parents=True)
    dictionary = Dictionary()
    p = probabilities(vocab - len(dictionary))
    rng = np.random.default_rng(1)
    training = draw(rng, tokens, dictionary, p)
    counts = np.bincount(training, minlength=vocab)[len(dictionary) :]
    for rank, count in enumerate(counts.tolist(), start=1):
        dictionary.add_symbol(f"w{rank}", n=count)
    dictionary.save(str(unfinished / "dict.txt"))
    write_split(unfinished / "train", training, dictionary)
    for split in ("valid", "test"):
        write_split(unfinished / split, draw(rng, _OTHER_SPLITS, dictionary, p), dictionary)
    os.replace(str(unfinished), folder)
