"""Check the files of binarised data before fairseq reads them."""

import os
from typing import Optional

from fairseq import utils
from fairseq.data import Dictionary

from fairseq_bnce.data.token_counts import count_tokens, split_prefixes
from fairseq_bnce.errors import InputError

_REQUIRED = "required a folder made by fairseq-preprocess --only-source"


def check_folders(data: Optional[str]) -> None:
    """Raise InputError unless ``data`` are folders, the first of which has a dict.txt."""
    folders = utils.split_paths(data or "")
    for folder in folders:
        if not os.path.isdir(folder):
            raise InputError(f"data {folder!r}: {_REQUIRED}, got no such folder")
    if not os.path.isfile(os.path.join(folders[0], "dict.txt")):
        raise InputError(f"data {folders[0]!r}: {_REQUIRED}, got one without dict.txt")


def check_split(
    folder: str, split: str, dictionary: Dictionary, *, combine: bool, cache: bool
) -> None:
    """Check that a split exists, is complete and fits the dictionary.

    Args:
        folder: the folder of the data.
        split: the name of the split.
        dictionary: the words that the ids stand for.
        combine: whether all files of the split (train, train1, ...) are read, or only the first.
        cache: whether to keep the counts of its words beside it.

    Raises:
        InputError: for missing or damaged files, or ids that the dictionary lacks.
    """
    prefixes = split_prefixes([folder], split)
    if not prefixes:
        raise InputError(
            f"{folder}: required binarised data of split '{split}' ({split}.bin and "
            f"{split}.idx, made by fairseq-preprocess --only-source), got none"
        )
    for prefix in prefixes if combine else prefixes[:1]:
        count_tokens(prefix, dictionary, cache=cache)
