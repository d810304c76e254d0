"""How often each word occurs among the binarised training targets.

``dict.txt`` does not say: fairseq gives ``</s>`` and ``<unk>`` a count of 1 there, and padding
words 0. So the binarised files are counted once, and the counts are kept beside them. Tasks
without such files have their loaded training set counted.
"""

import glob
import hashlib
import itertools
import logging
import os
from typing import Any, Iterable, Iterator, List, Tuple

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset, infer_dataset_impl
from fairseq.data.shorten_dataset import maybe_shorten_dataset
from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
from fairseq.tasks import FairseqTask

from fairseq_bnce.errors import InputError
from fairseq_bnce.text.writing import replacing

logger = logging.getLogger(__name__)

_COUNT_AT_ONCE = 2**24  # tokens, so that a file of any size is counted in bounded memory
_ENDS = 2**16  # bytes of a file's beginning, and of its end, in the name of its counts
_ITEMS = 2**12  # lines that are counted together
_SEPARATOR = 1  # tokens of an empty line, which ends a document


# ---------------------------------------------------------------- training targets


def training_target_counts(task: FairseqTask, subset: str = "train") -> torch.Tensor:
    """Count a task's training targets.

    Args:
        task: a task with a target dictionary. Its configuration names the folders of its data, as
            in language modeling and translation, or its training set is loaded.
        subset: the training split, ``--train-subset``.

    Returns:
        (V,) int64, for each word of the target dictionary. Words outside an
        ``--output-dictionary-size`` count as ``<unk>``. ``<s>`` counts once for each block to which
        ``--add-bos-token`` adds it. The ends of lines that ``--shorten-method`` drops do not count.

    Raises:
        InputError: if there are no training data, or they don't fit the dictionary.
    """
    folders, splits = _target_names(getattr(task, "args", None) or task.cfg, subset)
    prefixes = [prefix for split in splits for prefix in split_prefixes(folders, split)]
    source = f"{len(prefixes)} file(s)" if prefixes else f"the loaded '{subset}' set"
    if prefixes:
        counts = _counts_of_files(task, prefixes, subset)
    else:
        counts = _count_words(_loaded_targets(task, subset), source, task.target_dictionary)
    if not counts.any():
        raise InputError(
            f"{type(task).__name__}: required binarised training data ({' or '.join(splits)}) in "
            f"{os.pathsep.join(folders) or 'its data folder'}, or a loaded training set whose "
            "batches have one target, got none to count; --noise uniform needs no counts"
        )
    message = f"noise: counted {counts.sum():,} training targets in {source}"
    if not counts[task.target_dictionary.unk()]:
        message += ", none of them <unk>: scores of words that are not in dict.txt mean nothing"
    logger.info(message)
    return torch.from_numpy(counts)


def _target_names(config: object, subset: str) -> Tuple[List[str], List[str]]:
    """Return the folders and the names of binarised targets, which need not exist."""
    data = getattr(config, "data", None)
    source, target = getattr(config, "source_lang", None), getattr(config, "target_lang", None)
    splits = [subset]
    if target is not None:
        splits = [f"{subset}.{source}-{target}.{target}", f"{subset}.{target}-{source}.{target}"]
    return utils.split_paths(data) if data else [], splits


def _counts_of_files(task: FairseqTask, prefixes: List[str], subset: str) -> np.ndarray:
    """Count the targets in binarised files."""
    dictionary = task.target_dictionary
    full = task.source_dictionary if hasattr(task, "output_dictionary") else dictionary
    counts = np.sum([count_tokens(prefix, full, cache=True) for prefix in prefixes], axis=0)
    args = getattr(task, "args", None)
    if hasattr(args, "sample_break_mode"):  # only language_modeling cuts blocks
        _count_as_cut(counts, args, prefixes, full, subset)
    targets, others = np.split(counts, [len(dictionary)])
    targets[dictionary.unk()] += others.sum()
    return targets


def _count_as_cut(
    counts: np.ndarray, args: Any, prefixes: List[str], words: Dictionary, subset: str
) -> None:
    """Add <s> in front of each block; subtract ends of lines, and </s> between documents."""
    mode, method = str(args.sample_break_mode), getattr(args, "shorten_method", "none")
    if mode != "complete_doc" and method == "none" and not args.add_bos_token:
        return
    if method != "none":
        counts.fill(0)  # counted again, as cut
    for _, files in itertools.groupby(prefixes, os.path.dirname):  # the files of a folder: one text
        text = _lines(next(files), words, combine=True)
        if method != "none":
            only, length = args.shorten_data_split_list, args.tokens_per_sample
            text = maybe_shorten_dataset(text, subset, only, method, length, args.seed)
            counts += _count_words(_pieces(text), subset, words)
        sizes = np.array(text.sizes, dtype=np.int64)
        if mode == "complete_doc":
            empty_lines = (sizes == _SEPARATOR).sum()
            counts[words.eos()] -= min(empty_lines, counts[words.eos()])
        if args.add_bos_token:
            blocks = _get_slice_indices_fast(sizes, mode, args.tokens_per_sample, _SEPARATOR)
            counts[words.bos()] += len(blocks)


def _loaded_targets(task: FairseqTask, subset: str) -> Iterator[np.ndarray]:
    """Yield the targets of a loaded data set, as often as the task samples them in this epoch.

    Yields nothing for a data set that is not loaded, or whose batches hold several languages.
    """
    dataset: FairseqDataset = task.datasets.get(subset)
    for numbers in _slices(len(dataset or ())):
        if dataset.supports_prefetch:
            dataset.prefetch(numbers)
        target = dataset.collater([dataset[number] for number in numbers]).get("target")
        if not torch.is_tensor(target):
            return
        yield target[target != task.target_dictionary.pad()].numpy()


