"""Finding a corpus's archive: a local copy, or a download that resumes and is checked."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

from fairseq_bnce.data.preparation.folder import new_folder
from fairseq_bnce.data.preparation.progress import progress_bar
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.writing import part_of, say

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 3  # at a download whose connection breaks


class Archive(NamedTuple):
    """Where a corpus comes from.

    ``names`` are what the file may be called, the one that ``url`` gives first. ``checksums``
    ("md5:..." or "sha256:...") are of these, or of the files of an unpacked copy; what has none
    there has no checksum that is known for certain.
    """

    names: tuple[str, ...]
    url: str | None
    home: str
    checksums: Mapping[str, str] = {}


class Interrupted(Exception):
    """A connection that broke; what came is kept."""


# ---------------------------------------------------------------- checksums


def digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, as hexadecimal digits."""
    found = hashlib.new(algorithm)
    label, size = f"check {path.name}", path.stat().st_size
    with path.open("rb") as stream, progress_bar(label, size) as progress:
        for block in iter(lambda: stream.read(BLOCK), b""):
            found.update(block)
            progress.update(len(block))
    return found.hexdigest()


def mismatch(path: Path, expected: str | None) -> str | None:
    """How a file differs from its published checksum; None where it does not, or none is known."""
    if expected is None:
        return None
    algorithm, value = expected.split(":")
    found = digest(path, algorithm)
    if found == value:
        return None
    return f"{algorithm} {value} is required, but came {found} ({path.stat().st_size:,} bytes)"


# ---------------------------------------------------------------- download


def open_url(url: str, start: int) -> Any:
    """The response to a request for what lies behind byte ``start``."""
    headers = {"User-Agent": "fairseq_bnce", **({"Range": f"bytes={start}-"} if start else {})}
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)


def first_byte(response: Any) -> int:
    """Where in the file the body of a response begins: servers may ignore the wish for a part."""
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found.group(1)) if response.status == 206 and found else 0


def _blocks(response: Any) -> Iterator[bytes]:
    try:
        yield from iter(lambda: response.read(BLOCK), b"")
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(str(error)) from error


def append_body(response: Any, part: Path, name: str) -> None:
    """Write the body to its place in ``part``."""
    start = first_byte(response)
    length = response.headers.get("Content-Length")
    total = start + int(length) if length else None
    with part.open("r+b") as out, progress_bar(name, total, initial=start) as progress:
        out.seek(start)
        out.truncate()
        for block in _blocks(response):
            out.write(block)
            progress.update(len(block))
        if total is not None and out.tell() < total:
            raise Interrupted(f"{out.tell():,} of {total:,} bytes came")


def request_rest(url: str, part: Path, name: str) -> None:
    """Get what ``part`` lacks."""
    start = part.stat().st_size
    try:
        with open_url(url, start) as response:
            append_body(response, part, name)
    except urllib.error.HTTPError as error:
        if not (start and error.code == 416):  # nothing lies behind what is there already
            raise


def download(url: str, target: Path, checksum: str | None) -> None:
    """Fetch ``target``; an interrupted download goes on from its ``.part`` file.

    Raises:
        InputError: where it cannot be had; a folder that was made for
            it is gone again then, unless a part of the file came.
    """
    part = part_of(str(target))
    with new_folder(target.parent), open(part, "ab"):
        try:
            _download(url, target, checksum)
        except BaseException:
            if os.path.exists(part) and not os.path.getsize(part):
                os.remove(part)
            raise


def _download(url: str, target: Path, checksum: str | None) -> None:
    part = Path(part_of(str(target)))
    by_hand = f"fetch it elsewhere and put it at {target}, or give it as --source"
    for attempt in range(1, ATTEMPTS + 1):
        try:
            request_rest(url, part, target.name)
            break
        except Interrupted as error:
            if attempt == ATTEMPTS:
                raise InputError(
                    f"{target.name}: the whole of {url} is required, but the connection broke "
                    f"({error}): the same command again goes on from there, or {by_hand}"
                ) from error
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or error
            raise InputError(
                f"{target.name} is required, but {url} cannot be had ({reason}): {by_hand}"
            ) from error
    wrong = mismatch(part, checksum)
    if wrong:
        part.unlink()
        raise InputError(f"{url}: {wrong}; it was removed. Try again, or {by_hand}")
    part.replace(target)


# ---------------------------------------------------------------- finding


def checked_copy(path: Path, archive: Archive) -> Path:
    """A local copy; one that is not the original is pointed out, since repacked ones do as well."""
    files = [path] if path.is_file() else [path / name for name in archive.checksums]
    for file in files:
        wrong = mismatch(file, archive.checksums.get(file.name)) if file.is_file() else None
        if wrong:
            say(f"warning: {file} is not the published file: {wrong}")
    return path


def archive_in(folder: Path, archive: Archive) -> Path | None:
    """The archive, if it lies in a folder."""
    return next((folder / name for name in archive.names if (folder / name).is_file()), None)


def locate(archive: Archive, source: Path | None, cache: Path) -> Path:
    """The archive or a folder with its files: ``source``, or what ``cache`` has, or a download."""
    if source is not None:
        if not source.exists():
            raise InputError(
                f"--source: {archive.names[0]} or a folder with its files is required, but "
                f"{source} does not exist"
            )
        return checked_copy(archive_in(source, archive) or source, archive)
    found = archive_in(cache, archive)
    if found:
        return checked_copy(found, archive)
    if archive.url is None:
        raise InputError(
            f"{archive.names[0]} is required, and there is no address to download it "
            f"from: fetch it from {archive.home} and give it as --source, or put it at "
            f"{cache / archive.names[0]}"
        )
    name = archive.names[0]
    download(archive.url, cache / name, archive.checksums.get(name))
    return cache / name
