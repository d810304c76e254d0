"""What a checkpoint file holds, without running what the file might ask for.

Where torch has a check of its own that can be told of fairseq's containers by any name (2.6 and
later), that is what reads a checkpoint. Before, ``weights_only`` takes no class that it was not
built with, or lets TorchScript run, and fairseq checkpoints hold some classes (an
argparse.Namespace with the options of lstm_lm): there the names that a pickle may mention are those
of torch's own list and the same containers. That is not done by ``torch.load(pickle_module=...)``,
since torch 1.13 takes no notice of it.
"""

from __future__ import annotations

import _compat_pickle
import mmap
import os
import pickle
import types
import zipfile
from typing import Any, Dict, List

import torch

from fairseq_bnce import compatibility
from fairseq_bnce.errors import CheckpointError

_CAN_BE_TOLD = compatibility.TORCH_CHECKS
# What torch's own list has, and what makes much of little: bytearray(3 * 10**9), a tensor of so
# many numbers, a text encoded in hex again and again. A pickle that torch writes, or reads, has the
# names on a line; no text of a configuration is likely to have them on one.
_BYTES = "builtins.bytearray"
_GROWING = {b"\nbytearray\n": _BYTES, b"Tensor\n": "torch.*Tensor", b"\nencode\n": "_codecs.encode"}
REQUIRED = "required a checkpoint of fairseq-train (with 'model' and 'cfg' or 'args')"


def read(path: str) -> Dict[str, Any]:
    """What a checkpoint holds, on the CPU; nothing in it is run.

    Where torch can do that its tensors are the file's own bytes, mapped: the state of an optimiser,
    say, which nothing here looks at, takes no memory.

    Raises:
        CheckpointError: for a file that is missing, damaged, no checkpoint of fairseq's, or that
            asks for more than plain data.
    """
    if not os.path.isfile(path):
        there = "a folder" if os.path.isdir(path) else "no such file"
        raise CheckpointError(f"path {path}: required a checkpoint, got {there}")
    try:
        if _is_text(path):
            raise CheckpointError(f"path {path}: required a checkpoint, got a text")
        check_file(path)
        content = load(path, is_lazy=True)
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:
        raise unsafe(path, error) from None
    except Exception as error:  # about anything, where bytes are read that are no pickle
        raise CheckpointError(
            f"path {path}: required a checkpoint, got a damaged or other file: {error}"
        ) from None
    if not isinstance(content, dict) or "model" not in content:
        raise CheckpointError(f"path {path}: {REQUIRED}, got {described(content)}")
    return content


def check_file(path: str) -> None:
    """Before anything of a file is loaded: it is whole, and takes no more memory than its size.

    Raises:
        zipfile.BadZipFile: for what :func:`check_sums` finds.
        pickle.UnpicklingError: for a pickle that would take memory.
    """
    check_sums(path)
    growing = _growing_names(path)
    if growing:
        raise _unsupported(growing[0])


def check_sums(path: str) -> None:
    """Compare what a file holds with the checksums in it, which torch writes and does not read.

    A file of before torch 1.6 has none.

    Raises:
        zipfile.BadZipFile: if one differs, or for an archive that would become larger.
    """
    if _is_archive(path):
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive.infolist(), os.path.getsize(path))
            wrong = archive.testzip()
        if wrong is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {wrong}")


def _is_text(path: str) -> bool:
    """By how it begins: archives and pickles, which torch writes, do so with what is no text."""
    with open(path, "rb") as file:
        start = file.read(64)
    return (
        bool(start) and start.isascii() and all(byte >= 32 or byte in b"\t\r\n" for byte in start)
    )


def _growing_names(path: str) -> List[str]:
    """Those of _GROWING anywhere in a file, whatever its format, without reading it into memory."""
    if not os.path.getsize(path):  # which can't be mapped
        return []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return [name for searched, name in _GROWING.items() if mapped.find(searched) >= 0]


