"""The corpora: where each comes from, how its text is read, and what is published about it."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import IO, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple

from fairseq_bnce.data.corpora import archives, novels, wikipedia
from fairseq_bnce.data.corpora.fetch import Archive
from fairseq_bnce.data.preparation.progress import progress_bar
from fairseq_bnce.data.preparation.splits import SPLITS
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.training_text import PENN, TrainingText
from fairseq_bnce.text.writing import say

WHOLE = "input"  # of a corpus that is split here


class Published(NamedTuple):
    """Published counts. ``types`` has </s> and <unk>, and ``markers`` more that fairseq lacks.

    ``tokens`` are words and one </s> a line; ``words`` are those of all splits together.
    """

    types: int | None = None
    markers: int = 0
    tokens: Mapping[str, int] = {}
    words: int | None = None


class Corpus(NamedTuple):
    """A recipe. ``write`` streams the archive into a text file for each split (or WHOLE).

    Its arguments: the archive, the folder of the text files, and what of a folder to leave out.
    """

    title: str
    archive: Archive
    write: Callable[[Path, Path, Collection[Path]], None]
    files: tuple[str, ...]  # that ``write`` makes
    options: tuple[str, ...]  # of prepare-text
    published: Published = Published()
    made: TrainingText = TrainingText()  # how ``write`` makes words


# ---------------------------------------------------------------- writing


def report_missing(source: Path, required: str, found: Iterable[str]) -> InputError:
    """An error that says what an archive should have had."""
    names = sorted(found)
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return InputError(f"{source}: {required} is required, but it has {listed or 'no file'}")


def copy_text(stream: IO[bytes], out: IO[bytes]) -> None:
    """Append a file, ending its last line."""
    shutil.copyfileobj(stream, out, 1 << 20)
    out.flush()
    size = out.tell()
    if size:
        out.seek(size - 1)
        if out.read(1) != b"\n":
            out.write(b"\n")


def write_members(
    source: Path,
    target: Path,
    without: Collection[Path],
    split_of: Callable[[str], str | None],
    required: Mapping[str, str],
) -> Counter:
    """Copy the members of an archive into their split's file; return how many each split has."""
    seen: list[str] = []
    counts: Counter = Counter()
    with contextlib.ExitStack() as stack, archives.damage_named(source):
        files = {split: stack.enter_context((target / split).open("w+b")) for split in required}
        for name, stream in archives.members(source, without):
            seen.append(name)
            split = split_of(name)
            if split:
                copy_text(stream, files[split])
                counts[split] += 1
    for split, what in required.items():
        if not counts[split]:
            raise report_missing(source, what, seen)
    return counts


def write_sentences(
    source: Path,
    target: Path,
    without: Collection[Path],
    wanted: Callable[[str], bool],
    sentences: Callable[[IO[bytes]], Iterator[str]],
    required: str,
) -> int:
    """Write the sentences of the wanted members of an archive; return how many members had some."""
    seen: list[str] = []
    used = 0
    with (target / WHOLE).open("w", encoding="utf-8", newline="\n") as out, progress_bar(
        "sentences", unit=""
    ) as progress, archives.damage_named(source):
        for name, stream in archives.members(source, without):
            seen.append(name)
            if wanted(name):
                some = False
                for sentence in sentences(stream):
                    out.write(sentence + "\n")
                    progress.update()
                    some = True
                used += some
    if not used:
        raise report_missing(source, required, seen)
    return used


def base(name: str) -> str:
    """The last part of a member's name."""
    return name.rsplit("/", 1)[-1]


def write_named(names: Mapping[str, str]) -> Callable[[Path, Path, Collection[Path]], None]:
    """A writer for archives with one file a split."""

    def write(source: Path, target: Path, without: Collection[Path]) -> None:
        splits = {name: split for split, name in names.items()}
        counts = write_members(source, target, without, lambda name: splits.get(base(name)), names)
        for split, name in names.items():
            if counts[split] > 1:
                raise InputError(f"{source}: one {name} is required, but it has {counts[split]}")

    return write


# ---------------------------------------------------------------- the billion words

TRAIN_SHARD = re.compile(r"news\.en-(?!00000)\d{5}-of-00100$")
HELDOUT_SHARD = re.compile(r"news\.en\.heldout-(\d{5})-of-00050$")
VALID_SHARDS = 5
SHARDS = {"train": 99, "valid": VALID_SHARDS, "test": 50 - VALID_SHARDS}


