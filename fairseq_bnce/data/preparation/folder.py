"""The folder of the result, which appears when everything has succeeded."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

from fairseq_bnce.errors import InputError

REPORT = "report.json"
RESULTS = ("text", "bin", REPORT)
SCRATCH = ".tmp"


@contextlib.contextmanager
def failures_named() -> Iterator[None]:
    """Tell of files that fail as InputError."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed: not a file's failure
        raise
    except OSError as error:
        raise InputError(str(error)) from error


def check_output(out: Path, overwrite: bool, names: Sequence[str] = RESULTS) -> None:
    """Refuse to write where something is already, and to replace what no earlier run left.

    For before the work, and again for before :func:`install`: another run may have been faster.

    Args:
        out: the folder of the result.
        overwrite: whether an earlier result may be replaced.
        names: what is replaced in it: RESULTS, and folders that have reports of their own.

    Raises:
        InputError: naming what is there.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: a folder is required, but {out} is a file")
    if not overwrite and out.exists() and any(not _is_scratch(path, out) for path in out.iterdir()):
        raise InputError(
            f"--out: an empty or new folder is required, but {out} has data in it "
            f"(--overwrite replaces its {', '.join(names[:-1])} and {names[-1]})"
        )
    there = [name for name in names if os.path.lexists(out / name)]
    if REPORT in there:
        others = [name for name in there if name not in RESULTS]
        there = [name for name in others if not (out / name / REPORT).is_file()]
    if there:
        raise InputError(
            f"--out: with --overwrite, what an earlier run left is required, with its {REPORT}, "
            f"but {out} has {' and '.join(there)} without one"
        )


def _is_scratch(path: Path, out: Path) -> bool:
    """Whether it is of a :func:`staging_folder`, this run's or another's."""
    return path.name.startswith(f".{out.name}.") and path.name.endswith(SCRATCH)


def check_inputs(out: Path, inputs: Iterable[Any], names: Sequence[str] = RESULTS) -> None:
    """Refuse files or folders that ``--overwrite`` would replace by what is made of them.

    Args:
        out: the folder of the result.
        inputs: what is read.
        names: what is replaced in ``out``.

    Raises:
        InputError: naming the first one.
    """
    replaced = [out.resolve() / name for name in names]
    for name in inputs:
        place = Path(name).resolve()
        if any(result in (place, *place.parents) for result in replaced):
            raise InputError(
                f"--out: another folder is required, since {name} is of what would be replaced "
                f"in {out}"
            )


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """A folder for the work inside; where that fails, what was made for it and is empty goes."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):  # there is something in it
                path.rmdir()
        raise


@contextlib.contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """A scratch folder on the same disk as ``out``, gone afterwards whatever happens."""
    parent = out if out.exists() else out.parent  # out may be a disk of its own
    with new_folder(parent), tempfile.TemporaryDirectory(
        prefix=f".{out.name}.", suffix=SCRATCH, dir=parent
    ) as scratch:
        yield Path(scratch)


def install(result: Path, out: Path, scratch: Path, names: Sequence[str] = RESULTS) -> None:
    """Move the finished result to its place; whatever ``out`` has of these names goes."""
    if not out.exists():
        result.rename(out)
        return
    replaced = scratch / "replaced"
    replaced.mkdir()
    old = [name for name in names if os.path.lexists(out / name)]
    moves = [(out / name, replaced / name) for name in old]
    moves += [(entry, out / entry.name) for entry in sorted(result.iterdir())]
    with contextlib.ExitStack() as undone:  # where one of them fails
        for source, target in moves:
            source.rename(target)
            undone.callback(target.rename, source)
        undone.pop_all()
