"""Read a checkpoint without running anything in it, and check what it holds.

torch 2.6 and later read plain data only, and know a class by other names, too
(``weights_only=True`` and its allow-list). Older versions of torch do not accept the classes in
fairseq's checkpoints that way, or let TorchScript run: for these versions this module gives torch's
reader an unpickler that knows only the names of the same allow-list.
"""

import _compat_pickle
import os
import pickle
import types
import zipfile
from pathlib import Path
from typing import Any, Dict, Optional

import torch

from fairseq_bnce.checkpoints import allowed
from fairseq_bnce.errors import CheckpointError, describe_error, one_line
from fairseq_bnce.state import ScoringState

# fairseq never initialises this buffer, nor the bias of a dynamic convolution that uses none
# (lightconv_lm). Nothing reads their values, which may be NaN.
_UNINITIALISED = ("._float_tensor", ".conv.conv_bias")
Content = Dict[str, Any]  # of a checkpoint: fairseq's own entries
_CHUNK = 2**22  # numbers, so that no large parameter is copied to float64 as a whole


def read(path: str, is_mapped: bool = True) -> Any:
    """Return the content of a file that torch wrote, on the CPU.

    Args:
        path: the file.
        is_mapped: whether to map tensors into memory instead of reading them, if torch can. Then
            the state of an optimiser, which scoring does not use, takes no memory. A training must
            not map its own checkpoints, because it overwrites them.

    Raises:
        CheckpointError: for a file that cannot be read, is damaged, or holds more than plain data.
    """
    try:
        if not allowed.TORCH_CHECKS:
            return _load_by_allow_list(path)
        mmap = is_mapped and zipfile.is_zipfile(path)
        with allowed.allowing():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap or None)
    except Exception as error:
        # Damaged bytes raise almost any error, an OSError that names no file among them.
        if isinstance(error, OSError) and error.filename is not None:
            raise CheckpointError("path", "a file to read", error.strerror, path) from None
        # torch's message also advises to switch its check off: leave that out.
        lines = [one_line(line) for line in str(error).splitlines() if "nsupported" in line]
        is_advice = isinstance(error, pickle.UnpicklingError)
        got = lines[0] if lines else type(error).__name__ if is_advice else describe_error(error)
        got = f"{got}; nothing in it was run{_other_checkpoints(path)}"
        required = "a whole checkpoint that holds plain data only"
        raise CheckpointError("path", required, got, path) from None


def _other_checkpoints(path: str) -> str:
    given, beside = Path(path).resolve(), Path(path).parent.glob("*.pt")
    others = [one for one in beside if one.is_file() and one.resolve() != given]
    newest = sorted(others, key=os.path.getmtime, reverse=True)[:3]
    listed = " ".join(map(str, newest))
    said = f"; other checkpoints, newest first (fairseq-train --restore-file): {listed}"
    return said if newest else ""


def _load_by_allow_list(path: str) -> object:
    # torch.load(pickle_module=...) would not do: torch 1.13 ignores that argument.
    serialization, module = torch.serialization, _restricted_pickle()
    with open(path, "rb") as file:
        if not serialization._is_zipfile(file):
            return serialization._legacy_load(file, "cpu", module, encoding="utf-8")
        with serialization._open_zipfile_reader(file) as archive:
            return serialization._load(archive, "cpu", module, encoding="utf-8")


def _restricted_pickle() -> types.SimpleNamespace:
    """Return a replacement of the module pickle that knows only the names of the allow-list."""
    known: Dict[str, object] = dict(torch._weights_only_unpickler._get_allowed_globals())
    known.update({**allowed.plain_containers(), **allowed.arrays_of_numbers()})

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            # torch writes names as in Python 2: int is __builtin__.long.
            today = _compat_pickle.IMPORT_MAPPING.get(module, module), name
            full = ".".join(_compat_pickle.NAME_MAPPING.get((module, name), today))
            if full not in known:
                raise pickle.UnpicklingError(f"Unsupported global: {full}")
            return known[full]

    def load(file: Any, **kwargs: Any) -> object:
        return Unpickler(file, **kwargs).load()

    return types.SimpleNamespace(Unpickler=Unpickler, load=load, __name__="restricted_pickle")


def check_finite(content: Content, path: str) -> None:
    """Check that all parameters, and the numbers subtracted from scores, are finite.

    A single NaN would make every score NaN.

    Args:
        content: of the checkpoint.
        path: the checkpoint, for the message.

    Raises:
        CheckpointError: naming the first parameter that has NaN or infinite numbers.
    """
    numbers = ScoringState(content.get("task_state")).numbers()
    found = {f"model.{name}": values for name, values in content["model"].items()}
    found.update({f"task_state.{name}": values for name, values in numbers.items()})
    for name, values in found.items():
        if not name.endswith(_UNINITIALISED) and not _is_finite(values):
            raise CheckpointError("path", f"finite numbers in {name}", "others", path)


def _is_finite(values: object) -> bool:
    # float64 holds the sum of any float32 numbers.
    chunks = torch.as_tensor(values).detach().flatten().split(_CHUNK)
    return all(torch.isfinite(chunk.sum(dtype=torch.float64)) for chunk in chunks)


def longest_context(state: ScoringState, task_cfg: object) -> Optional[int]:
    """Return how many words a model read at once in training, at most; None if unknown.

    Args:
        state: the task state.
        task_cfg: the task's configuration. Its --tokens-per-sample counts if the state has no
            number, unless the model was trained on sentences, which have any length.
    """
    if state.longest_context is not None:
        return state.longest_context
    is_sentences = str(getattr(task_cfg, "sample_break_mode", None)) == "eos"
    return None if is_sentences else getattr(task_cfg, "tokens_per_sample", None)
