"""The dict.txt of a checkpoint: kept beside it, found again, and known by its words.

A checkpoint stores where its training data were, as they were given: a folder that may be relative
to another one, or gone. So training keeps dict.txt beside its checkpoints, and a checkpoint's task
state names the data's folder in full and tells the words by a checksum.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import uuid
from typing import Any, Dict, List, Mapping, Optional

from fairseq import utils
from fairseq.data import Dictionary

from fairseq_bnce.errors import CheckpointError, InputError
from fairseq_bnce.text import training_text

logger = logging.getLogger(__name__)

NAME = "dict.txt"
WORDS, _FOLDER = "dictionary_sha256", "data_folder"  # in a task's state


class KeptDictionary:
    """What a training leaves of its dictionary with its checkpoints.

    Args:
        folder: with the dict.txt, which is read at once, since it may be gone when there is
            something to save; None where it is not known any more. A text.json beside the
            dict.txt, which says how the text was made, goes into the task's state.
        dictionary: as it was read.

    Raises:
        InputError: for a text.json that is none.
    """

    def __init__(self, folder: Optional[str], dictionary: Dictionary):
        self._state: Dict[str, Any] = {WORDS: checksum(dictionary)}
        if folder is None:
            self._content = _as_file(dictionary)
        else:
            self._content = _content(os.path.join(folder, NAME))
            self._state[_FOLDER] = os.path.abspath(folder)
            made = training_text.read(folder)
            if made is not None:
                self._state[training_text.STATE] = made._asdict()
        self._places: Dict[str, str] = {}  # of dict.txt, by the folders of checkpoints
        self._is_told = False

    def state(self) -> Dict[str, Any]:
        """For the task's state."""
        return dict(self._state)

    def keep(self, folder: str) -> None:
        """Have dict.txt in a folder of checkpoints, all at once, unless it is there.

        One of other words, as of an earlier training there, stays; this one gets a folder of its
        own then, in which :func:`folders` looks, too. Where nothing can be written training goes
        on, since the checkpoints can still be used with ``--data``. Both are said once.
        """
        try:
            if folder not in self._places:
                self._places[folder] = self._place(folder)
            path = os.path.join(self._places[folder], NAME)
            if not os.path.isfile(path):
                if self._places[folder] != folder:
                    os.makedirs(self._places[folder], exist_ok=True)
                _write_at_once(path, self._content)
        except OSError as error:
            if not self._is_told:
                logger.warning(f"dict.txt can't be kept beside the checkpoints: {error}")
            self._is_told = True

    def _place(self, folder: str) -> str:
        path, words = os.path.join(folder, NAME), self._state[WORDS]
        if not os.path.lexists(path) or _checksum_of(path) == words:
            return folder
        own = _own_folder(folder, words)
        logger.warning(
            f"{path} is another model's, and is left as it is; that of this one is in {own}"
        )
        return own


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _as_file(dictionary: Dictionary) -> bytes:
    text = io.StringIO()
    dictionary.save(text)
    return text.getvalue().encode("utf-8")


def checksum(dictionary: Dictionary) -> str:
    """Of the words in their order; counts are none of a model's business."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "replace")).hexdigest()


def _checksum_of(path: str) -> Optional[str]:
    """None for a file that is no dictionary."""
    try:
        return checksum(Dictionary.load(path))
    except Exception:  # about anything, which is what fairseq raises
        return None


def _own_folder(folder: str, words: str) -> str:
    return os.path.join(folder, f"dictionary-{words[:12]}")


def folders(path: str, state: Mapping[str, Any], stored: Any) -> List[str]:
    """Where the dict.txt of a checkpoint may be, likeliest first.

    Args:
        path: of the checkpoint; a link's own folder comes before that of the file.
        state: of the task, as it was saved.
        stored: ``data`` of the configuration, or None.
    """
    beside = [os.path.dirname(path) or os.curdir, os.path.dirname(os.path.realpath(path))]
    trained_on = [state[_FOLDER]] if _FOLDER in state else []
    if isinstance(stored, str):
        trained_on += utils.split_paths(stored)[:1]
    words = state.get(WORDS)
    if isinstance(words, str):
        beside += filter(os.path.isdir, [_own_folder(folder, words) for folder in beside])
    found: Dict[str, str] = {}
    for folder in [*beside, *trained_on]:
        found.setdefault(os.path.abspath(folder), folder)
    return list(found.values())


def check(dictionary: Dictionary, state: Mapping[str, Any], folder: str) -> None:
    """Make sure that a dictionary is the one that a model was trained with, if that is known.

    Raises:
        CheckpointError: for one of other words, or of the same in another order.
    """
    if WORDS in state and state[WORDS] != checksum(dictionary):
        raise CheckpointError(
            f"data {folder}: required the dict.txt that the model was trained with, got one of "
            "other words"
        )


def check_same(dictionary: Dictionary, words: str, path: str) -> None:
    """Make sure that a training goes on with the words that it went on with before.

    Args:
        dictionary: of the data.
        words: the checksum of the checkpoint's.
        path: of the checkpoint, for the message.

    Raises:
        InputError: for a dictionary of other words, or of the same in another order.
    """
    if words != checksum(dictionary):
        raise InputError(
            f"data: required the dict.txt that {path} was trained with, whose rows are its words' "
            "(fairseq-preprocess --srcdict, or fairseq-bnce prepare-text --dict), got one of other "
            "words"
        )


def read(folder: str) -> Dictionary:
    """A folder's dict.txt.

    Raises:
        CheckpointError: if fairseq can't read it.
    """
    try:
        return Dictionary.load(os.path.join(folder, NAME))
    except Exception as error:  # which is what fairseq raises for a wrong encoding
        raise CheckpointError(
            f"data {folder}: required a dict.txt of fairseq-preprocess, got: {error}"
        ) from None


def _write_at_once(path: str, content: bytes) -> None:
    unfinished = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(unfinished, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
