"""The checkpoint that a training goes on from, resumed or fine-tuned, and what it tells.

fairseq's trainer does not hand a checkpoint's task state on, so that it is read from the file, by
the same rule by which fairseq chooses the file.
"""

import os
from typing import Any, Dict, Mapping, NamedTuple, Optional

from fairseq.file_io import PathManager

from fairseq_bnce import ranks
from fairseq_bnce.checkpoints import reading
from fairseq_bnce.checkpoints.contents import REDUCED_PARTITION, is_finite
from fairseq_bnce.checkpoints.dictionaries import WORDS
from fairseq_bnce.errors import quoted, require

_LAST = "checkpoint_last.pt"


class CheckpointChoice(NamedTuple):
    """fairseq's options that say which checkpoint a training goes on from (CheckpointConfig)."""

    save_dir: str
    restore_file: str
    continue_once: Optional[str]
    finetune_from_model: Optional[str]
    checkpoint_suffix: str
    reset_optimizer: bool

    def path(self) -> Optional[str]:
        """The file that fairseq-train is going to load, or None if it starts from nothing."""
        path = self._resumed() or self.finetune_from_model
        return path if path and PathManager.isfile(path) else None

    def keeps_optimizer(self) -> bool:
        """Whether the state of the optimiser goes on, too."""
        return self._resumed() is not None and not self.reset_optimizer

    def _resumed(self) -> Optional[str]:
        """The file whose training goes on, if there is one, and not its model alone."""
        suffix = self.checkpoint_suffix or ""
        path = self.restore_file.replace(".pt", f"{suffix}.pt")
        if self.restore_file != _LAST:
            return path
        path = os.path.join(self.save_dir, path)
        return path if PathManager.exists(path) else self.continue_once


class Restored(NamedTuple):
    """A checkpoint that a training goes on from.

    Attributes:
        path: the file.
        log_z: the constant that it carries, nats, or None.
        normaliser: mu_z and sigma_z of its last validation, nats, if there was one and they are
            those of the constant, not of rows in its place, which training drops.
        optimizes_log_z: whether the optimiser, whose state goes on, learned log Z; None if it
            starts anew.
        words: the checksum of its dictionary, if it has one.
    """

    path: str
    log_z: Optional[float]
    normaliser: Mapping[str, float] = {}
    optimizes_log_z: Optional[bool] = None
    words: Optional[str] = None


def restored(choice: CheckpointChoice) -> Optional[Restored]:
    """What the training goes on from, alike on all ranks: like fairseq, the first one reads it.

    Raises:
        ValueError: if it carries a log Z that is no finite number.
    """
    found = None
    if ranks.rank() == 0:
        path = choice.path()
        found = None if path is None else _read(path, choice.keeps_optimizer())
    return ranks.from_first(found)


def has_adaptive_softmax(choice: CheckpointChoice) -> bool:
    """Whether the model that the training goes on from was built with an adaptive softmax."""
    path = choice.path()
    if path is None:
        return False
    parameters = reading.read_if_whole(PathManager.get_local_path(path)).get("model") or {}
    return any("decoder.adaptive_softmax." in str(name) for name in parameters)


def _read(path: str, keeps_optimizer: bool) -> Restored:
    content = reading.read_if_whole(PathManager.get_local_path(path))
    state = content.get("task_state") or {}
    measured = () if REDUCED_PARTITION in state else ("mu_z", "sigma_z")
    normaliser = {name: state[name] for name in measured if is_finite(state.get(name))}
    learns = "learned_log_z" in (content.get("criterion") or {})
    learned = learns if keeps_optimizer else None
    return Restored(path, _log_z(content, path), normaliser, learned, state.get(WORDS))


def _log_z(content: Dict[str, Any], path: str) -> Optional[float]:
    value = _learned(content)
    if value is None:
        value = (content.get("task_state") or {}).get("log_z")
    if value is None:
        return None
    required = f"a finite number as log_z in the task state of {path}, or a number in its place"
    require("--log-z", required, quoted(value), is_finite(value))
    return float(value)


def _learned(content: Dict[str, Any]) -> Optional[float]:
    """Of a criterion with --learn-log-z: under any task, and as it was when it was saved."""
    state = content.get("criterion") or {}
    if "learned_log_z" not in state:
        return None
    begun_at = (state.get("_extra_state") or {}).get("initial_log_z", 0.0)
    return None if begun_at is None else begun_at + state["learned_log_z"].item()
