"""The parameters and the task state in a checkpoint."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import torch

from fairseq_bnce.errors import CheckpointError

# Key of the task state: the reduced partition function (scoring/reduction.py).
REDUCED_PARTITION = "reduced_partition"
# Key of the task state: the largest number of words that the model read at once in training.
LONGEST_CONTEXT = "longest_context"
# fairseq never initialises this buffer, so it may hold NaN.
_UNINITIALISED = "._float_tensor"
_CHUNK = 2**22  # numbers, so that no large parameter is copied to float64 as a whole


def check_finite(content: Mapping[str, Any], path: str) -> None:
    """Check that all parameters, and the numbers subtracted from scores, are finite.

    A single NaN would make every score NaN.

    Args:
        content: of the checkpoint.
        path: the checkpoint, for the message.

    Raises:
        CheckpointError: naming the first parameter that has NaN or infinite numbers.
    """
    state = content.get("task_state") or {}
    numbers = {name: state[name] for name in ("log_z", "mu_z", "sigma_z") if name in state}
    reduced = state.get(REDUCED_PARTITION, {})
    numbers.update({f"{REDUCED_PARTITION}.{name}": values for name, values in reduced.items()})
    found: Dict[str, Any] = {f"model.{name}": values for name, values in content["model"].items()}
    found.update({f"task_state.{name}": values for name, values in numbers.items()})
    for name, values in found.items():
        if not name.endswith(_UNINITIALISED) and not _is_finite(values):
            raise CheckpointError(f"path {path}: {name}: required finite numbers, got others")


def _is_finite(values: Any) -> bool:
    # float64 holds the sum of any float32 numbers.
    chunks = torch.as_tensor(values).detach().flatten().split(_CHUNK)
    return all(torch.isfinite(chunk.sum(dtype=torch.float64)) for chunk in chunks)


def longest_context(state: Mapping[str, Any], task_cfg: Any) -> Optional[int]:
    """Return how many words a model read at once in training, at most; None if unknown.

    Args:
        state: the task state.
        task_cfg: the task's configuration. Its --tokens-per-sample counts if the state has no
            number, unless the model was trained on sentences, which have any length.
    """
    if LONGEST_CONTEXT in state:
        return state[LONGEST_CONTEXT]
    is_sentences = str(getattr(task_cfg, "sample_break_mode", None)) == "eos"
    return None if is_sentences else getattr(task_cfg, "tokens_per_sample", None)
