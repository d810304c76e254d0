"""How often each word occurs among the binarised training targets.

``dict.txt`` does not tell: fairseq gives ``</s>`` and ``<unk>`` a count of 1 there, and padding
words 0. So the memory-mapped token files themselves are counted, once, and the counts are kept
beside them.
"""

import hashlib
import logging
import os
from typing import List, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    data_file_path,
    index_file_path,
    infer_dataset_impl,
)
from fairseq.tasks import FairseqTask

logger = logging.getLogger(__name__)

_COUNT_AT_ONCE = 2**26  # tokens, so that a file of any size is counted in bounded memory
_HASH_BLOCKS, _BLOCK_BYTES = 256, 2**16


class DataError(ValueError):
    """Binarised data that are missing, damaged or made with another dictionary."""


def training_target_counts(task: FairseqTask) -> torch.Tensor:
    """Counts of the training targets of a language modeling or translation task.

    Returns:
        (V,) int64, V the size of the task's target dictionary; words outside of an
        ``--output-dictionary-size`` are counted as ``<unk>``, as the task replaces them.

    Raises:
        DataError: if there are no training data, or they don't fit the dictionary.
    """
    dictionary = task.target_dictionary
    full = task.source_dictionary if hasattr(task, "output_dictionary") else dictionary
    counts = np.zeros(len(full), dtype=np.int64)
    prefixes = _target_prefixes(task)
    for prefix in prefixes:
        counts += count_tokens(prefix, full, cache=True)
    logger.info(f"noise: counted {counts.sum():,} training targets in {len(prefixes)} file(s)")
    kept = counts[: len(dictionary)].copy()
    kept[dictionary.unk()] += counts[len(dictionary) :].sum()
    return torch.from_numpy(kept)


def count_tokens(prefix: str, dictionary: Dictionary, cache: bool = False) -> np.ndarray:
    """Count every word id of one binarised file.

    Args:
        prefix: the path without ``.bin`` and ``.idx``.
        dictionary: what the ids should come from.
        cache: keep the counts in a file beside the data, its name made from their content.

    Returns:
        (V,) int64.

    Raises:
        DataError: if the file is damaged or holds an id that the dictionary lacks.
    """
    cached = _cache_path(prefix) if cache else None
    counts = _read_cache(cached)
    if counts is None:
        counts = _count(prefix, dictionary)
        _write_cache(cached, counts)
    if len(counts) > len(dictionary):
        raise DataError(
            f"{prefix}: required word ids below {len(dictionary)}, the size of dict.txt, got id "
            f"{len(counts) - 1}; binarise all splits with one dictionary (fairseq-preprocess "
            "--srcdict)"
        )
    return np.pad(counts, (0, len(dictionary) - len(counts)))


