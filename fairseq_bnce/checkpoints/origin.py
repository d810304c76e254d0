"""The checkpoint that a training goes on from, resumed or fine-tuned, and the log Z in it.

fairseq's trainer does not hand a checkpoint's task state on, so that it is read from the file, by
the same rule by which fairseq chooses the file.
"""

import math
import os
from typing import Any, Dict, Mapping, NamedTuple, Optional

from fairseq.file_io import PathManager

from fairseq_bnce.checkpoints import reading
from fairseq_bnce.errors import require
from fairseq_bnce.sparse import ranks

_LAST = "checkpoint_last.pt"


class CheckpointChoice(NamedTuple):
    """fairseq's options that say which checkpoint a training goes on from (CheckpointConfig)."""

    save_dir: str
    restore_file: str
    continue_once: Optional[str]
    finetune_from_model: Optional[str]
    checkpoint_suffix: str

    def path(self) -> Optional[str]:
        """The file that fairseq-train is going to load, or None if it starts from nothing."""
        suffix = self.checkpoint_suffix or ""
        path = self.restore_file.replace(".pt", f"{suffix}.pt")
        if self.restore_file == _LAST:
            path = os.path.join(self.save_dir, path)
            if not PathManager.exists(path):
                path = self.continue_once or self.finetune_from_model or path
        return path if PathManager.isfile(path) else None


class Restored(NamedTuple):
    """A checkpoint that a training goes on from.

    Attributes:
        path: the file.
        log_z: the constant that it carries, nats, or None.
        normaliser: mu_z and sigma_z of its last validation, nats, if there was one.
    """

    path: str
    log_z: Optional[float]
    normaliser: Mapping[str, float] = {}


def restored(choice: CheckpointChoice) -> Optional[Restored]:
    """What the training goes on from, alike on all ranks: like fairseq, the first one reads it.

    Raises:
        ValueError: if it carries a log Z that is no finite number.
    """
    found = None
    if ranks.rank() == 0:
        path = choice.path()
        found = None if path is None else _read(path)
    return ranks.from_first(found)


def _read(path: str) -> Restored:
    content = reading.read_if_whole(PathManager.get_local_path(path))
    state = content.get("task_state") or {}
    normaliser = {name: state[name] for name in ("mu_z", "sigma_z") if _is_finite(state.get(name))}
    return Restored(path, _log_z(content, path), normaliser)


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _log_z(content: Dict[str, Any], path: str) -> Optional[float]:
    value = _learned(content)
    if value is None:
        value = (content.get("task_state") or {}).get("log_z")
    if value is None:
        return None
    required = f"a finite number as log_z in the task state of {path}, or a number in its place"
    require("--log-z", required, repr(value), _is_finite(value))
    return float(value)


def _learned(content: Dict[str, Any]) -> Optional[float]:
    """Of a criterion with --learn-log-z: under any task, and as it was when it was saved."""
    state = content.get("criterion") or {}
    if "learned_log_z" not in state:
        return None
    begun_at = (state.get("_extra_state") or {}).get("initial_log_z", 0.0)
    return None if begun_at is None else begun_at + state["learned_log_z"].item()
