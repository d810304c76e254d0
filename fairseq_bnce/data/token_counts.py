"""How often each word occurs among the binarised training targets.

``dict.txt`` does not tell: fairseq gives ``</s>`` and ``<unk>`` a count of 1 there, and padding
words 0. So the memory-mapped token files themselves are counted, once, and the counts are kept
beside them. Tasks that keep no such files, or sample from several folders, have their loaded
training set counted, item by item.
"""

import contextlib
import glob
import hashlib
import io
import itertools
import logging
import os
import struct
import time
import uuid
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.data.indexed_dataset import (
    MMapIndexedDataset,
    data_file_path,
    index_file_path,
    infer_dataset_impl,
)
from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
from fairseq.tasks import FairseqTask

from fairseq_bnce.errors import InputError

logger = logging.getLogger(__name__)

_COUNT_AT_ONCE = 2**26  # tokens, so that a file of any size is counted in bounded memory
_COLLATED = 256  # items of a data set that are made a batch
_JOINED = 2**20  # tokens of items that are counted together: a count takes the vocabulary's time
_HASH_BLOCKS, _BLOCK_BYTES = 256, 2**16
_DIGEST_BYTES = hashlib.sha256().digest_size
_SEPARATOR = 1  # tokens of a line that ends a document, as fairseq's data sets have it
# What fairseq's reading of an index, of any bytes, may raise.
_DAMAGE = (AssertionError, KeyError, OSError, OverflowError, ValueError, struct.error)
_ABANDONED = 3600  # seconds after which an unfinished file has nobody who writes on


def break_mode(args: Any) -> str:
    """The value of --sample-break-mode, which may be fairseq's enumeration."""
    return str(getattr(args.sample_break_mode, "value", args.sample_break_mode))


def training_target_counts(task: FairseqTask, subset: str = "train") -> torch.Tensor:
    """Counts of a task's training targets.

    Args:
        task: with a target dictionary, and either the folders of its data in its configuration, as
            language modeling and translation have them, or its training set loaded.
        subset: the split that is trained on, ``--train-subset``.

    Returns:
        (V,) int64, V the size of the task's target dictionary; words outside of an
        ``--output-dictionary-size`` are counted as ``<unk>``, as the task replaces them, and
        ``<s>`` as often as ``--add-bos-token`` puts one in front of a block.

    Raises:
        InputError: if there are no training data, or they don't fit the dictionary.
    """
    prefixes = _target_prefixes(task, subset)
    counts = _counts_of_files(task, prefixes) if prefixes else _counts_of_loaded(task, subset)
    told = f"noise: counted {counts.sum():,} training targets in "
    told += f"{len(prefixes)} file(s)" if prefixes else f"the training set of --task {_name(task)}"
    if not counts[task.target_dictionary.unk()]:
        told += ", none of them <unk>: scores of words that are not in dict.txt will mean nothing"
    logger.info(told)
    return torch.from_numpy(counts)


def _counts_of_files(task: FairseqTask, prefixes: Sequence[str]) -> np.ndarray:
    """(V,) int64, of binarised files."""
    dictionary = task.target_dictionary
    full = task.source_dictionary if hasattr(task, "output_dictionary") else dictionary
    counts = np.zeros(len(full), dtype=np.int64)
    for prefix in prefixes:
        counts += count_tokens(prefix, full, cache=True)
    args = getattr(task, "args", None)
    if hasattr(args, "sample_break_mode"):  # of language_modeling; others cut no blocks
        _count_as_cut(counts, args, prefixes, full)
    of_targets = counts[: len(dictionary)].copy()
    of_targets[dictionary.unk()] += counts[len(dictionary) :].sum()
    return of_targets


def _counts_of_loaded(task: FairseqTask, subset: str) -> np.ndarray:
    """(V,) int64, of a data set, as often as the task samples its items in this epoch.

    Raises:
        InputError: if it is not loaded, or its batches have no target of their own, as where each
            holds one batch of every language: no one distribution is that of all.
    """
    dictionary = task.target_dictionary
    counts = np.zeros(0, dtype=np.int64)
    if subset in task.datasets:
        targets = _targets(task.dataset(subset), dictionary.pad())
        counts = _sum_of_counts(_joined(targets), f"--task {_name(task)}", dictionary)
    if not counts.any():
        folders, names = _target_names(task, subset)
        raise InputError(
            f"{os.pathsep.join(folders) or 'data'}: required binarised training data "
            f"({' or '.join(names)} with .bin and .idx), or of --task {_name(task)} a loaded "
            "training set whose batches have one target, to count the unigram noise from, got "
            "none; --noise uniform needs no counts (with --criterion shared_nce, say: the noise of "
            "bnce is the batch's own words)"
        )
    return np.pad(counts, (0, len(dictionary) - len(counts)))


