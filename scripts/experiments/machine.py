"""Describe machine, versions, data and plugin of a run, without importing torch."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Dict, Iterable, List, Optional

_SPLITS = ("train", "valid", "test")


def plugin_folder() -> Path:
    """Return the folder for ``--user-dir``: fairseq_bnce of this checkout."""
    return Path(__file__).resolve().parents[2] / "fairseq_bnce"


def vocabulary_size(folder: Path) -> int:
    """Return the types of a folder's dictionary, including fairseq's four specials."""
    with (folder / "dict.txt").open(encoding="utf-8") as lines:
        return 4 + sum(1 for _ in lines)


def data_fingerprint(folder: Path) -> str:
    """Return a digest of the dictionary and all splits."""
    names = ["dict.txt", *(f"{split}.{part}" for split in _SPLITS for part in ("bin", "idx"))]
    return fingerprint(folder / name for name in names)


def plugin_fingerprint(folder: Path) -> str:
    """Return a digest of the plugin's source."""
    return fingerprint(sorted(folder.rglob("*.py")))


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
        "torch": version("torch"),
        "fairseq": version("fairseq-fixed") or version("fairseq"),
    }


def hardware() -> Dict[str, object]:
    """Return the processor's name and the number of cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": _processor(), "cores": usable, "system": platform.system()}


def record() -> Dict[str, object]:
    """Return versions and hardware, for results."""
    return {**versions(), **hardware()}


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text(errors="replace") if path.is_file() else ""
    # ARM's cpuinfo has no name.
    names: List[str] = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return names[0].strip() if names else platform.processor() or platform.machine()


def version(distribution: str) -> Optional[str]:
    """Return the version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
