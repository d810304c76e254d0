"""Well-known corpora: where to get them, how to read their text, and what is published about it."""

from __future__ import annotations

import contextlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Tuple

from tqdm import tqdm

from fairseq_bnce.data.cleaning import dump_sentences, novel_sentences
from fairseq_bnce.data.download import Archive
from fairseq_bnce.data.preparation import SPLITS
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.training_text import PENN, TrainingText
from fairseq_bnce.text.writing import say

WHOLE = "input"  # the name of a text that get-data has to split
VALID_SHARDS = 5  # of the 50 held-out shards of the billion words
Member = Tuple[str, IO[bytes]]  # a name inside an archive, with slashes, and the content
# What Python's modules raise for archives that are damaged, encrypted or of an unknown kind.
_DAMAGE: tuple[type[Exception], ...] = (tarfile.TarError, zipfile.BadZipFile, zlib.error)
_DAMAGE += (lzma.LZMAError, EOFError, RuntimeError)


class Part(NamedTuple):
    """The members of an archive that belong to one text.

    Attributes:
        required: names a member in errors.
        number: how many members the published archive has.
        published: the text of a warning about another number.
    """

    required: str
    number: int = 1
    published: str = ""


class Corpus(NamedTuple):
    """A recipe.

    Attributes:
        title: for the report.
        archive: where the text comes from.
        parts: by the text to write: "train", "valid" and "test", or WHOLE.
        part_of: the part that a member belongs to, by its name; None for other members.
        lines: yields the lines of a member.
        settings: of prepare-text.
        types: published number of types with </s> and <unk>.
        markers: number of these types that fairseq lacks (<s>).
        tokens: published number of words, and one </s> a line, by split.
        words: published number of words in all splits together.
        made: how ``lines`` makes words.
    """

    title: str
    archive: Archive
    parts: Mapping[str, Part]
    part_of: Callable[[str], str | None]
    settings: Mapping[str, Any] = {}
    lines: Callable[[IO[bytes]], Iterable[str | bytes]] = iter
    types: int | None = None
    markers: int = 0
    tokens: Mapping[str, int] = {}
    words: int | None = None
    made: TrainingText = TrainingText()


# ---------------------------------------------------------------- archives


def archive_members(source: Path, left_out: Collection[Path] = ()) -> Iterator[Member]:
    """Yield (name, stream) for each file of a folder, a zip or tar archive, or for a plain file.

    Read a stream before you ask for the next member. Files below ``left_out`` are skipped.
    """
    if source.is_dir():
        skipped = {path.resolve() for path in left_out}
        for path in sorted(path for path in source.resolve().rglob("*") if path.is_file()):
            if skipped.isdisjoint((path, *path.parents)):
                with path.open("rb") as stream:
                    yield path.relative_to(source.resolve()).as_posix(), stream
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in archive.namelist():
                if not name.endswith("/"):
                    with archive.open(name) as stream:
                        yield name, stream
    elif _is_tar(source):
        yield from _tar_members(source)
    else:
        with source.open("rb") as stream:
            yield source.name, stream


def _is_tar(source: Path) -> bool:
    with contextlib.suppress(OSError, *_DAMAGE):  # of a file that only looks compressed
        return tarfile.is_tarfile(source)
    return False


def _tar_members(source: Path) -> Iterator[Member]:
    size = source.stat().st_size
    with source.open("rb") as file, tqdm.wrapattr(
        file, "read", size, desc=f"read {source.name}", disable=None
    ) as counted, tarfile.open(fileobj=counted, mode="r|*") as archive:
        for info in archive:
            stream = archive.extractfile(info) if info.isfile() else None
            if stream is not None:
                yield info.name, stream


def write_texts(
    corpus: Corpus, source: Path, folder: Path, left_out: Collection[Path] = ()
) -> None:
    """Write the texts of a corpus into ``folder``, a file for each part.

    Raises:
        InputError: if the archive is damaged or lacks a part.
    """
    seen: list[str] = []
    found: Counter[str] = Counter()
    try:
        with contextlib.ExitStack() as stack:
            files = {part: stack.enter_context((folder / part).open("wb")) for part in corpus.parts}
            for name, stream in archive_members(source, left_out):
                seen.append(name)
                part = corpus.part_of(name)
                if part is not None:
                    found[part] += _write_lines(corpus.lines(stream), files[part])
    except _DAMAGE as error:
        raise InputError(
            f"{source}: a whole archive is required, but it is damaged, or cannot be unpacked here "
            f"({error}): fetch it again, or unpack it and give the folder as --source"
        ) from error
    for part, (required, number, published) in corpus.parts.items():
        if not found[part]:
            listed = ", ".join(sorted(seen)[:5]) + (", ..." if len(seen) > 5 else "")
            raise InputError(f"{source}: {required} is required, but it has {listed or 'no file'}")
        if number == 1 and found[part] > 1:
            raise InputError(f"{source}: one {required} is required, but it has {found[part]}")
        if number != found[part]:
            say(f"warning: {published} are published, but came {found[part]}")


def _write_lines(lines: Iterable[str | bytes], out: IO[bytes]) -> bool:
    """Write lines with a line feed; return whether there were any."""
    has_lines = False
    for line in lines:
        content = line.encode("utf-8") if isinstance(line, str) else line
        out.write(content if content.endswith(b"\n") else content + b"\n")
        has_lines = True
    return has_lines


