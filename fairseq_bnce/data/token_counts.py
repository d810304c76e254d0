"""How often each word occurs among the binarised training targets.

``dict.txt`` does not tell: fairseq gives ``</s>`` and ``<unk>`` a count of 1 there, and padding
words 0. So the memory-mapped token files themselves are counted, once, and the counts are kept
beside them. Tasks that keep no such files, or sample from several folders, have their loaded
training set counted, item by item.
"""

import contextlib
import glob
import hashlib
import itertools
import logging
import os
import struct
import uuid
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

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
_JOINED = 2**20  # tokens of items that are counted together
_COLLATED = 256  # items of a data set that form a batch
_SEPARATOR = 1  # tokens of a line that ends a document, as in fairseq's data sets
# What fairseq raises for the index of a damaged file.
_DAMAGE = (AssertionError, KeyError, OSError, OverflowError, ValueError, struct.error)


def break_mode(args: Any) -> str:
    """Return the value of --sample-break-mode, which may be a member of fairseq's enumeration."""
    return str(getattr(args.sample_break_mode, "value", args.sample_break_mode))


def training_target_counts(task: FairseqTask, subset: str = "train") -> torch.Tensor:
    """Count a task's training targets.

    Args:
        task: a task with a target dictionary. Its configuration names the folders of its data, as
            in language modeling and translation, or its training set is loaded.
        subset: the training split, ``--train-subset``.

    Returns:
        (V,) int64, for each word of the target dictionary. Words outside an
        ``--output-dictionary-size`` count as ``<unk>``. ``<s>`` counts once for each block to which
        ``--add-bos-token`` adds it.

    Raises:
        InputError: if there are no training data, or they don't fit the dictionary.
    """
    prefixes = _target_prefixes(task, subset)
    counts = _counts_of_files(task, prefixes) if prefixes else _counts_of_loaded(task, subset)
    source = f"{len(prefixes)} file(s)" if prefixes else f"the training set of --task {_name(task)}"
    message = f"noise: counted {counts.sum():,} training targets in {source}"
    if not counts[task.target_dictionary.unk()]:
        message += ", none of them <unk>: scores of words that are not in dict.txt mean nothing"
    logger.info(message)
    return torch.from_numpy(counts)


def _counts_of_files(task: FairseqTask, prefixes: Sequence[str]) -> np.ndarray:
    """Count the targets in binarised files."""
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
    """Count the targets of a loaded data set, as often as the task samples them in this epoch."""
    dictionary = task.target_dictionary
    targets: Iterable[np.ndarray] = ()
    if subset in task.datasets:
        targets = _targets(task.dataset(subset), dictionary.pad())
    counts = _count_words(targets, f"--task {_name(task)}", dictionary)
    if not counts.any():
        folders, names = _target_names(task, subset)
        raise InputError(
            f"{os.pathsep.join(folders) or 'data'}: required binarised training data "
            f"({' or '.join(names)} with .bin and .idx), or of --task {_name(task)} a loaded "
            "training set whose batches have one target, to count the unigram noise from, got "
            "none; --noise uniform needs no counts (with --criterion shared_nce, say: the noise of "
            "bnce is the batch's own words)"
        )
    return counts


def _targets(dataset: FairseqDataset, pad: int) -> Iterator[np.ndarray]:
    """Yield the targets of batches without padding; none if a batch holds several languages."""
    for start in range(0, len(dataset), _COLLATED):
        numbers = range(start, min(start + _COLLATED, len(dataset)))
        if dataset.supports_prefetch:
            dataset.prefetch(numbers)
        target = dataset.collater([dataset[number] for number in numbers]).get("target")
        if not torch.is_tensor(target):
            return
        yield target[target != pad].numpy()


def _name(task: FairseqTask) -> str:
    """Return the name of a task, as in ``--task``."""
    config = _configuration(task)
    return getattr(config, "_name", None) or getattr(config, "task", None) or type(task).__name__


def _configuration(task: FairseqTask) -> Any:
    return getattr(task, "args", None) or task.cfg


def _count_as_cut(
    counts: np.ndarray, args: Any, prefixes: Sequence[str], dictionary: Dictionary
) -> None:
    """Add each <s> in front of a block, and take away each </s> between documents."""
    mode = break_mode(args)
    leaves_out = mode == "complete_doc"
    if not (leaves_out or args.add_bos_token):
        return
    for _, files in itertools.groupby(prefixes, os.path.dirname):  # the files of a folder: one text
        sizes = np.concatenate([_item_sizes(prefix, dictionary) for prefix in files])
        if leaves_out:
            empty_lines = (sizes == _SEPARATOR).sum()
            counts[dictionary.eos()] -= min(empty_lines, counts[dictionary.eos()])
        if args.add_bos_token:
            blocks = _get_slice_indices_fast(sizes, mode, args.tokens_per_sample, _SEPARATOR)
            counts[dictionary.bos()] += len(blocks)


def _item_sizes(prefix: str, dictionary: Dictionary) -> np.ndarray:
    """Return the number of tokens of each line, (items,) int64."""
    if _is_mapped(prefix):
        index = _mapped_index(prefix)  # closes its file once it is collected
        return index.sizes.astype(np.int64)
    return np.array(data_utils.load_indexed_dataset(prefix, dictionary).sizes, dtype=np.int64)


