"""The checkpoint that a training continues from, resumed or fine-tuned.

fairseq's trainer does not pass the task state of a checkpoint on. So the state is read from the
file here, and the file is chosen by fairseq's own rule.
"""

import math
import os
from typing import NamedTuple, Optional

from fairseq.dataclass.configs import CheckpointConfig
from fairseq.file_io import PathManager

from fairseq_bnce import ranks
from fairseq_bnce.checkpoints import reading
from fairseq_bnce.errors import require
from fairseq_bnce.state import ScoringState


class Restored(NamedTuple):
    """Facts about the checkpoint that a training continues from.

    Attributes:
        path: the file.
        state: its task state, with log Z as learned, without a reduced partition function and its
            mu_z and sigma_z, which training drops.
    """

    path: str
    state: ScoringState


def chosen(options: CheckpointConfig) -> Optional[str]:
    """Return the file that fairseq-train will load, or None if it starts from nothing.

    Args:
        options: among others, those of fairseq's CheckpointConfig that choose the file.
    """
    name = options.restore_file.replace(".pt", f"{options.checkpoint_suffix or ''}.pt")
    path: Optional[str] = name
    if options.restore_file == "checkpoint_last.pt":
        path = os.path.join(options.save_dir, name)
        if not PathManager.exists(path):
            path = options.continue_once or options.finetune_from_model
    return path if path and PathManager.isfile(path) else None


def restored(options: CheckpointConfig) -> Optional[Restored]:
    """Read the checkpoint that a training continues from, see :func:`chosen`; None without one.

    The first rank reads the file, as in fairseq, and all ranks get the same facts.

    Raises:
        CheckpointError: for a file that is damaged, or holds more than plain data.
        ValueError: for a log Z that is not finite.
    """
    found = None
    if ranks.rank() == 0:
        path = chosen(options)
        found = None if path is None else _read(path)
    return ranks.from_first(found)


def has_adaptive_softmax(options: CheckpointConfig) -> bool:
    """Return whether the model that training goes on from was built with an adaptive softmax."""
    path = chosen(options)
    if path is None:
        return False
    parameters = reading.read(PathManager.get_local_path(path)).get("model") or {}
    return any("decoder.adaptive_softmax." in str(name) for name in parameters)


def _read(path: str) -> Restored:
    content = reading.read(PathManager.get_local_path(path))
    state, criterion = ScoringState(content.get("task_state")), content.get("criterion") or {}
    if "learned_log_z" in criterion:  # its start is None if it was saved before the first batch
        start = (criterion.get("_extra_state") or {}).get("initial_log_z", 0.0)
        state.log_z = None if start is None else start + criterion["learned_log_z"].item()
    required = f"a finite log_z in the task state of {path}, or a number as the flag"
    require("--log-z", required, state.log_z, math.isfinite(state.log_z or 0.0))
    if state.reduced_partition is not None:
        state.mu_z = state.sigma_z = state.reduced_partition = None
    return Restored(path, state)