def billion_split(name: str) -> str | None:
    """The split of a shard. (The held-out text is there in one piece too: news.en-00000.)"""
    if TRAIN_SHARD.match(base(name)):
        return "train"
    found = HELDOUT_SHARD.match(base(name))
    if not found:
        return None
    return "valid" if int(found.group(1)) < VALID_SHARDS else "test"


def write_billion(source: Path, target: Path, without: Collection[Path]) -> None:
    """The shards of every split, in the archive's order."""
    required = {
        "train": "news.en-00001-of-00100 or another training shard",
        "valid": "news.en.heldout-00000-of-00050 or another of the first five held-out shards",
        "test": "news.en.heldout-00005-of-00050 or another of the last 45 held-out shards",
    }
    counts = write_members(source, target, without, billion_split, required)
    for split, shards in SHARDS.items():
        if counts[split] != shards:
            say(f"warning: {split}: {shards} shards are published, but came {counts[split]}")


# ---------------------------------------------------------------- text that is cleaned here


def write_wikipedia(source: Path, target: Path, without: Collection[Path]) -> None:
    """The sentences of enwik9."""
    write_sentences(
        source,
        target,
        without,
        lambda name: base(name) == "enwik9" or source.is_file() and base(name) == source.name,
        wikipedia.dump_sentences,
        "enwik9 (a dump with <text> in it)",
    )


NOVELS = 522


def write_novels(source: Path, target: Path, without: Collection[Path]) -> None:
    """The sentences of the novels."""
    used = write_sentences(
        source,
        target,
        without,
        lambda name: name.lower().endswith(".txt"),
        lambda stream: novels.novel_sentences(stream.read()),
        "at least one novel (*.TXT)",
    )
    if used != NOVELS:
        print(f"warning: {NOVELS} novels are published, but came {used}")


# ---------------------------------------------------------------- the table

PTB_FILES = {split: f"ptb.{split}.txt" for split in SPLITS}
WIKITEXT_FILES = {split: f"wiki.{split}.tokens" for split in SPLITS}
# Its author's copy: the first address is closed since 2024. The checksum tells that it is the same.
WIKITEXT_URL = "https://wikitext.smerity.com/"
BILLION = "1-billion-word-language-modeling-benchmark-r13output.tar.gz"


def wikitext(number: int, checksum: str, types: int, train: int) -> Corpus:
    """WikiText-2 or -103: the same but for the training text."""
    name = f"wikitext-{number}-v1.zip"
    return Corpus(
        f"WikiText-{number}, word level",
        Archive((name,), WIKITEXT_URL + name, "the pages of WikiText", {name: checksum}),
        write_named(WIKITEXT_FILES),
        SPLITS,
        ("--keep-empty-lines",),  # they are among the published tokens
        Published(types, tokens={"train": train, "valid": 217_646, "test": 245_569}),
    )


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
        write_named(PTB_FILES),
        SPLITS,
        (),
        Published(10_000, tokens={"train": 929_589, "valid": 73_760, "test": 82_430}),
    ),
    "wikitext-2": wikitext(
        2,
        "sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        33_278,
        2_088_628,
    ),
    "wikitext-103": wikitext(
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
        write_wikipedia,
        (WHOLE,),
        # Of the published 133M, 7.8M and 7.9M tokens.
        ("--vocab-size", "80000", "--split", "0.8944", "0.0525", "0.0531"),
        Published(80_000, words=124_301_826),  # wikifil.pl's, whose rules are used here
    ),
    "obwb": Corpus(
        "One Billion Word Benchmark",
        Archive(
            (BILLION,),
            f"http://www.statmt.org/lm-benchmark/{BILLION}",
            "the benchmark's pages at statmt.org",
            {BILLION: "sha256:01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e"},
        ),
        write_billion,
        SPLITS,
        ("--min-count", "3"),
        # Published are 829,250,940 tokens with <s> and </s> for each of 30,301,028 sentences.
        Published(793_471, markers=1, tokens={"train": 829_250_940 - 30_301_028}),
    ),
    "mscc": Corpus(
        "training text of the Microsoft Research Sentence Completion Challenge",
        Archive(
            tuple(f"Holmes_Training_Data.{end}" for end in ("tar.xz", "tar.gz", "tgz", "zip")),
            None,
            "the challenge's pages (Microsoft Research)",
        ),
        write_novels,
        (WHOLE,),
        ("--min-count", "10", "--split", "0.99", "0.005", "0.005", "--split-by", "line"),
        made=TrainingText(PENN, lowercase=True),
    ),
}