def _targets(dataset: FairseqDataset, pad: int) -> Iterator[np.ndarray]:
    """Of all items, without padding; collated, since only a data set knows what its items are."""
    for start in range(0, len(dataset), _COLLATED):
        numbers = range(start, min(start + _COLLATED, len(dataset)))
        if dataset.supports_prefetch:
            dataset.prefetch(numbers)
        target = dataset.collater([dataset[number] for number in numbers]).get("target")
        if not torch.is_tensor(target):
            return
        yield target[target != pad].numpy()


def _name(task: FairseqTask) -> str:
    """As ``--task`` has it."""
    config = _configuration(task)
    return getattr(config, "_name", None) or getattr(config, "task", None) or type(task).__name__


def _configuration(task: FairseqTask) -> Any:
    return getattr(task, "args", None) or task.cfg


def _count_as_cut(
    counts: np.ndarray, args: Any, prefixes: Sequence[str], dictionary: Dictionary
) -> None:
    """What blocks have beside the text's words: <s> in front, and no </s> between documents."""
    mode = break_mode(args)
    leaves_out = mode == "complete_doc"
    if not (leaves_out or args.add_bos_token):
        return
    for _, files in itertools.groupby(prefixes, os.path.dirname):  # a folder's are one text
        sizes = np.concatenate([_item_sizes(prefix, dictionary) for prefix in files])
        if leaves_out:
            empty_lines = (sizes == _SEPARATOR).sum()
            counts[dictionary.eos()] -= min(empty_lines, counts[dictionary.eos()])
        if args.add_bos_token:
            blocks = _get_slice_indices_fast(sizes, mode, args.tokens_per_sample, _SEPARATOR)
            counts[dictionary.bos()] += len(blocks)