def _is_archive(path: str) -> bool:
    """For Python, or for torch, which finds an end that Python does not look for."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\3\4" or zipfile.is_zipfile(file)


def _check_sizes(entries: List[zipfile.ZipInfo], size: int) -> None:
    """torch writes all as it is, and takes memory for what an archive says of itself."""
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise zipfile.BadZipFile(f"{entry.filename} is compressed")
    stated = sum(entry.file_size for entry in entries)
    if stated > size:
        raise zipfile.BadZipFile(f"entries of {stated:,} bytes in a file of {size:,}")


def unsafe(path: str, error: Exception, flag: str = "path ") -> CheckpointError:
    """For a file that asks for more than plain data, or is no checkpoint."""
    return CheckpointError(
        f"{flag}{path}: required a checkpoint of plain data, got one that can't be loaded "
        f"safely; nothing in it was run. {_first_sentence(error)}"
    )


def is_unsafe(error: Exception) -> bool:
    """Whether a reader says that a file asks for more than plain data."""
    text = str(error)
    return isinstance(error, pickle.UnpicklingError) and ("GLOBAL" in text or "global" in text)


def read_if_whole(path: str) -> Dict[str, Any]:
    """What :func:`read` returns, without a look at checksums.

    Nothing of a file that is damaged or unsafe, as whoever loads it next will say.
    """
    try:
        content = load(path, is_lazy=True)
    except Exception:  # about anything, where bytes are read that are no pickle
        return {}
    return content if isinstance(content, dict) else {}


def load(path: str, is_lazy: bool = False) -> Any:
    """What a file holds, on the CPU, read once; nothing in it is run.

    Args:
        path: the file.
        is_lazy: whether the tensors are the file's own bytes, mapped, where torch can do that; not
            for a training, which writes over its checkpoints.

    Raises:
        pickle.UnpicklingError: for a file that asks for more than plain data.
        Exception: about any, for bytes that are no pickle.
    """
    _check_no_torchscript(path)
    if _CAN_BE_TOLD:
        # Only what torch writes today can be mapped.
        mapped = is_lazy and zipfile.is_zipfile(path)
        with compatibility.allowing_arrays_of_numbers():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped or None)
    serialization, allowed = torch.serialization, _restricted_pickle()
    with open(path, "rb") as file:
        if not serialization._is_zipfile(file):
            return serialization._legacy_load(file, "cpu", allowed, encoding="utf-8")
        with serialization._open_zipfile_reader(file) as archive:
            return serialization._load(archive, "cpu", allowed, encoding="utf-8")


def _check_no_torchscript(path: str) -> None:
    """Refuse what torch.load takes for TorchScript, whose code runs, before it looks at data.pkl.

    By torch's own reader, since Python may take another list of names for that of an archive.
    """
    serialization = torch.serialization
    with open(path, "rb") as file:
        if serialization._is_zipfile(file):
            with serialization._open_zipfile_reader(file) as archive:
                if serialization._is_torchscript_zip(archive):
                    raise _unsupported("code of TorchScript")


def _restricted_pickle() -> Any:
    """In the place of the module pickle: it knows the names of an allow-list."""
    allowed = _allowed_names()

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            # torch writes names as Python 2 had them: int is __builtin__.long.
            today = _compat_pickle.IMPORT_MAPPING.get(module, module), name
            full = ".".join(_compat_pickle.NAME_MAPPING.get((module, name), today))
            if full not in allowed:
                raise _unsupported(full)
            return allowed[full]

    def load(file: Any, **kwargs: Any) -> Any:
        return Unpickler(file, **kwargs).load()

    return types.SimpleNamespace(Unpickler=Unpickler, load=load, __name__="restricted_pickle")


def _allowed_names() -> Dict[str, Any]:
    known = dict(torch._weights_only_unpickler._get_allowed_globals())
    known.update({**compatibility.plain_containers(), **compatibility.arrays_of_numbers()})
    known.pop(_BYTES, None)
    return known


def _unsupported(name: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"Unsupported global: {name}")


def _first_sentence(error: Exception) -> str:
    """What is wrong, without torch's advice to switch its check off."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if "nsupported" in line or "GLOBAL" in line]
    return (told or lines or [type(error).__name__])[0]


def described(content: Any) -> str:
    """What came in the place of a checkpoint, for a message."""
    if isinstance(content, dict):
        return f"one with {', '.join(map(str, list(content)[:5])) or 'nothing'}"
    return f"a {type(content).__name__}"
