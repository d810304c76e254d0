"""Well-known corpora: where to get them, how to read their text, and what is published about it."""

from __future__ import annotations

import contextlib
import lzma
import re
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

from tqdm import tqdm

from fairseq_bnce.data.cleaning import dump_sentences, novel_sentences
from fairseq_bnce.data.preparation import SPLITS
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.training_text import PENN, TrainingText
from fairseq_bnce.text.writing import say

WHOLE = "input"  # the name of a text that get-data has to split
BLOCK = 1 << 20


class Corpus(NamedTuple):
    """A recipe.

    Attributes:
        title: for the report.
        archives: possible names of the archive; ``url`` has the first.
        parts: by the text to write ("train", "valid" and "test", or WHOLE), a pattern of the names
            of its files in the archive. A file belongs to the first pattern that fits.
        url: the address, or None for an archive that has to be fetched by hand.
        digest: "md5:..." or "sha256:..." of the archive at this address.
        files: how many files of a part are published, if not one.
        settings: of prepare-text.
        lines: yields the lines of a file.
        types: published number of types with </s> and <unk>.
        markers: number of these types that fairseq lacks (<s>).
        tokens: published number of words, and one </s> a line, by split.
        words: published number of words in all splits together.
        made: how ``lines`` makes words.
    """

    title: str
    archives: tuple[str, ...]
    parts: Mapping[str, str]
    url: str | None = None
    digest: str | None = None
    files: Mapping[str, int] = {}
    settings: Mapping[str, Any] = {}
    lines: Callable[[IO[bytes]], Iterable[str | bytes]] = iter
    types: int | None = None
    markers: int = 0
    tokens: Mapping[str, int] = {}
    words: int | None = None
    made: TrainingText = TrainingText()

    def part_of(self, member: str) -> str | None:
        """Return the part that a file of the archive belongs to; None for other files."""
        name = member.rsplit("/", 1)[-1]
        return next((p for p, pattern in self.parts.items() if re.fullmatch(pattern, name)), None)


# ---------------------------------------------------------------- archives


def find_archive(corpus: Corpus, source: Path | None, cache: Path) -> Path:
    """Return the archive, or a folder with its files; download it to ``cache`` if necessary.

    Raises:
        InputError: if there is no such file, or its download fails.
    """
    folder = cache if source is None else source
    names = [name for name in corpus.archives if (folder / name).is_file()]
    found = folder / names[0] if names else source
    return _download(corpus, cache) if found is None else found


def _download(corpus: Corpus, cache: Path) -> Path:
    name = corpus.archives[0]
    by_hand = f"fetch it by hand and put it at {cache / name}, or give it as --source"
    if corpus.url is None:
        raise InputError(f"{name}: required, and no address to download it from: {by_hand}")
    import pooch  # the extra "data"

    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=BLOCK)
    try:
        pooch.retrieve(corpus.url, corpus.digest, name, cache, downloader=downloader)
    except (OSError, ValueError) as error:  # no connection, or another digest
        raise InputError(f"{corpus.url}: required {name}, got: {error}; {by_hand}") from error
    return cache / name