def count_tokens(prefix: str, dictionary: Dictionary, cache: bool = False) -> np.ndarray:
    """Count every word id of a binarised file.

    Args:
        prefix: the path without ``.bin`` and ``.idx``.
        dictionary: the words that the ids stand for.
        cache: keep the counts beside the data, in a file whose name changes with the sizes and
            times of the data files.

    Returns:
        (V,) int64.

    Raises:
        InputError: if the file is damaged or holds an id that the dictionary lacks.
    """
    if not cache:
        return _count(prefix, dictionary)
    path = _cache_path(prefix)
    if os.path.exists(path):
        counts = np.load(path)
        if len(counts) > len(dictionary):
            raise _foreign_id(prefix, len(counts) - 1, dictionary)
        return np.pad(counts, (0, len(dictionary) - len(counts)))
    counts = _count(prefix, dictionary)
    _write_cache(path, np.trim_zeros(counts, "b"))
    for other in glob.glob(f"{glob.escape(prefix)}.target-counts-*.npy"):
        if other != path:  # of an earlier content
            with contextlib.suppress(OSError):
                os.remove(other)
    return counts


def _foreign_id(prefix: str, id_: int, dictionary: Dictionary) -> InputError:
    return InputError(
        f"{prefix}: required word ids from 0 and below {len(dictionary)}, the size of dict.txt, "
        f"got id {id_}; binarise all splits with one dictionary (fairseq-preprocess --srcdict)"
    )


def _is_mapped(prefix: str) -> bool:
    """Return whether a file is in fairseq's usual format; True for a damaged index."""
    return infer_dataset_impl(prefix) in ("mmap", None)


def _count(prefix: str, dictionary: Dictionary) -> np.ndarray:
    if _is_mapped(prefix):
        tokens = _mapped_tokens(prefix)
        starts = range(0, len(tokens), _COUNT_AT_ONCE)
        parts = (tokens[start : start + _COUNT_AT_ONCE] for start in starts)
        return _count_words(parts, prefix, dictionary)
    format_ = infer_dataset_impl(prefix)
    # fairseq has to know in advance which items of a "cached" file are read.
    format_ = "lazy" if format_ == "cached" else format_
    dataset = data_utils.load_indexed_dataset(prefix, dictionary, format_)
    items = (dataset[item].numpy() for item in range(len(dataset)))
    return _count_words(items, prefix, dictionary)


def _count_words(parts: Iterable[np.ndarray], name: str, dictionary: Dictionary) -> np.ndarray:
    """Count the word ids in arrays, (V,) int64."""
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for part in _joined(parts):
        for id_ in (int(part.min()), int(part.max())):
            if not 0 <= id_ < len(dictionary):
                raise _foreign_id(name, id_, dictionary)
        counts += np.bincount(part.astype(np.int64), minlength=len(dictionary))
    return counts


def _joined(parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Join small arrays, so that few counts of the dictionary's size are added."""
    waiting: List[np.ndarray] = []
    size = 0
    for part in filter(len, parts):
        waiting.append(part)
        size += len(part)
        if size >= _JOINED:
            yield np.concatenate(waiting)
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _mapped_tokens(prefix: str) -> np.ndarray:
    """Map all tokens of a file as one array, after a check of its size."""
    index = _mapped_index(prefix)
    dtype = np.dtype(index.dtype)
    required = int(index.sizes.sum(dtype=np.int64)) * dtype.itemsize
    path = data_file_path(prefix)
    found = os.path.getsize(path) if os.path.exists(path) else 0
    if found != required:
        raise InputError(
            f"{path}: required {required:,} bytes, as its index says, got {found:,}; the file "
            "is damaged, binarise the data again with fairseq-preprocess"
        )
    return np.memmap(path, mode="r", dtype=dtype) if found else np.zeros(0, dtype)


class _Index(MMapIndexedDataset.Index):
    """fairseq's index, without the traceback at the end of one that could not be read."""

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


def split_prefixes(folders: List[str], name: str) -> List[str]:
    """Return the files of a split in all folders: ``name``, ``name1``, ... as fairseq does."""
    prefixes = []
    for folder in folders:
        for number in itertools.count():
            prefix = os.path.join(folder, _numbered(name, number))
            if not (os.path.exists(index_file_path(prefix)) or infer_dataset_impl(prefix)):
                break
            prefixes.append(prefix)
    return prefixes


def _numbered(name: str, number: int) -> str:
    """Number a split as fairseq does, before its language pair: train1.fr-en.en."""
    split, dot, rest = name.partition(".")
    return f"{split}{number or ''}{dot}{rest}"


def _target_prefixes(task: FairseqTask, subset: str) -> List[str]:
    folders, names = _target_names(task, subset)
    return [prefix for name in names for prefix in split_prefixes(folders, name)]


def _target_names(task: FairseqTask, subset: str) -> Tuple[List[str], List[str]]:
    """Return the folders and the names of binarised targets, which need not exist."""
    config = _configuration(task)
    data = getattr(config, "data", None)
    folders = utils.split_paths(data) if data else []
    source, target = getattr(config, "source_lang", None), getattr(config, "target_lang", None)
    names = [subset]
    if target is not None:
        names = [f"{subset}.{source}-{target}.{target}", f"{subset}.{target}-{source}.{target}"]
    return folders, names


def _cache_path(prefix: str) -> str:
    found = []
    for path in (index_file_path(prefix), data_file_path(prefix)):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found.append(f"{status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha1(" ".join(found).encode()).hexdigest()
    return f"{prefix}.target-counts-{digest[:16]}.npy"


def _write_cache(path: str, counts: np.ndarray) -> None:
    unfinished = f"{path}.{uuid.uuid4().hex}.tmp"  # several ranks may write at once
    try:
        with open(unfinished, "xb") as stream:
            np.save(stream, counts)
        os.replace(unfinished, path)
    except OSError as error:
        logger.info(f"noise: the counts are not kept, {path} can't be written: {error}")
        with contextlib.suppress(OSError):
            os.remove(unfinished)
