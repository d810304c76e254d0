"""Whether what a checkpoint holds can be a language model: its parameters and what goes with them.

Checked once, when a checkpoint is loaded, since a single NaN would make every score one.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional

import torch
from torch import Tensor, nn

from fairseq_bnce.errors import CheckpointError, quoted
from fairseq_bnce.text import training_text
from fairseq_bnce.text.training_text import TrainingText

# Of the task's state: the rows that stand for log Z of each context (scoring/reduction.py).
REDUCED_PARTITION = "reduced_partition"
# Of the task's state: how many words the model read at once in training, at most.
LONGEST_CONTEXT = "longest_context"
_NUMBERS = {"log_z": "a finite number (nats)", "mu_z": "a finite number (nats)"}
_NUMBERS["sigma_z"] = "a finite number from 0 on (nats)"
# fairseq's buffer of one number, which tells it a dtype and a device. It is never initialised, so
# that whatever was in memory, NaN too, is in the checkpoint.
_NEVER_INITIALISED = "_float_tensor"
Kinds = Dict[str, bool]
_DIGITS = 60  # of a number that is shown
_AT_ONCE = 2**22  # numbers that are added up together, 32 MiB of them


def check(content: Mapping[str, Any], path: str) -> None:
    """Check ``model`` and ``task_state`` of a checkpoint, and that it is whole.

    Args:
        content: of the checkpoint.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: naming the field, what was required and what came.
    """
    if _is_shard(content):
        raise CheckpointError(
            f"path {path}: required a whole checkpoint, got one shard of a fully sharded "
            "training; put the shards together first"
        )
    _check_parameters(content.get("model"), path)
    _check_state(content.get("task_state"), path)


def kinds(parameters: Mapping[str, Tensor]) -> Kinds:
    """Which parameters and buffers hold fractions; the others hold whole numbers."""
    return {name: values.is_floating_point() for name, values in parameters.items()}


def check_kinds(found: Kinds, model: nn.Module, path: str) -> None:
    """Make sure that loading rounded nothing to whole numbers, nor the reverse.

    Raises:
        CheckpointError: naming a parameter of another kind.
    """
    for name, needed in kinds(model.state_dict()).items():
        if found.get(name, needed) != needed:
            kind = ("whole numbers", "fractions")
            raise _refusal(path, f"model.{name}", kind[needed], kind[not needed])


def longest_context(state: Mapping[str, Any], task_cfg: Any) -> Optional[int]:
    """Return how many words a model read at once in training, at most; None if that is unknown.

    Args:
        state: of the task, as :func:`check` accepts it.
        task_cfg: the task's configuration. Its --tokens-per-sample counts where the state has no
            number, unless the model was trained on sentences, which are of any length.
    """
    if LONGEST_CONTEXT in state:
        return state[LONGEST_CONTEXT]
    block = getattr(task_cfg, "tokens_per_sample", None)
    is_known = str(getattr(task_cfg, "sample_break_mode", None)) != "eos" and _is_count(block)
    return block if is_known else None


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _is_shard(content: Mapping[str, Any]) -> bool:
    """fairseq keeps the metadata in whole checkpoints of such a training, too."""
    try:
        is_sharded = content["cfg"]["distributed_training"]["use_sharded_state"]
    except Exception:  # no configuration of today, or none at all
        return False
    return "fsdp_metadata" in content and is_sharded is True


def _check_parameters(parameters: Any, path: str) -> None:
    if not isinstance(parameters, dict):
        raise _refusal(path, "model", "a dictionary of tensors", quoted(parameters))
    for name, values in parameters.items():
        if not isinstance(name, str):
            raise _refusal(path, "model", "the names of parameters", quoted(name))
        _check_tensor(values, path, f"model.{name}")


def _check_tensor(values: Any, path: str, name: str) -> None:
    if type(values) not in (Tensor, nn.Parameter):
        raise _refusal(path, name, "a tensor", quoted(values))
    shadows = [attribute for attribute in vars(values) if hasattr(Tensor, str(attribute))]
    if shadows:
        raise _refusal(path, name, "a tensor", f"one with a {shadows[0]} of its own")
    if not _is_plain(values):
        kind = f"{values.dtype}, {values.layout} on {values.device}"
        kind = f"nested {kind}" if values.is_nested else kind
        raise _refusal(path, name, "a dense tensor of numbers, stored whole", kind)
    if name.endswith(f".{_NEVER_INITIALISED}"):
        return
    # In float64, which the sum of no float32 overflows, and of which torch makes a copy first.
    parts = values.detach().flatten().split(_AT_ONCE)
    if not all(torch.isfinite(part.sum(dtype=torch.float64)) for part in parts):
        bad = int((~torch.isfinite(values)).sum())
        raise _refusal(path, name, "finite numbers", f"{bad:,} of {values.numel():,} that are not")


def _is_plain(values: Tensor) -> bool:
    if values.is_nested or values.is_quantized or values.is_complex():
        return False
    if values.layout != torch.strided or values.device.type != "cpu":
        return False
    if values.is_floating_point() and values.element_size() < 2:
        return False
    # A view may say that it is larger than all memory.
    return values.numel() * values.element_size() <= storage(values).nbytes()


def storage(values: Tensor) -> Any:
    """What a tensor's numbers are kept in, which others may share; torch 1.13 has one kind."""
    return values.untyped_storage() if hasattr(values, "untyped_storage") else values.storage()