# ---------------------------------------------------------------- the table


def _file_name(member: str) -> str:
    return member.rsplit("/", 1)[-1]


def _named(form: str) -> tuple[dict[str, Part], Callable[[str], str | None]]:
    """Return the parts, and the function of a name, of an archive with one file for each split."""
    parts = {form.format(split): split for split in SPLITS}
    return {split: Part(name) for name, split in parts.items()}, (
        lambda name: parts.get(_file_name(name))
    )


def _billion_words_part(member: str) -> str | None:
    if re.match(r"news\.en-(?!00000)\d{5}-of-00100$", _file_name(member)):
        return "train"
    found = re.match(r"news\.en\.heldout-(\d{5})-of-00050$", _file_name(member))
    if found is None:  # such as news.en-00000, which has the held-out text in one piece
        return None
    return "valid" if int(found.group(1)) < VALID_SHARDS else "test"


def _wikitext(number: int, checksum: str, types: int, train: int) -> Corpus:
    name = f"wikitext-{number}-v1.zip"
    # The author's copy: the first address closed in 2024. The checksum is the original's.
    url = f"https://wikitext.smerity.com/{name}"
    return Corpus(
        f"WikiText-{number}, word level",
        Archive((name,), url, "the pages of WikiText", {name: checksum}),
        *_named("wiki.{}.tokens"),
        settings={"keep_empty_lines": True},  # they are among the published tokens
        types=types,
        tokens={"train": train, "valid": 217_646, "test": 245_569},
    )


_BILLION_WORDS = "1-billion-word-language-modeling-benchmark-r13output.tar.gz"
CORPORA = {
    "ptb": Corpus(
        "Penn Treebank, as Mikolov prepared it",
        Archive(
            ("simple-examples.tgz",),
            "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
            "Mikolov's RNNLM pages",
            {
                "simple-examples.tgz": "md5:30177ea32e27c525793142b6bf2c8e2d",
                "ptb.train.txt": "md5:f26c4b92c5fdc7b3f8c7cdcb991d8420",
                "ptb.valid.txt": "md5:aa0affc06ff7c36e977d7cd49e3839bf",
                "ptb.test.txt": "md5:8b80168b89c18661a38ef683c0dc3721",
            },
        ),
        *_named("ptb.{}.txt"),
        types=10_000,
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
    ),
    "wikitext-2": _wikitext(
        2,
        "sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        33_278,
        2_088_628,
    ),
    "wikitext-103": _wikitext(
        103,
        "sha256:242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        267_735,
        103_227_021,
    ),
    "ltcb": Corpus(
        "Large Text Compression Benchmark (enwik9), 80K types",
        Archive(
            ("enwik9.zip", "enwik9"),
            "http://mattmahoney.net/dc/enwik9.zip",
            "Mahoney's page on the benchmark's data",
            {
                "enwik9.zip": "md5:3e773f8a1577fda2e27f871ca17f31fd",
                "enwik9": "md5:e206c3450ac99950df65bf70ef61a12d",
            },
        ),
        {WHOLE: Part("enwik9 (a dump with <text> in it)")},
        lambda name: WHOLE if _file_name(name) == "enwik9" else None,
        # Published are 133M, 7.8M and 7.9M tokens.
        {"vocab_size": 80_000, "split": [0.8944, 0.0525, 0.0531]},
        dump_sentences,
        types=80_000,
        words=124_301_826,  # of wikifil.pl
    ),
    "obwb": Corpus(
        "One Billion Word Benchmark",
        Archive(
            (_BILLION_WORDS,),
            f"http://www.statmt.org/lm-benchmark/{_BILLION_WORDS}",
            "the benchmark's pages at statmt.org",
            {
                _BILLION_WORDS: (
                    "sha256:01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e"
                )
            },
        ),
        {
            "train": Part(
                "news.en-00001-of-00100 or another training shard", 99, "train: 99 shards"
            ),
            "valid": Part(
                "news.en.heldout-00000-of-00050 or another of the first five held-out shards",
                VALID_SHARDS,
                f"valid: {VALID_SHARDS} shards",
            ),
            "test": Part(
                "news.en.heldout-00005-of-00050 or another of the last 45 held-out shards",
                50 - VALID_SHARDS,
                f"test: {50 - VALID_SHARDS} shards",
            ),
        },
        _billion_words_part,
        {"min_count": 3},
        types=793_471,
        markers=1,
        # Published are 829,250,940 tokens with <s> and </s> for each of 30,301,028 sentences.
        tokens={"train": 829_250_940 - 30_301_028},
    ),
    "mscc": Corpus(
        "training text of the Microsoft Research Sentence Completion Challenge",
        Archive(
            tuple(f"Holmes_Training_Data.{end}" for end in ("tar.xz", "tar.gz", "tgz", "zip")),
            None,
            "the challenge's pages (Microsoft Research)",
        ),
        {WHOLE: Part("at least one novel (*.TXT)", 522, "522 novels")},
        lambda name: WHOLE if name.lower().endswith(".txt") else None,
        {"min_count": 10, "split": [0.99, 0.005, 0.005], "split_by": "line"},
        novel_sentences,
        made=TrainingText(PENN, lowercase=True),
    ),
}
