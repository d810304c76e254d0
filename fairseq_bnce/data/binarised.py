"""The files of binarised data, looked at before fairseq reads them."""

import os
from typing import Optional

from fairseq import utils
from fairseq.data import Dictionary

from fairseq_bnce.data.token_counts import count_tokens, split_prefixes
from fairseq_bnce.errors import InputError


def check_folders(data: Optional[str]) -> None:
    """Raise InputError unless ``data`` are folders, the first of which has a dict.txt."""
    folders = utils.split_paths(data or "")
    for folder in folders:
        if not os.path.isdir(folder):
            raise InputError(
                f"data {folder!r}: required a folder made by fairseq-preprocess --only-source, "
                "got no such folder"
            )
    if not os.path.isfile(os.path.join(folders[0], "dict.txt")):
        raise InputError(
            f"data {folders[0]!r}: required a folder made by fairseq-preprocess --only-source, "
            "got one without dict.txt"
        )


def check_split(
    folder: str, split: str, dictionary: Dictionary, *, combine: bool, cache: bool
) -> None:
    """Make sure that a split is there, whole and of this dictionary.

    Args:
        folder: of the data.
        split: its name.
        dictionary: what its ids should come from.
        combine: whether all its files (train, train1, ...) are read, or the first alone.
        cache: whether counts of its words are kept beside it.

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
