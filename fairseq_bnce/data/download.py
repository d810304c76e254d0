"""Find or download the archive of a corpus, and compare its checksum."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Mapping, NamedTuple

from fairseq_bnce.data.parallel import progress_bar
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.writing import say

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte


class Archive(NamedTuple):
    """The files of a corpus and where to get them.

    Attributes:
        names: possible names of the file; ``url`` has the first.
        url: the address, or None for a file that has to be fetched by hand.
        home: what to call the pages that offer the file.
        checksums: "md5:..." or "sha256:..." by name, of archives or of unpacked files.
    """

    names: tuple[str, ...]
    url: str | None
    home: str
    checksums: Mapping[str, str] = {}


def find_archive(archive: Archive, source: Path | None, cache: Path) -> Path:
    """Return the archive, or a folder with its files; download it to ``cache`` if necessary.

    Raises:
        InputError: if there is no such file, or its download fails.
    """
    if source is not None and not source.exists():
        raise InputError(
            f"--source: {archive.names[0]} or a folder with its files is required, but {source} "
            "does not exist"
        )
    folder = cache if source is None else source
    found = next((folder / name for name in archive.names if (folder / name).is_file()), source)
    if found is not None:
        _warn_of_other_content(found, archive)
        return found
    target = cache / archive.names[0]
    if archive.url is None:
        raise InputError(
            f"{target.name} is required, and there is no address to download it from: fetch it "
            f"from {archive.home} and give it as --source, or put it at {target}"
        )
    download(archive.url, target, archive.checksums.get(target.name))
    return target


def _warn_of_other_content(path: Path, archive: Archive) -> None:
    """Warn of files that differ from the published ones; repacked archives may do as well."""
    for file in [path] if path.is_file() else [path / name for name in archive.checksums]:
        difference = file.is_file() and _difference(file, archive.checksums.get(file.name))
        if difference:
            say(f"warning: {file} is not the published file: {difference}")


def _difference(path: Path, checksum: str | None) -> str | None:
    """Describe how a file differs from its checksum; None if it does not, or none is known."""
    if checksum is None:
        return None
    algorithm, required = checksum.split(":")
    found = hashlib.new(algorithm)
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            found.update(block)
    if found.hexdigest() == required:
        return None
    size = path.stat().st_size
    return f"{algorithm} {required} is required, but came {found.hexdigest()} ({size:,} bytes)"


def download(url: str, target: Path, checksum: str | None) -> None:
    """Download ``target``; after an interruption, resume its ``.part`` file.

    Raises:
        InputError: if the download fails or has another checksum.
    """
    part = target.with_name(f"{target.name}.part")
    by_hand = f"fetch it elsewhere and put it at {target}, or give it as --source"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _download_rest(url, part)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise InputError(
            f"{target.name} is required, but {url} cannot be had ({error}): run the same command "
            f"again to resume, or {by_hand}"
        ) from error
    difference = _difference(part, checksum)
    if difference:
        part.unlink()
        raise InputError(f"{url}: {difference}; it was removed. Try again, or {by_hand}")
    part.replace(target)


def _download_rest(url: str, part: Path) -> None:
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fairseq_bnce", **({"Range": f"bytes={start}-"} if start else {})}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if start and error.code == 416:  # the part is the whole file
            return
        raise
    start = start if response.status == 206 else 0  # other servers send the whole file
    total = start + int(response.headers.get("Content-Length") or 0)
    with response, part.open("ab" if start else "wb") as out, progress_bar(
        part.stem, total, initial=start
    ) as bar:
        for block in iter(lambda: response.read(BLOCK), b""):
            out.write(block)
            bar.update(len(block))
        if out.tell() < total:
            raise OSError(f"the connection broke after {out.tell():,} of {total:,} bytes")
