"""The output folder, whose contents change only once the whole result is ready."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

from fairseq_bnce.errors import InputError

REPORT = "report.json"
RESULTS = ("text", "bin", REPORT)


@contextlib.contextmanager
def file_errors_reported() -> Iterator[None]:
    """Raise InputError for files that cannot be read or written."""
    try:
        yield
    except BrokenPipeError:  # of standard output
        raise
    except OSError as error:
        raise InputError(str(error)) from error


def check_output(
    out: Path, overwrite: bool, inputs: Iterable[Any] = (), names: Sequence[str] = RESULTS
) -> None:
    """Refuse to replace data other than the result of an earlier run.

    Args:
        out: the output folder.
        overwrite: whether the result of an earlier run may be replaced.
        inputs: the files and folders that are read.
        names: the files and folders of a result. Folders outside ``RESULTS`` have their own report.

    Raises:
        InputError: naming the existing data.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: a folder is required, but {out} is a file")
    visible = [path for path in out.glob("*") if not path.name.startswith(".")]
    if visible and not overwrite:
        raise InputError(
            f"--out: an empty or new folder is required, but {out} has data in it "
            f"(--overwrite replaces its {', '.join(names[:-1])} and {names[-1]})"
        )
    foreign = [name for name in names if os.path.lexists(out / name)]
    if REPORT in foreign:
        others = [name for name in foreign if name not in RESULTS]
        foreign = [name for name in others if not (out / name / REPORT).is_file()]
    if foreign:
        raise InputError(
            f"--out: with --overwrite, a result of an earlier run is required, with its {REPORT}, "
            f"but {out} has {' and '.join(foreign)} without one"
        )
    replaced = {out.resolve() / name for name in names}
    for path in map(Path, inputs):
        if not replaced.isdisjoint((path.resolve(), *path.resolve().parents)):
            raise InputError(
                f"--out: another folder is required, since {path} would be replaced in {out}"
            )


@contextlib.contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """Make a scratch folder on the same disk as ``out``, and remove it afterwards."""
    parent = out if out.exists() else out.parent  # out may be a disk of its own
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=parent) as scratch:
        yield Path(scratch)


def install(result: Path, out: Path, scratch: Path, names: Sequence[str] = RESULTS) -> None:
    """Move a finished result into ``out``; on failure, restore the earlier result."""
    if not out.exists():
        result.rename(out)
        return
    replaced = scratch / "replaced"
    replaced.mkdir()
    moves = [(out / name, replaced / name) for name in names if os.path.lexists(out / name)]
    moves += [(entry, out / entry.name) for entry in sorted(result.iterdir())]
    with contextlib.ExitStack() as undo:
        for source, target in moves:
            source.rename(target)
            undo.callback(target.rename, source)
        undo.pop_all()
