"""The files of an archive, one after the other and as streams: nothing is unpacked."""

from __future__ import annotations

import contextlib
import lzma
import os
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Collection, Iterator, Tuple

from tqdm import tqdm

from fairseq_bnce.errors import InputError

Member = Tuple[str, IO[bytes]]  # the name inside the archive, with slashes, and the content
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


def folder_members(folder: Path, without: Collection[Path] = ()) -> Iterator[Member]:
    """The files under a folder, by name, but for those at or below the paths ``without``."""
    folder = folder.resolve()
    left_out = {path.resolve() for path in without}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if left_out.isdisjoint((path, *path.parents)):
            with path.open("rb") as stream:
                yield path.relative_to(folder).as_posix(), stream


def zip_members(path: Path) -> Iterator[Member]:
    """The files of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                with _unpacked(archive, info) as stream:
                    yield info.filename, stream


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(info)
    except RuntimeError as error:  # encrypted; NotImplementedError: compressed in another way
        raise InputError(
            f"{archive.filename}: a zip archive that can be unpacked is required, but its "
            f"{info.filename} cannot ({error}): unpack it by other means, and give the folder as "
            "--source"
        ) from error


def tar_members(path: Path) -> Iterator[Member]:
    """The files of a tar archive in its order: compressed ones cannot be read in another."""
    with path.open("rb") as file, tqdm.wrapattr(
        file, "read", os.path.getsize(path), desc=f"read {path.name}", disable=None
    ) as counted, tarfile.open(fileobj=counted, mode="r|*") as archive:
        for info in archive:
            stream = archive.extractfile(info) if info.isfile() else None
            if stream is not None:
                yield info.name, stream


def is_tar(path: Path) -> bool:
    """Whether a file is a tar archive, compressed or not."""
    try:
        return tarfile.is_tarfile(path)
    except (*DAMAGE, OSError):  # what only looks compressed
        return False


def members(source: Path, without: Collection[Path] = ()) -> Iterator[Member]:
    """(name, stream) of every file of a folder, a zip or tar archive, or of the file itself.

    A stream is read before the next member is asked for. Of a folder, what is at or below the
    paths ``without`` is left out.
    """
    if source.is_dir():
        yield from folder_members(source, without)
    elif zipfile.is_zipfile(source):
        yield from zip_members(source)
    elif is_tar(source):
        yield from tar_members(source)
    else:
        with source.open("rb") as stream:
            yield source.name, stream


@contextlib.contextmanager
def damage_named(source: Path) -> Iterator[None]:
    """Say which archive is damaged where reading it fails."""
    try:
        yield
    except DAMAGE as error:
        raise InputError(
            f"{source}: a whole archive is required, but it is damaged or cut off ({error}): "
            "fetch it again"
        ) from error