def archive_members(source: Path, left_out: Sequence[Path]) -> Iterator[Tuple[str, Any]]:
    """Yield (name, stream) for each file of a folder, a zip or tar archive, or for a plain file.

    Read a stream before you ask for the next one. Files below ``left_out`` are skipped.
    """
    if source.is_file() and zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as zipped:
            yield from ((name, zipped.open(name)) for name in zipped.namelist())
    elif source.is_file() and tarfile.is_tarfile(source):
        with tarfile.open(source) as archive:
            files = filter(tarfile.TarInfo.isfile, archive)
            yield from ((info.name, archive.extractfile(info)) for info in files)
    else:
        for path in sorted(source.resolve().rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and not {*path.parents} & {*left_out}:
                with path.open("rb") as stream:
                    yield path.name, stream


def write_texts(corpus: Corpus, source: Path, folder: Path, left_out: Sequence[Path] = ()) -> None:
    """Write the texts of a corpus into ``folder``, a file for each part.

    Raises:
        InputError: if the archive is damaged or lacks a part.
    """
    found: Counter[str] = Counter()
    try:
        with contextlib.ExitStack() as stack:
            out = {part: stack.enter_context((folder / part).open("wb")) for part in corpus.parts}
            members = archive_members(source, left_out)
            for name, stream in tqdm(members, f"read {source.name}", unit=" files", disable=None):
                part = corpus.part_of(name)
                if part is not None:
                    found[part] += 1
                    for line in corpus.lines(stream):
                        content = line.encode() if isinstance(line, str) else line.rstrip(b"\n")
                        out[part].write(content + b"\n")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise InputError(f"{source}: required a whole archive, got: {error}") from error
    for part, pattern in corpus.parts.items():
        if not found[part]:
            raise InputError(f"{source}: required files named {pattern}, got none")
        if found[part] != corpus.files.get(part, 1):
            published = f"{corpus.files.get(part, 1)} file(s) are published"
            say(f"warning: {part}: {published}, but came {found[part]}")


# ---------------------------------------------------------------- the table


def _split_files(form: str) -> dict[str, str]:
    """Return the parts of an archive that has a file for each split."""
    return {split: form.format(split) for split in SPLITS}


def _wikitext(number: int, digest: str, types: int, train: int) -> Corpus:
    name = f"wikitext-{number}-v1.zip"
    return Corpus(
        f"WikiText-{number}, word level",
        (name,),
        _split_files("wiki.{}.tokens"),
        # The author's copy: the first address closed in 2024. The digest is the original's.
        f"https://wikitext.smerity.com/{name}",
        f"sha256:{digest}",
        settings={"keep_empty_lines": True},  # they are among the published tokens
        types=types,
        tokens={"train": train, "valid": 217_646, "test": 245_569},
    )


_WIKITEXT_2 = "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
_WIKITEXT_103 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
_BILLION_WORDS = "1-billion-word-language-modeling-benchmark-r13output.tar.gz"
CORPORA = {
    "ptb": Corpus(
        "Penn Treebank, as Mikolov prepared it",
        ("simple-examples.tgz",),
        _split_files("ptb.{}.txt"),
        "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
        "md5:30177ea32e27c525793142b6bf2c8e2d",
        types=10_000,
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
    ),
    "wikitext-2": _wikitext(2, _WIKITEXT_2, 33_278, 2_088_628),
    "wikitext-103": _wikitext(103, _WIKITEXT_103, 267_735, 103_227_021),
    "ltcb": Corpus(
        "Large Text Compression Benchmark (enwik9), 80K types",
        ("enwik9.zip", "enwik9"),
        {WHOLE: "enwik9"},
        "http://mattmahoney.net/dc/enwik9.zip",
        "md5:3e773f8a1577fda2e27f871ca17f31fd",
        # Published are 133M, 7.8M and 7.9M tokens.
        settings={"vocab_size": 80_000, "split": [0.8944, 0.0525, 0.0531]},
        lines=dump_sentences,
        types=80_000,
        words=124_301_826,  # wikifil.pl's count
    ),
    "obwb": Corpus(
        "One Billion Word Benchmark",
        (_BILLION_WORDS,),
        {
            "train": r"news.en-(?!00000)\d{5}-of-00100",  # 00000 has the held-out text in one piece
            "valid": "news.en.heldout-0000[0-4]-of-00050",
            "test": r"news.en.heldout-\d{5}-of-00050",
        },
        f"http://www.statmt.org/lm-benchmark/{_BILLION_WORDS}",
        "sha256:01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
        files={"train": 99, "valid": 5, "test": 45},
        settings={"min_count": 3},
        types=793_471,
        markers=1,
        # Published are 829,250,940 tokens with <s> and </s> for each of 30,301,028 sentences.
        tokens={"train": 829_250_940 - 30_301_028},
    ),
    "mscc": Corpus(
        "training text of the Microsoft Research Sentence Completion Challenge",
        tuple(f"Holmes_Training_Data.{end}" for end in ("tar.xz", "tar.gz", "tgz", "zip")),
        {WHOLE: r".*\.(?i:txt)"},
        files={WHOLE: 522},
        settings={"min_count": 10, "split": [0.99, 0.005, 0.005], "split_by": "line"},
        lines=novel_sentences,
        made=TrainingText(PENN, lowercase=True),
    ),
}