def _item_sizes(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """(items,) int64: tokens of each line."""
    if infer_dataset_impl(prefix) in ("mmap", None):
        index = _mapped_index(prefix)  # which, once collected, closes the file that sizes are in
        return index.sizes.astype(np.int64)
    return np.array(data_utils.load_indexed_dataset(prefix, dictionary).sizes, dtype=np.int64)


def count_tokens(prefix: str, dictionary: Dictionary, cache: bool = False) -> np.ndarray:
    """Count every word id of one binarised file.

    Args:
        prefix: the path without ``.bin`` and ``.idx``.
        dictionary: what the ids should come from.
        cache: keep the counts in a file beside the data, its name made from their content. It is
            believed if its checksum and the number of tokens are right, and else made again.

    Returns:
        (V,) int64.

    Raises:
        InputError: if the file is damaged or holds an id that the dictionary lacks.
    """
    cached = _cache_path(prefix) if cache else None
    counts = None if cached is None else _read_cache(cached)
    if counts is None or not _is_of(counts, prefix):
        counts = _count(prefix, dictionary)
        if cached is not None:
            _write_cache(cached, counts)
            _remove_outdated(prefix, cached)
    if len(counts) > len(dictionary):
        raise _foreign_id(prefix, len(counts) - 1, dictionary)
    return np.pad(counts, (0, len(dictionary) - len(counts)))


def _foreign_id(prefix: str, id_: int, dictionary: Dictionary) -> InputError:
    return InputError(
        f"{prefix}: required word ids from 0 and below {len(dictionary)}, the size of dict.txt, "
        f"got id {id_}; binarise all splits with one dictionary (fairseq-preprocess --srcdict)"
    )


def _count(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """(largest id + 1,) int64, of ids that the dictionary has."""
    # What fairseq cannot name is a damaged index, or none: mapping it says which.
    if infer_dataset_impl(prefix) not in ("mmap", None):
        return _count_items(prefix, dictionary)
    tokens = _mapped_tokens(prefix)
    starts = range(0, len(tokens), _COUNT_AT_ONCE)
    parts = (tokens[start : start + _COUNT_AT_ONCE] for start in starts)
    return _sum_of_counts(parts, prefix, dictionary)


def _sum_of_counts(parts: Iterable[np.ndarray], prefix: str, dictionary: Dictionary) -> np.ndarray:
    """(largest id + 1,) int64, of word ids in arrays."""
    counts = np.zeros(0, dtype=np.int64)
    for part in filter(len, parts):
        for id_ in (int(part.min()), int(part.max())):  # first: counts take the memory of the ids
            if not 0 <= id_ < len(dictionary):
                raise _foreign_id(prefix, id_, dictionary)
        found = np.bincount(part.astype(np.int64))
        if len(found) > len(counts):
            counts = np.pad(counts, (0, len(found) - len(counts)))
        counts[: len(found)] += found
    return counts


def _mapped_tokens(prefix: str) -> np.ndarray:
    """All tokens of a memory-mapped file in one array, after a check of its two parts."""
    index = _mapped_index(prefix)
    wanted, dtype = _indexed_tokens(index) * np.dtype(index.dtype).itemsize, index.dtype
    try:
        got = os.path.getsize(data_file_path(prefix))
    except OSError as error:
        required = f"{prefix}.bin: required the tokens of {os.path.basename(prefix)}.idx"
        raise InputError(f"{required}, got none: {error.strerror}") from error
    if got != wanted:
        raise InputError(
            f"{prefix}.bin: required {wanted:,} bytes, as its index says, got {got:,}; the file "
            "is damaged, binarise the data again with fairseq-preprocess"
        )
    return np.memmap(data_file_path(prefix), mode="r", dtype=dtype) if got else np.zeros(0, dtype)


class _Index(MMapIndexedDataset.Index):
    """fairseq's, which prints a traceback when one that could not be read is collected."""

    def __del__(self) -> None:
        if hasattr(self, "_bin_buffer_mmap"):
            super().__del__()


def _mapped_index(prefix: str) -> _Index:
    try:
        index = _Index(index_file_path(prefix))
        np.dtype(index.dtype)
    except _DAMAGE as error:
        raise InputError(f"{prefix}.idx: required a binarised index, got: {error}") from error
    return index


def _indexed_tokens(index: MMapIndexedDataset.Index) -> int:
    return int(index.sizes.sum(dtype=np.int64))


def _count_items(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """The other formats of fairseq have no array to map: item by item."""
    format_ = infer_dataset_impl(prefix)
    # "cached" would have to be told beforehand which items to read.
    format_ = "lazy" if format_ == "cached" else format_
    dataset = data_utils.load_indexed_dataset(prefix, dictionary, format_)
    items = (dataset[item].numpy() for item in range(len(dataset)))
    return _sum_of_counts(_joined(items), prefix, dictionary)


def _joined(items: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    waiting: List[np.ndarray] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += len(item)
        if size >= _JOINED:
            yield np.concatenate(waiting)
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting)


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


def _target_prefixes(task: FairseqTask, subset: str) -> List[str]:
    folders, names = _target_names(task, subset)
    return [prefix for name in names for prefix in split_prefixes(folders, name)]


def _target_names(task: FairseqTask, subset: str) -> Tuple[List[str], List[str]]:
    """(folders, names of files without their ends) of binarised targets, which may not be there."""
    config = _configuration(task)
    data = getattr(config, "data", None)
    folders = utils.split_paths(data) if data else []
    source, target = getattr(config, "source_lang", None), getattr(config, "target_lang", None)
    names = [subset]
    if target is not None:
        names = [f"{subset}.{source}-{target}.{target}", f"{subset}.{target}-{source}.{target}"]
    return folders, names


def _cache_path(prefix: str) -> str:
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


def _read_cache(path: str) -> Optional[np.ndarray]:
    """Counts as they were written; None for a file that is missing, damaged or half-written."""
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError:
        return None
    array, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(array).digest() != digest:
        return None
    return np.load(io.BytesIO(array))


def _is_of(counts: np.ndarray, prefix: str) -> bool:
    """Whether that many tokens are in the file, as far as its format tells without reading it."""
    if counts.ndim != 1 or counts.dtype != np.int64 or (counts < 0).any():
        return False
    is_mapped = infer_dataset_impl(prefix) in ("mmap", None)
    return not is_mapped or int(counts.sum()) == _indexed_tokens(_mapped_index(prefix))


def _write_cache(path: str, counts: np.ndarray) -> None:
    """An .npy file, and behind the array its SHA-256."""
    array = io.BytesIO()
    np.save(array, counts)
    # Several ranks may write at once, of other machines too, where process ids repeat.
    unfinished = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(unfinished, "xb") as stream:
            stream.write(array.getvalue() + hashlib.sha256(array.getvalue()).digest())
        os.replace(unfinished, path)
    except OSError as error:
        logger.info(f"noise: the counts are not kept, {path} can't be written: {error}")
        _remove(unfinished)


def _remove_outdated(prefix: str, current: str) -> None:
    """Caches of what the file held before, and what was left behind in writing one.

    Another rank may do the same at the same time, and may be writing: what is young stays.
    """
    pattern = f"{glob.escape(prefix)}.target-counts-*.npy"
    for path in glob.glob(pattern):
        if path != current:
            _remove(path)
    for path in glob.glob(f"{pattern}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - os.path.getmtime(path) > _ABANDONED:
                _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # gone already, or another user's
        os.remove(path)