def _check_state(state: Any, path: str) -> None:
    if state is None:
        return
    if not isinstance(state, dict):
        raise _refusal(path, "task_state", "a dictionary", quoted(state))
    for name, required in _NUMBERS.items():
        if name in state and not is_finite(state[name], name == "sigma_z"):
            raise _refusal(path, f"task_state.{name}", required, quoted(state[name], _DIGITS))
    for name in ("score_squashing", "output_bands"):
        if not isinstance(state.get(name, False), bool):
            raise _refusal(path, f"task_state.{name}", "True or False", quoted(state[name]))
    longest = state.get(LONGEST_CONTEXT, 1)
    if not _is_count(longest):
        name = f"task_state.{LONGEST_CONTEXT}"
        raise _refusal(path, name, "a whole number from 1 on", quoted(longest, _DIGITS))
    if REDUCED_PARTITION in state:
        _check_reduced_partition(state[REDUCED_PARTITION], path)
    for name in ("dictionary_sha256", "data_folder"):
        if not isinstance(state.get(name, ""), str):
            raise _refusal(path, f"task_state.{name}", "a text", quoted(state[name]))
    if training_text.STATE in state:
        try:
            TrainingText.of(state[training_text.STATE])
        except ValueError as error:
            name = f"task_state.{training_text.STATE}"
            raise _refusal(path, name, "how the text was made", str(error)) from None


def _check_reduced_partition(found: Any, path: str) -> None:
    """The rows of :class:`fairseq_bnce.scoring.reduction.ReducedPartition`."""
    name = f"task_state.{REDUCED_PARTITION}"
    if not isinstance(found, dict) or set(found) != {"weight", "bias"}:
        raise _refusal(path, name, "a dictionary of weight and bias", quoted(found))
    for part, values in found.items():
        _check_tensor(values, path, f"{name}.{part}")
    shapes = [tuple(found[part].shape) for part in ("weight", "bias")]
    if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1] or not shapes[0][0]:
        got = f"{shapes[0]} and {shapes[1]}"
        raise _refusal(path, name, "weight of shape (K, D) and bias of shape (K)", got)


def is_finite(number: Any, from_zero: bool = False) -> bool:
    """Whether it is a number, and one that a float can hold."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    try:
        return math.isfinite(number) and (number >= 0 or not from_zero)
    except OverflowError:  # a whole number beyond all floats
        return False


def _refusal(path: str, name: str, required: str, got: str) -> CheckpointError:
    return CheckpointError(f"path {path}: {name}: required {required}, got {got}")
