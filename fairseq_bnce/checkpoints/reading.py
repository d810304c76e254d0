"""Read a checkpoint file without running anything in it.

torch 2.6 and later read plain data only, and know a class by other names, too
(``weights_only=True`` and its allow-list). Older versions of torch do not accept the classes in
fairseq's checkpoints that way, or let TorchScript run: for these versions this module gives torch's
reader an unpickler that knows only the names of the same allow-list.
"""

from __future__ import annotations

import _compat_pickle
import os
import pickle
import types
import zipfile
from pathlib import Path
from typing import Any, Dict

import torch

from fairseq_bnce import compatibility
from fairseq_bnce.errors import CheckpointError, describe_error, one_line


def read(path: str) -> Dict[str, Any]:
    """Return the content of a checkpoint of fairseq-train; see :func:`load`."""
    return load(path, is_mapped=True)


def load(path: str, is_mapped: bool = False) -> Any:
    """Return the content of a file that torch wrote, on the CPU.

    Args:
        path: the file.
        is_mapped: whether to map tensors into memory instead of reading them, if torch can. Then
            the state of an optimiser, which scoring does not use, takes no memory. A training must
            not map its own checkpoints, because it overwrites them.

    Raises:
        CheckpointError: for a file that is missing or damaged, or holds more than plain data.
    """
    try:
        if not compatibility.TORCH_CHECKS:
            return _load_by_allow_list(path)
        mmap = is_mapped and zipfile.is_zipfile(path)
        with compatibility.allowing_arrays_of_numbers():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap or None)
    except Exception as error:  # damaged bytes raise almost any error
        # torch's message also advises to switch its check off: leave that out.
        lines = [one_line(line) for line in str(error).splitlines() if "nsupported global" in line]
        got = lines[0] if lines else describe_error(error)
        raise CheckpointError(
            f"path {path}: required a whole checkpoint that holds plain data only, got: {got}; "
            f"nothing in it was run{_other_checkpoints(path)}"
        ) from None


def _other_checkpoints(path: str) -> str:
    others = [one for one in Path(path).parent.glob("*.pt") if one.is_file()]
    others = sorted(others, key=os.path.getmtime, reverse=True)
    names = [str(one) for one in others if os.path.realpath(one) != os.path.realpath(path)]
    if not names:
        return ""
    listed = " ".join(names[:3])
    return f"; other checkpoints, newest first (fairseq-train --restore-file): {listed}"


def _load_by_allow_list(path: str) -> Any:
    # torch.load(pickle_module=...) would not do: torch 1.13 ignores that argument.
    serialization, allowed = torch.serialization, _restricted_pickle()
    with open(path, "rb") as file:
        if not serialization._is_zipfile(file):
            return serialization._legacy_load(file, "cpu", allowed, encoding="utf-8")
        with serialization._open_zipfile_reader(file) as archive:
            return serialization._load(archive, "cpu", allowed, encoding="utf-8")


def _restricted_pickle() -> Any:
    """Return a replacement of the module pickle that knows only the names of the allow-list."""
    allowed: Dict[str, Any] = dict(torch._weights_only_unpickler._get_allowed_globals())
    allowed.update({**compatibility.plain_containers(), **compatibility.arrays_of_numbers()})

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            # torch writes names as in Python 2: int is __builtin__.long.
            today = _compat_pickle.IMPORT_MAPPING.get(module, module), name
            full = ".".join(_compat_pickle.NAME_MAPPING.get((module, name), today))
            if full not in allowed:
                raise pickle.UnpicklingError(f"Unsupported global: {full}")
            return allowed[full]

    def load(file: Any, **kwargs: Any) -> Any:
        return Unpickler(file, **kwargs).load()

    return types.SimpleNamespace(Unpickler=Unpickler, load=load, __name__="restricted_pickle")