def _count(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """(largest id + 1,) int64."""
    # What fairseq cannot name is a damaged index, or none: mapping it says which.
    if infer_dataset_impl(prefix) not in ("mmap", None):
        return _count_items(prefix, dictionary)
    tokens = _mapped_tokens(prefix)
    parts = [
        np.bincount(tokens[start : start + _COUNT_AT_ONCE].astype(np.int64))
        for start in range(0, len(tokens), _COUNT_AT_ONCE)
    ]
    counts = np.zeros(max((len(part) for part in parts), default=0), dtype=np.int64)
    for part in parts:
        counts[: len(part)] += part
    return counts


def _mapped_tokens(prefix: str) -> np.ndarray:
    """All tokens of a memory-mapped file in one array, after a check of its two parts."""
    try:
        index = MMapIndexedDataset.Index(index_file_path(prefix))
        item_bytes = np.dtype(index.dtype).itemsize
        wanted = int(index.sizes.sum(dtype=np.int64)) * item_bytes
        dtype = index.dtype
    except (AssertionError, KeyError, OSError, ValueError) as error:
        raise DataError(f"{prefix}.idx: required a binarised index, got: {error}") from error
    got = os.path.getsize(data_file_path(prefix))
    if got != wanted:
        raise DataError(
            f"{prefix}.bin: required {wanted:,} bytes, as its index says, got {got:,}; the file "
            "is damaged, binarise the data again with fairseq-preprocess"
        )
    return np.memmap(data_file_path(prefix), mode="r", dtype=dtype) if got else np.zeros(0, dtype)


def _count_items(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """The other formats of fairseq have no array to map: item by item."""
    format_ = infer_dataset_impl(prefix)
    # "cached" would have to be told beforehand which items to read.
    format_ = "lazy" if format_ == "cached" else format_
    dataset = data_utils.load_indexed_dataset(prefix, dictionary, format_)
    counts = np.zeros(0, dtype=np.int64)
    for item in range(len(dataset)):
        part = np.bincount(dataset[item].numpy())
        if len(part) > len(counts):
            counts = np.pad(counts, (0, len(part) - len(counts)))
        counts[: len(part)] += part
    return counts


def split_prefixes(folders: List[str], name: str) -> List[str]:
    """The files of a split: ``name``, ``name1``, ... in every folder, as fairseq combines them."""
    prefixes = []
    for folder in folders:
        number = 0
        while _exists(os.path.join(folder, _numbered(name, number))):
            prefixes.append(os.path.join(folder, _numbered(name, number)))
            number += 1
    return prefixes


def _numbered(name: str, number: int) -> str:
    """fairseq numbers the split, not the language pair: train1.fr-en.en."""
    split, dot, rest = name.partition(".")
    return f"{split}{number or ''}{dot}{rest}"


def _exists(prefix: str) -> bool:
    return os.path.exists(index_file_path(prefix)) or infer_dataset_impl(prefix) is not None


def _target_prefixes(task: FairseqTask) -> List[str]:
    config = getattr(task, "args", None) or task.cfg
    folders = utils.split_paths(config.data)
    source, target = getattr(config, "source_lang", None), getattr(config, "target_lang", None)
    names = ["train"]
    if target is not None:
        names = [f"train.{source}-{target}.{target}", f"train.{target}-{source}.{target}"]
    prefixes = [prefix for name in names for prefix in split_prefixes(folders, name)]
    if not prefixes:
        raise DataError(
            f"{os.pathsep.join(folders)}: required binarised training data ({' or '.join(names)} "
            "with .bin and .idx) to count the unigram noise from, got none"
        )
    return prefixes


def _cache_path(prefix: str) -> Optional[str]:
    return f"{prefix}.target-counts-{_fingerprint(prefix)}.npy"


def _fingerprint(prefix: str) -> str:
    """Changes with size, modification time or any sampled block; whole files of up to 16 MB."""
    digest = hashlib.sha1()
    for path in (index_file_path(prefix), data_file_path(prefix)):
        if not os.path.exists(path):
            continue
        status = os.stat(path)
        digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
        step = max(_BLOCK_BYTES, status.st_size // _HASH_BLOCKS)
        with open(path, "rb") as stream:
            for offset in range(0, status.st_size, step):
                stream.seek(offset)
                digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()[:16]


def _read_cache(path: Optional[str]) -> Optional[np.ndarray]:
    if path is None or not os.path.exists(path):
        return None
    try:
        counts = np.load(path)
    except (OSError, ValueError, EOFError):
        return None  # half-written or damaged: it is counted again
    return counts if counts.ndim == 1 and counts.dtype == np.int64 else None


def _write_cache(path: Optional[str], counts: np.ndarray) -> None:
    if path is None:
        return
    unfinished = f"{path}.{os.getpid()}.tmp"
    try:
        with open(unfinished, "wb") as stream:
            np.save(stream, counts)
        os.replace(unfinished, path)  # several ranks may write at once
    except OSError as error:
        logger.info(f"noise: the counts are not kept, {path} can't be written: {error}")
