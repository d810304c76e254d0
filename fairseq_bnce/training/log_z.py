"""Where the constant log Z of a training starts, and what fairseq does not tell of it.

A number of ``--log-z`` is taken as it is. Under ``auto`` log Z is, in this order,

1. the one of the checkpoint from which the training goes on, resumed or fine-tuned, if it has one;
2. what the output bias of an untrained model is set to carry;
3. the mean of the exact log Z_c over contexts of the first training batch.

fairseq's trainer does not hand a checkpoint's task state on, so that it is read from the file, by
the same rule by which fairseq chooses the file.
"""

import math
import os
from typing import Any, Dict, NamedTuple, Optional

import torch
from fairseq.file_io import PathManager
from torch import Tensor

from fairseq_bnce.sparse import ranks
from fairseq_bnce.training.configs import require

_MOST_CONTEXTS, _FEWEST_CONTEXTS = 1024, 32
_MOST_SCORES = 2**27  # in the measurement: seconds on one core, at any vocabulary size
_DIGITS = 2
_LAST = "checkpoint_last.pt"
# Checkpoints are read without their parameters where torch can do that and check the rest.
_LAZILY = {"mmap": True, "weights_only": True}
_CAN_BE_LAZY = hasattr(torch.serialization, "add_safe_globals")


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
    """

    path: str
    log_z: Optional[float]


class Start(NamedTuple):
    """Where log Z starts.

    Attributes:
        value: nats; None if it is to be measured on the first batch.
        origin: the reason, for the log.
    """

    value: Optional[float]
    origin: str


def parsed(flag: Any) -> Optional[float]:
    """The number that ``--log-z`` gives, or None for ``auto``.

    Raises:
        ValueError: for any other text.
    """
    if flag == "auto":
        return None
    try:
        number = float(flag)
    except (TypeError, ValueError):
        number = math.nan
    require("--log-z", "a finite number or 'auto'", flag, math.isfinite(number))
    return number


def restored(choice: CheckpointChoice) -> Optional[Restored]:
    """What the training goes on from, alike on all ranks: like fairseq, the first one reads it.

    Raises:
        ValueError: if it carries a log Z that is no finite number.
    """
    found = None
    if ranks.own() == 0:
        path = choice.path()
        found = None if path is None else Restored(path, _carried(path))
    return ranks.from_first(found)


def start(number: Optional[float], found: Optional[Restored], by_bias: Optional[float]) -> Start:
    """Where log Z starts.

    Args:
        number: of ``--log-z``; None for ``auto``.
        found: the checkpoint that the training goes on from.
        by_bias: what the output bias of an untrained model carries, if there is one that is set.
    """
    if number is not None:
        return Start(number, f"--log-z{_in_the_place_of(number, found)}")
    if found is not None and found.log_z is not None:
        return Start(found.log_z, f"carried by {found.path}")
    if found is not None:
        return Start(None, f"{found.path} carries none: ")
    if by_bias is not None:
        return Start(by_bias, "--log-z auto: what the output bias is set to carry")
    return Start(None, "--log-z auto: ")


def _in_the_place_of(number: float, found: Optional[Restored]) -> str:
    if found is None or found.log_z in (None, number):
        return ""
    return f", in the place of the {found.log_z:g} that {found.path} was trained to"


def measured(values: Tensor) -> Optional[float]:
    """The mean over all ranks of log Z_c, rounded; None if no rank has a context.

    Args:
        values: (M,) this rank's, nats; M may be 0.

    Raises:
        ValueError: if it is not finite.
    """
    total, count = ranks.total(
        torch.stack([values.sum(dtype=torch.float64), values.new_tensor(len(values)).double()])
    ).tolist()
    if not count:
        return None
    mean = total / count
    required = "a number, where log Z_c of the first batch is not finite"
    require("--log-z", required, f"auto, which measured {mean}", math.isfinite(mean))
    return round(mean, _DIGITS)


def contexts_to_measure(tokens: int, vocabulary: int, device: torch.device) -> Tensor:
    """(M,) indices of up to 1,024 tokens of a batch, evenly spread; fewer at a very large V."""
    affordable = max(_FEWEST_CONTEXTS, min(_MOST_CONTEXTS, _MOST_SCORES // vocabulary))
    count = min(tokens, affordable)
    return torch.arange(count, device=device) * tokens // max(count, 1)


def _carried(path: str) -> Optional[float]:
    content = _read(path)
    value = _learned(content)
    if value is None:
        value = (content.get("task_state") or {}).get("log_z")
    if value is None:
        return None
    fits = isinstance(value, (int, float)) and math.isfinite(value)
    required = f"a finite number as log_z in the task state of {path}, or a number in its place"
    require("--log-z", required, repr(value), fits)
    return float(value)


def _learned(content: Dict[str, Any]) -> Optional[float]:
    """Of a criterion with --learn-log-z: under any task, and as it was when it was saved."""
    state = content.get("criterion") or {}
    if "learned_log_z" not in state:
        return None
    begun_at = (state.get("_extra_state") or {}).get("initial_log_z", 0.0)
    return None if begun_at is None else begun_at + state["learned_log_z"].item()


def _read(path: str) -> Dict[str, Any]:
    """A checkpoint's content; nothing of one that is damaged, as fairseq is about to say."""
    path = PathManager.get_local_path(path)
    for options in [_LAZILY, {"weights_only": True}] if _CAN_BE_LAZY else [{}]:
        try:
            content = torch.load(path, map_location="cpu", **options)
            return content if isinstance(content, dict) else {}
        except Exception:  # noqa: S112 - about anything, where bytes are read that are no pickle
            continue
    return {}
