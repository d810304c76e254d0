"""Describe machine, versions, data and plugin of a run, without importing torch."""

import hashlib
import os
import platform
import re
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Dict, Iterable, Optional

PLUGIN = Path(__file__).resolve().parents[2] / "fairseq_bnce"  # for --user-dir
_DATA = ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx", "test.bin", "test.idx")


def vocabulary_size(folder: Path) -> int:
    """Return the types of a folder's dictionary, including fairseq's four specials."""
    return 4 + len((folder / "dict.txt").read_text(encoding="utf-8").splitlines())


def data_fingerprint(folder: Path) -> str:
    """Return a digest of the dictionary and all splits."""
    return fingerprint(folder / name for name in _DATA)


def plugin_fingerprint() -> str:
    """Return a digest of the plugin's source."""
    return fingerprint(sorted(PLUGIN.rglob("*.py")))


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a digest of the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as stream:
            for block in iter(partial(stream.read, 2**20), b""):
                digest.update(block)
    return digest.hexdigest()[:12]


def versions() -> Dict[str, Optional[str]]:
    """Return the versions of Python, torch and fairseq."""
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "fairseq": _version("fairseq-fixed") or _version("fairseq"),
    }


def hardware() -> Dict[str, object]:
    """Return the processor's name and the number of cores that this process may use."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(errors="replace") if path.is_file() else ""
    # ARM's cpuinfo has no name.
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    processor = name[1].strip() if name else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": processor, "cores": cores, "system": platform.system()}


def record() -> Dict[str, object]:
    """Return versions and hardware, for results."""
    return {**versions(), **hardware()}


def _version(distribution: str) -> Optional[str]:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