def _slices(size: int) -> Iterator[range]:
    return (range(start, min(start + _ITEMS, size)) for start in range(0, size, _ITEMS))


# ---------------------------------------------------------------- files


def check_split(folder: str, split: str, words: Dictionary, combine: bool, cache: bool) -> None:
    """Check the binarised files of a split, before fairseq reads them.

    Args:
        folder: the folder of the files.
        split: name of the split.
        words: that the ids stand for.
        combine: whether ``split1``, ``split2``, ... belong to the split.
        cache: whether to keep the counts of its words beside it.

    Raises:
        InputError: for missing or damaged files, or ids that the dictionary lacks.
    """
    prefixes = split_prefixes([folder], split) or [os.path.join(folder, split)]
    for prefix in prefixes if combine else prefixes[:1]:
        count_tokens(prefix, words, cache=cache)


def split_prefixes(folders: List[str], name: str) -> List[str]:
    """Return the files of a split in all folders: ``name``, ``name1``, ... as fairseq does."""
    split, dot, rest = name.partition(".")  # train1.fr-en.en
    prefixes = []
    for folder in folders:
        for number in itertools.count():
            prefix = os.path.join(folder, f"{split}{number or ''}{dot}{rest}")
            if not (os.path.exists(f"{prefix}.idx") or infer_dataset_impl(prefix)):
                break
            prefixes.append(prefix)
    return prefixes


def count_tokens(prefix: str, dictionary: Dictionary, cache: bool = False) -> np.ndarray:
    """Count every word id of a binarised file.

    Args:
        prefix: the path without ``.bin`` and ``.idx``.
        dictionary: the words that the ids stand for.
        cache: keep the counts beside the data, in a file whose name changes with the sizes, times,
            beginnings and ends of the data files.

    Returns:
        (V,) int64.

    Raises:
        InputError: if the file is damaged or holds an id that the dictionary lacks.
    """
    path = _cache_path(prefix)
    if cache and os.path.exists(path):
        counts = np.load(path)
        if len(counts) == len(dictionary):
            return counts
    counts = _count_words(_read(prefix, dictionary), prefix, dictionary)
    if cache:
        _write_cache(prefix, path, counts)
    return counts


def _count_words(parts: Iterable[np.ndarray], name: str, dictionary: Dictionary) -> np.ndarray:
    """Count the word ids in arrays, (V,) int64."""
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for part in filter(len, parts):
        if part.max() >= len(counts):
            required = f"word ids below {len(counts)}, the size of dict.txt"
            advice = "binarise all splits with one dictionary (fairseq-preprocess --srcdict)"
            raise InputError(f"{name}: required {required}, got id {part.max()}; {advice}")
        counts += np.bincount(part.astype(np.int64), minlength=len(counts))
    return counts


def _read(prefix: str, dictionary: Dictionary) -> Iterable[np.ndarray]:
    """Return a file's word ids in pieces."""
    kind = infer_dataset_impl(prefix)
    required = f"{prefix}.bin, {prefix}.idx: required two whole files made by fairseq-preprocess"
    if kind is None:
        raise InputError(f"{required}, got none")
    if kind != "mmap":
        return _pieces(_lines(prefix, dictionary))
    try:
        index = MMapIndexedDataset.Index(f"{prefix}.idx")
        size = index.sizes.sum(dtype=np.int64)
        tokens = np.memmap(f"{prefix}.bin", mode="r", dtype=index.dtype)
    except ValueError as error:
        raise InputError(f"{required}, got: {error}") from error
    if len(tokens) != size:
        raise InputError(f"{required}, got {len(tokens):,} word ids of {size:,}")
    return np.array_split(tokens, 1 + len(tokens) // _COUNT_AT_ONCE)


def _lines(prefix: str, words: Dictionary, combine: bool = False) -> Any:
    """Return fairseq's data set of a file, or of all files of its split."""
    kind = infer_dataset_impl(prefix)
    # fairseq has to know in advance which items of a "cached" file are read.
    kind = "lazy" if kind == "cached" else kind
    return data_utils.load_indexed_dataset(prefix, words, kind, combine)


def _pieces(lines: Any) -> Iterator[np.ndarray]:
    items = ([lines[number].numpy() for number in numbers] for numbers in _slices(len(lines)))
    return map(np.concatenate, items)


# ---------------------------------------------------------------- cache


def _cache_path(prefix: str) -> str:
    digest = hashlib.sha1()
    for path in filter(os.path.exists, (f"{prefix}.idx", f"{prefix}.bin")):
        with open(path, "rb") as file:  # sizes and times may be those of other content
            found = os.fstat(file.fileno())
            digest.update(f"{found.st_size} {found.st_mtime_ns} ".encode() + file.read(_ENDS))
            file.seek(max(0, found.st_size - _ENDS))
            digest.update(file.read())
    return f"{prefix}.target-counts-{digest.hexdigest()[:16]}.npy"


def _write_cache(prefix: str, path: str, counts: np.ndarray) -> None:
    """Keep counts in a file, if the folder may be written, and remove those of earlier content."""
    try:
        with replacing(path) as unfinished:
            np.save(unfinished, counts)
        for other in glob.glob(f"{glob.escape(prefix)}.target-counts-*.npy"):
            if other != path:
                os.remove(other)
    except OSError as error:
        logger.info(f"noise: the counts are not kept in {path}: {error}")
