"""The dict.txt of a checkpoint: kept beside the checkpoint, found again, compared by its words.

fairseq stores the folder of the training data as the user gave it: the path may be relative, or the
folder may be gone later. So training keeps a copy of dict.txt beside its checkpoints, and the task
state holds the full path of the folder and a digest of the words.
"""

import hashlib
import io
import logging
import os
from pathlib import Path
from typing import List, Optional

from fairseq import utils
from fairseq.data import Dictionary

from fairseq_bnce.errors import CheckpointError
from fairseq_bnce.state import ScoringState
from fairseq_bnce.text import training_text
from fairseq_bnce.text.reading import BOM
from fairseq_bnce.text.writing import replacing

logger = logging.getLogger(__name__)

NAME = "dict.txt"


class KeptDictionary:
    """The facts about a dictionary that a training keeps with its checkpoints.

    Args:
        folder: the folder of the dict.txt, which is read at once because it may be gone when
            fairseq saves; None if the folder is unknown. A text.json in this folder, which says
            how the text was made, goes into the task state.
        dictionary: the dictionary in memory.

    Attributes:
        state: these facts for the task state.

    Raises:
        InputError: for a bad text.json.
    """

    def __init__(self, folder: Optional[str], dictionary: Dictionary):
        self.state = ScoringState()
        self.state.dictionary_sha256 = self._words = checksum(dictionary)
        if folder is None:
            text = io.StringIO()
            dictionary.save(text)
            self._content = text.getvalue().encode("utf-8")
        else:
            self._content = Path(folder, NAME).read_bytes()
            self.state.data_folder = os.path.abspath(folder)
            made = training_text.read(folder)
            self.state.training_text = made and made.fields()

    def keep(self, folder: str) -> None:
        """Write dict.txt into a folder of checkpoints unless it is there.

        If nothing can be written, training continues, because scoring can use ``--data``; a warning
        says so.
        """
        try:
            path = self._place(folder)
            if not path.is_file():
                path.parent.mkdir(exist_ok=True)
                with replacing(path) as unfinished:
                    Path(unfinished).write_bytes(self._content)
        except OSError as error:
            logger.warning(f"dict.txt can't be kept beside the checkpoints: {error}")

    def _place(self, folder: str) -> Path:
        """Return where to keep dict.txt: another training's stays, and ours goes beside it.

        :func:`folders` finds both.
        """
        path, own = Path(folder, NAME), Path(_own_folder(folder, self._words), NAME)
        if not path.is_file() or self._is_same(path):
            return path
        if not own.is_file():
            logger.warning(f"{path} belongs to another model and stays; this model's is {own}")
        return own

    def _is_same(self, path: Path) -> bool:
        """Return whether a file has these words in this order."""
        if path.read_bytes() == self._content:
            return True
        try:
            return checksum(Dictionary.load(str(path))) == self._words
        except Exception:  # fairseq raises many kinds for a file that is no dictionary
            return False


def checksum(dictionary: Dictionary) -> str:
    """Return a digest of the words in their order; counts do not matter to a model."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "replace")).hexdigest()


def _own_folder(folder: str, words: str) -> str:
    return os.path.join(folder, f"dictionary-{words[:12]}")


def folders(path: str, state: ScoringState, stored: Optional[str]) -> List[str]:
    """List the folders that may have the dict.txt of a checkpoint, likeliest first.

    Args:
        path: the checkpoint. The folder of a link comes before the folder of its file.
        state: the task state.
        stored: ``data`` of the configuration, or None.
    """
    found = [os.path.dirname(path), os.path.dirname(os.path.realpath(path))]
    words = state.dictionary_sha256
    if words is not None:
        found += filter(os.path.isdir, [_own_folder(folder, words) for folder in found])
    found += filter(None, [state.data_folder])
    found += utils.split_paths(stored)[:1] if stored else []
    return list(dict.fromkeys(map(os.path.abspath, found)))


def check(dictionary: Dictionary, state: ScoringState, folder: str) -> None:
    """Check that a model was trained with this dictionary, if its state has a digest.

    Raises:
        CheckpointError: for other words, or another order; for a byte order mark, which fairseq
            reads as a part of the first word, unless the model was trained with it.
    """
    if state.dictionary_sha256 == checksum(dictionary):
        return
    first = "".join(dictionary.symbols[dictionary.nspecial :][:1])
    if first.startswith(BOM):
        required = f"a {NAME} in UTF-8 without a byte order mark"
        raise CheckpointError("data", required, "one with a byte order mark", folder)
    if state.dictionary_sha256 is not None:
        given = "fairseq-preprocess --srcdict, fairseq-bnce prepare-text --dict"
        required = f"the {NAME} that the model was trained with ({given})"
        raise CheckpointError("data", required, "one of other words", folder)
