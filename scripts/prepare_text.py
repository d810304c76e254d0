#!/usr/bin/env python3
"""From text files to the binarised data that fairseq's language models train on.

Each line of text is one sentence (or whatever unit the model is to see). The
steps are: tokenise, split into train, valid and test, count the words of train,
cut the vocabulary, write ``<unk>`` for every other word, and run
``fairseq-preprocess``, which ends every line with one ``</s>``. Files are
streamed: only the word counts are held in memory.

The result is a folder with ``text/`` (what the model sees, as words), ``bin/``
(for ``fairseq-train``) and ``report.json`` (settings and counts). It appears
when everything has succeeded, not before.

    python scripts/prepare_text.py --train a.txt b.txt --valid c.txt --vocab-size 10000 --out data
    python scripts/prepare_text.py --input corpus.txt --split 0.8 0.1 0.1 --min-count 2 --out data
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import (
    IO,
    AbstractSet,
    Any,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    Sequence,
)

try:
    from tqdm import tqdm
except ImportError:
    sys.exit("prepare_text.py: error: tqdm is missing: pip install 'fairseq-bnce[text]'")

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = frozenset({BOS, PAD, EOS, UNK})
SPLITS = ("train", "valid", "test")
DEFAULT_SPLIT = (0.9, 0.05, 0.05)
STDIN = "-"
CHUNK_BYTES = 1 << 18  # of text handed to a worker at a time: seconds of work, not minutes
LINE_LIMIT = 1 << 24  # bytes; a longer line is a file without line ends, and would fill the memory


class PrepareError(Exception):
    """What the user has to mend, in words that name it."""


class TextOptions(NamedTuple):
    """How a line becomes words. ``language`` None: they are separated by spaces already."""

    language: str | None
    lowercase: bool
    keep_empty: bool


class SplitStats(NamedTuple):
    """Counts of a split as the model sees it; tokens are words and one </s> a line."""

    lines: int
    types: int
    tokens: int
    unk: int


# ---------------------------------------------------------------- reading


def check_input(name: str) -> None:
    """Refuse, before any work is done, what cannot be read as lines of text."""
    if name == STDIN:
        return
    path = Path(name)
    if not path.exists() or path.is_dir():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise PrepareError(f"input: a text file is required, but {name} {kind}")
    if path.is_file():  # reading ahead in a pipe would lose its beginning
        with path.open("rb") as stream:
            if b"\0" in stream.read(8192):
                raise PrepareError(
                    f"input: UTF-8 text is required, but {name} holds zero bytes: compressed, "
                    f"binary or UTF-16 (decompress or convert it and pipe it in as '{STDIN}')"
                )


def open_input(name: str) -> Any:
    """A context manager that gives the file (or standard input) as bytes."""
    if name == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    return open(name, "rb")


def read_lines(name: str) -> Iterator[bytes]:
    """The lines of a file, cut at line feeds only, as fairseq cuts them."""
    with open_input(name) as stream:
        while True:
            line = stream.readline(LINE_LIMIT + 1)
            if len(line) > LINE_LIMIT:
                raise PrepareError(
                    f"input: lines of at most {LINE_LIMIT:,} bytes are required, but {name} has a "
                    "longer one: break it into sentences first (or `fold -s -w 2000` it)"
                )
            if not line:
                return
            yield line


def read_chunks(names: Iterable[str]) -> Iterator[list[bytes]]:
    """Lists of lines of about ``CHUNK_BYTES``."""
    for name in names:
        chunk: list[bytes] = []
        size = 0
        for line in read_lines(name):
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def total_bytes(names: Iterable[str]) -> int | None:
    """The size of all files together; None where one cannot be known (a pipe)."""
    if not all(name != STDIN and os.path.isfile(name) for name in names):
        return None
    return sum(os.path.getsize(name) for name in names)


# ---------------------------------------------------------------- parallel work

_shared: Any = None  # in a worker process: what all its chunks need, sent once


def _start_worker(shared: Any) -> None:
    global _shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _shared = shared


def _work(function: Callable[[Any, list[bytes]], Any], lines: list[bytes]) -> Any:
    return function(_shared, lines)


def _pooled(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    chunks: Iterable[list[bytes]],
    workers: int,
) -> Iterator[tuple[list[bytes], Any]]:
    # Not Pool.imap: it reads its whole input ahead, here gigabytes, and waits for ever
    # for a worker that was killed.
    pending: deque = deque()
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(shared,)) as pool:
        for chunk in chunks:
            pending.append((chunk, pool.submit(_work, function, chunk)))
            if len(pending) > 2 * workers:
                done, future = pending.popleft()
                yield done, future.result()
        for done, future in pending:
            yield done, future.result()


def needed_workers(workers: int, size: int | None) -> int:
    """No more workers than there are chunks of work."""
    return workers if size is None else max(1, min(workers, math.ceil(size / CHUNK_BYTES)))


def map_chunks(
    function: Callable[[Any, list[bytes]], Any],
    shared: Any,
    names: Sequence[str],
    *,
    workers: int,
    label: str,
) -> Iterator[Any]:
    """``function(shared, lines)`` of every chunk of the files, in order, with a progress bar."""
    size = total_bytes(names)
    workers = needed_workers(workers, size)
    chunks = read_chunks(names)
    if workers == 1:
        results = ((chunk, function(shared, chunk)) for chunk in chunks)
    else:
        results = _pooled(function, shared, chunks, workers)
    with tqdm(total=size, desc=label, unit="B", unit_scale=True, disable=None) as progress:
        for chunk, result in results:
            progress.update(sum(map(len, chunk)))
            yield result


# ---------------------------------------------------------------- lines to words


def languages() -> list[str]:
    """The language codes that sacremoses has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    codes = set(NonbreakingPrefixes().available_langs.values())
    return sorted(codes | {"ja", "ko", "cjk"})  # these have rules, but no prefix lists


@functools.lru_cache(maxsize=None)
def tokenizer(language: str) -> Callable[[str], list[str]]:
    """sacremoses' tokeniser, without its XML escapes (``'s``, not ``&apos;s``)."""
    from sacremoses import MosesTokenizer

    return functools.partial(MosesTokenizer(language).tokenize, escape=False)


def tokenize(text: str, language: str) -> list[str]:
    """Words of raw text; an ``<unk>`` that the text has already stays one word."""
    # Not sacremoses' protected_patterns: they glue the word to the full stop behind it,
    # and fail beyond 1,000 a line.
    words: list[str] = []
    for part in re.split(f"({UNK})", text):
        words += [part] if part == UNK else tokenizer(language)(part)
    return words


def sentences(words: list[str]) -> list[list[str]]:
    """The words without <s> and </s>; a line that has them in its middle is cut there.

    fairseq-preprocess ends every line with a </s> of its own, so a </s> that the
    text brings along marks the end of a line. <pad> has no meaning in text: <unk>.
    """
    if SPECIALS.isdisjoint(words):
        return [words] if words else []
    found: list[list[str]] = [[]]
    for word in words:
        if word in (BOS, EOS):
            found.append([])
        else:
            found[-1].append(UNK if word == PAD else word)
    return [sentence for sentence in found if sentence]


def decode(line: bytes) -> tuple[str, bool]:
    """The text of a line, and whether it had to be mended."""
    # A byte order mark can stand at the start of any line once files have been joined.
    try:
        return line.decode("utf-8").lstrip("\ufeff"), False
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").lstrip("\ufeff"), True


def line_words(text: str, options: TextOptions) -> list[str]:
    """The words of one line of text."""
    words = text.split() if options.language is None else tokenize(text, options.language)
    # Afterwards: a capital behind a full stop tells the tokeniser that a sentence ended.
    return [word.lower() for word in words] if options.lowercase else words


def tokenize_chunk(options: TextOptions, lines: list[bytes]) -> tuple[str, Counter]:
    """The tokenised text of some lines, and counts of what was met in them."""
    notes: Counter = Counter(read=len(lines))
    written: list[str] = []
    for line in lines:
        text, mended = decode(line)
        words = line_words(text, options)
        found = sentences(words)
        notes.update(
            bad_utf8=int(mended),
            empty=int(not found),
            cut=max(0, len(found) - 1),
            pad=words.count(PAD),
            usable=len(found),
        )
        written += [" ".join(sentence) + "\n" for sentence in found]
        if options.keep_empty and not found:
            written.append("\n")
    return "".join(written), notes


def tokenize_files(
    names: Sequence[str], target: Path, options: TextOptions, *, workers: int, label: str
) -> Counter:
    """Write the tokenised lines of the files into ``target``; return the counts."""
    notes: Counter = Counter()
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for text, counts in map_chunks(
            tokenize_chunk, options, names, workers=workers, label=f"tokenise {label}"
        ):
            out.write(text)
            notes.update(counts)
    notes["empty_files"] = sum(total_bytes([name]) == 0 for name in names)
    if not notes["usable"]:
        raise PrepareError(
            f"{label}: at least one line with a word is required, but {' '.join(names)} "
            f"has {notes['read']} line(s), none with a word"
        )
    return notes


# ---------------------------------------------------------------- splits


def split_sizes(total: int, proportions: Mapping[str, float]) -> dict[str, int]:
    """``total`` lines shared out: the largest remainders get the lines left by rounding."""
    exact = {split: total * share for split, share in proportions.items()}
    sizes = {split: int(value) for split, value in exact.items()}
    by_remainder = sorted(exact, key=lambda split: sizes[split] - exact[split])
    for split in by_remainder[: total - sum(sizes.values())]:
        sizes[split] += 1
    return sizes


def units(lines: Iterable[str], split_by: str) -> Iterator[list[str]]:
    """What stays together: single lines, or paragraphs with the empty line that ends them."""
    unit: list[str] = []
    for line in lines:
        unit.append(line)
        if split_by != "paragraph" or line == "\n":
            yield unit
            unit = []
    if unit:
        yield unit


def choose_split(left: Mapping[str, int], rng: random.Random | None) -> str:
    """The split of the next unit: the first with room, or one at random by the room left."""
    if rng is None:
        return next(split for split, room in left.items() if room > 0)
    return rng.choices(list(left), [max(0, room) for room in left.values()])[0]


def share_out(
    source: Path,
    targets: Mapping[str, Path],
    sizes: Mapping[str, int],
    *,
    split_by: str,
    seed: int,
    keep_empty: bool,
) -> None:
    """Copy every line of ``source`` into one of the targets, in one pass and in order.

    Drawing each unit with the room that its split has left gives the sizes exactly
    (to a paragraph) without shuffling anything in memory.
    """
    left = dict(sizes)
    rng = None if split_by == "block" else random.Random(seed)
    with contextlib.ExitStack() as stack, source.open(encoding="utf-8", newline="\n") as lines:
        files: dict[str, IO[str]] = {
            split: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            for split, path in targets.items()
        }
        for unit in units(lines, split_by):
            kept = [line for line in unit if keep_empty or line != "\n"]
            if kept:
                split = choose_split(left, rng)
                files[split].writelines(kept)
                left[split] -= len(kept)


# ---------------------------------------------------------------- vocabulary


def count_chunk(_: None, lines: list[bytes]) -> Counter:
    """The words of tokenised lines, counted."""
    return Counter(b"".join(lines).decode("utf-8").split())


def count_words(path: Path, *, workers: int) -> Counter:
    """The words of a tokenised file, counted, without fairseq's own symbols."""
    counts: Counter = Counter()
    for found in map_chunks(count_chunk, None, [str(path)], workers=workers, label="count words"):
        counts.update(found)
    for special in SPECIALS:
        counts.pop(special, None)
    return counts


def cut_vocabulary(
    counts: Mapping[str, int], *, size: int | None = None, min_count: int = 1
) -> list[tuple[str, int]]:
    """The words to keep, commonest first, ties in alphabetical order.

    ``size`` counts </s> and <unk> too, as the sizes in papers do.
    """
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: (-item[1], item[0]))
    if size is not None:
        kept = kept[: size - 2]
    if not kept:
        raise PrepareError(
            f"vocabulary: at least one word is required, but none of the {len(counts):,} types of "
            f"train occurs --min-count {min_count} times"
        )
    return kept


def write_dictionary(path: Path, vocabulary: Sequence[tuple[str, int]], multiple: int) -> None:
    """Write fairseq's dict.txt, filled up to a multiple as fairseq-preprocess does it.

    fairseq itself puts its four symbols in front; naming one of them here would be a
    duplicate to it, or, with its overwrite flag, a second id for the same word.
    """
    known = {word for word, _ in vocabulary}
    made_up = (f"madeupword{i:04d}" for i in range(sys.maxsize))
    fill = -(len(SPECIALS) + len(vocabulary)) % multiple
    padding = [next(word for word in made_up if word not in known) for _ in range(fill)]
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{word} {count}\n" for word, count in vocabulary)
        out.writelines(f"{word} 0\n" for word in padding)


def dictionary_word(line: str, where: str) -> str:
    """The word of one line of a dict.txt."""
    fields = line.rstrip().rsplit(" ", 1)
    if len(fields) == 2 and fields[0].split(" ")[0] in SPECIALS:
        raise PrepareError(
            f"{where}: words other than fairseq's own symbols are required, but this line defines "
            f"{fields[0].split(' ')[0]} again: its text would get another id than fairseq's own"
        )
    if len(fields) != 2 or not fields[1].isdecimal():
        raise PrepareError(f"{where}: '<word> <count>' is required, but came {line.rstrip()!r}")
    return fields[0]


def read_dictionary(path: Path) -> AbstractSet[str]:
    """The words of an existing dict.txt, checked."""
    words = set()
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                where = f"--dict {path}, line {number}"
                word = dictionary_word(line, where)
                if word in words:
                    raise PrepareError(f"{where}: {word!r} is there twice")
                words.add(word)
    except UnicodeDecodeError as error:
        raise PrepareError(f"--dict {path}: UTF-8 is required, but it has {error}") from error
    if not words:
        raise PrepareError(f"--dict {path}: at least one word is required, but it is empty")
    return words


# ---------------------------------------------------------------- what the model sees


def replace_chunk(vocabulary: AbstractSet[str], lines: list[bytes]) -> tuple[str, Counter]:
    """Tokenised lines with <unk> for every word outside the vocabulary, and their word counts."""
    counts: Counter = Counter()
    written = []
    for line in lines:
        words = [word if word in vocabulary else UNK for word in line.decode("utf-8").split()]
        counts.update(words)
        written.append(" ".join(words) + "\n")
    counts[EOS] += len(lines)
    return "".join(written), counts


def replace_rare(
    source: Path, target: Path, vocabulary: AbstractSet[str], *, workers: int, label: str
) -> SplitStats:
    """Write ``source`` as the model is to see it; return its counts."""
    counts: Counter = Counter()
    results = map_chunks(
        replace_chunk, vocabulary, [str(source)], workers=workers, label=f"write {label}"
    )
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for text, found in results:
            out.write(text)
            counts.update(found)
    return SplitStats(counts[EOS], len(counts), sum(counts.values()), counts[UNK])


def binary_bytes(folder: Path) -> int:
    """What fairseq-preprocess has written so far, its workers' parts included."""
    return sum(path.stat().st_size for path in folder.glob("*.bin*") if path.exists())


def run_watched(command: Sequence[str], folder: Path, log: IO[bytes], size: int) -> int:
    """Run a command in ``folder``; its progress is how much of ``size`` bytes ``bin`` has."""
    with subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=subprocess.STDOUT
    ) as process, tqdm(
        total=size, desc="binarise", unit="B", unit_scale=True, disable=None
    ) as progress:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
            with contextlib.suppress(FileNotFoundError):  # a part that was just merged
                progress.update(min(size, binary_bytes(folder / "bin")) - progress.n)
    return process.returncode


def binarise(
    folder: Path, splits: Sequence[str], dictionary: Path, *, workers: int, tokens: int = 0
) -> None:
    """Run fairseq-preprocess on ``folder/text`` into ``folder/bin``, with this Python's fairseq."""
    # Relative paths from inside the folder: fairseq cuts its --validpref at commas.
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source"]
    command += ["--srcdict", str(dictionary.resolve()), "--destdir", "bin"]
    command += ["--workers", str(workers)]
    for split in splits:
        command += [f"--{split}pref", f"text/{split}.txt"]
    # fairseq writes two bytes a token while the vocabulary allows it
    width = 2 if sum(1 for _ in dictionary.open("rb")) + len(SPECIALS) < 65500 else 4
    with tempfile.TemporaryFile() as log:
        status = run_watched(command, folder, log, tokens * width)
        log.seek(0)
        last = "\n".join(log.read().decode("utf-8", "replace").splitlines()[-15:])
    if status:
        raise PrepareError(f"fairseq-preprocess failed (exit status {status}):\n{last}")


# ---------------------------------------------------------------- report

NOTES = {
    "empty": "line(s) without a word",
    "empty_files": "empty input file(s)",
    "bad_utf8": "line(s) with bytes that are not UTF-8, read as U+FFFD",
    "cut": f"line break(s) made at a {BOS} or {EOS} inside a line",
    "pad": f"{PAD} in the text, written as {UNK}",
}


def table(stats: Mapping[str, SplitStats]) -> str:
    """The counts of every split, in columns."""
    rows = [("split", "lines", "types", "tokens", UNK, "rate")]
    for split, found in stats.items():
        counts = tuple(f"{value:,}" for value in found)
        rows.append((split, *counts, f"{found.unk / found.tokens:.2%}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])])
        for row in rows
    )


def remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """What the reader should know about the text, one line each."""
    read = report["read"]
    kept = ", kept" if report["settings"]["keep_empty_lines"] else ", left out"
    yield f"{read['read']:,} line(s) read"
    for name, text in NOTES.items():
        if read.get(name):
            yield f"{read[name]:,} {text}{kept if name == 'empty' else ''}"
    unseen = [s for s, found in report["splits"].items() if found["unk"] and s != "train"]
    if unseen and report["splits"].get("train", {"unk": 1})["unk"] == 0:
        yield (
            f"train has no {UNK}, but {' and '.join(unseen)} have: a model cannot learn to predict "
            "it (cut the vocabulary, for instance with --min-count 2)"
        )


def print_report(report: Mapping[str, Any], out: Path) -> None:
    """Tell the user what was made and where it is."""
    stats = {split: SplitStats(**found) for split, found in report["splits"].items()}
    print(table(stats))
    print(report["vocabulary"])
    for remark in remarks(report):
        print(f"note: {remark}")
    print(f"text: {out / 'text'}")
    if not report["settings"]["text_only"]:
        print(f"binarised data: {out / 'bin'}")


# ---------------------------------------------------------------- the result folder


def check_output(out: Path, overwrite: bool) -> None:
    """Refuse to write where something is already."""
    if out.exists() and not out.is_dir():
        raise PrepareError(f"--out: a folder is required, but {out} is a file")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise PrepareError(
            f"--out: an empty or new folder is required, but {out} has data in it "
            "(--overwrite replaces its text, bin and report.json)"
        )


@contextlib.contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """A scratch folder on the same disk as ``out``, gone afterwards whatever happens."""
    parent = out if out.exists() else out.parent  # out may be a disk of its own
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=parent) as scratch:
        yield Path(scratch)


def install(result: Path, out: Path, scratch: Path) -> None:
    """Move the finished result to its place."""
    if not out.exists():
        result.rename(out)
        return
    replaced = scratch / "replaced"
    replaced.mkdir()
    for entry in sorted(result.iterdir()):
        if (out / entry.name).exists():
            (out / entry.name).rename(replaced / entry.name)
        entry.rename(out / entry.name)


# ---------------------------------------------------------------- the whole


def text_options(args: argparse.Namespace) -> TextOptions:
    """How lines become words. Paragraphs can only be told apart while empty lines are there."""
    language = None if args.tokenized else args.language
    keep_empty = args.keep_empty_lines or (bool(args.input) and args.split_by == "paragraph")
    return TextOptions(language, args.lowercase, keep_empty)


def split_input(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Path], Counter]:
    """Tokenise ``--input`` and share its lines out; the tokenised file of every split."""
    whole = scratch / "input"
    notes = tokenize_files(
        args.input, whole, text_options(args), workers=args.workers, label="--input"
    )
    total = notes["usable"] + (notes["empty"] if args.keep_empty_lines else 0)
    proportions = {split: share for split, share in zip(SPLITS, args.split) if share}
    files = {split: scratch / split for split in proportions}
    share_out(
        whole,
        files,
        split_sizes(total, proportions),
        split_by=args.split_by,
        seed=args.seed,
        keep_empty=args.keep_empty_lines,
    )
    whole.unlink()
    for split, path in files.items():
        if not path.stat().st_size:
            raise PrepareError(
                f"--split: at least one line for {split} is required, but {total} usable line(s) "
                f"in {' '.join(args.input)} by {args.split_by} leave it none"
            )
    return files, notes


def given_splits(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, Path], Counter]:
    """Tokenise ``--train``, ``--valid`` and ``--test``; the tokenised file of every split."""
    files: dict[str, Path] = {}
    notes: Counter = Counter()
    for split in SPLITS:
        names = getattr(args, split)
        if names:
            files[split] = scratch / split
            notes += tokenize_files(
                names,
                files[split],
                text_options(args),
                workers=args.workers,
                label=f"--{split}",
            )
    return files, notes


def make_vocabulary(
    args: argparse.Namespace, files: Mapping[str, Path], dictionary: Path
) -> tuple[AbstractSet[str], str]:
    """Write ``dictionary``; return its words and a line about them."""
    if args.dict:
        words = read_dictionary(args.dict)
        shutil.copyfile(args.dict, dictionary)
        return words, f"vocabulary: {len(words):,} words of {args.dict}"
    counts = count_words(files["train"], workers=args.workers)
    vocabulary = cut_vocabulary(counts, size=args.vocab_size, min_count=args.min_count)
    write_dictionary(dictionary, vocabulary, args.padding_factor)
    summary = (
        f"vocabulary: {len(vocabulary) + 2:,} types with {EOS} and {UNK} "
        f"({len(vocabulary):,} of the {len(counts):,} words of train)"
    )
    return {word for word, _ in vocabulary}, summary


def prepare(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Make the result in ``scratch / "result"``; return the report."""
    result = scratch / "result"
    (result / "text").mkdir(parents=True)
    files, notes = (split_input if args.input else given_splits)(args, scratch)
    dictionary = scratch / "dict.txt"
    words, vocabulary = make_vocabulary(args, files, dictionary)
    stats = {}
    for split, source in files.items():
        target = result / "text" / f"{split}.txt"
        stats[split] = replace_rare(source, target, words, workers=args.workers, label=split)
        source.unlink()
    if args.text_only:
        shutil.copyfile(dictionary, result / "text" / "dict.txt")
    else:
        size = total_bytes([str(path) for path in (result / "text").iterdir()])
        workers = needed_workers(args.workers, size)
        tokens = sum(found.tokens for found in stats.values())
        binarise(result, list(files), dictionary, workers=workers, tokens=tokens)
    report = {
        "settings": {name: value for name, value in vars(args).items() if name != "overwrite"},
        "read": dict(notes),
        "vocabulary": vocabulary,
        "splits": {split: found._asdict() for split, found in stats.items()},
    }
    text = json.dumps(report, indent=1, default=str, ensure_ascii=False)
    (result / "report.json").write_text(text + "\n", encoding="utf-8")
    return report


# ---------------------------------------------------------------- command line


def at_least(minimum: int) -> Callable[[str], int]:
    """An argparse type: whole numbers from ``minimum``."""

    def parse(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"a whole number of at least {minimum} is required, but came {text!r}"
            )
        return int(text)

    return parse


def usable_cpus() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "text", "UTF-8, a sentence a line; '-' is standard input. Either files for each split:"
    )
    for split in SPLITS:
        group.add_argument(f"--{split}", nargs="+", metavar="FILE", help=f"text for {split}")
    group = parser.add_argument_group("or one text to split")
    group.add_argument("--input", nargs="+", metavar="FILE", help="text to split")
    group.add_argument(
        "--split",
        nargs=3,
        type=float,
        metavar=("TRAIN", "VALID", "TEST"),
        help="their shares of the lines of --input, adding up to 1; a split with share 0 is not "
        f"made (default: {' '.join(map(str, DEFAULT_SPLIT))})",
    )
    group.add_argument(
        "--split-by",
        choices=("block", "paragraph", "line"),
        default="block",
        help="block (default): train is the first part of the text, test the last, so that no "
        "valid or test line stood beside a train line; paragraph: paragraphs (ended by an empty "
        "line) drawn at random; line: lines drawn at random, for text whose lines have nothing to "
        "do with each other. The order of the text stays within a split",
    )
    group.add_argument(
        "--seed", type=int, default=1, help="of those random draws (default: %(default)s)"
    )


def add_word_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("words")
    group.add_argument(
        "--language",
        default="en",
        help="whose rules sacremoses tokenises by (default: %(default)s). Chinese and Japanese "
        "text is not cut into words: segment it first and use --tokenized",
    )
    group.add_argument(
        "--tokenized",
        action="store_true",
        help=f"the words are separated by spaces already; {BOS} and {EOS} at the ends of lines "
        "are dropped (fairseq adds its own)",
    )
    group.add_argument("--lowercase", action="store_true", help="lower-case everything")
    group.add_argument(
        "--keep-empty-lines",
        action="store_true",
        help=f"keep lines without a word (each is one {EOS}); they are left out otherwise",
    )


def add_vocabulary_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "vocabulary", f"From train; other words are written as {UNK}. Default: all words of train."
    )
    group.add_argument(
        "--vocab-size",
        type=at_least(3),
        metavar="N",
        help=f"keep the N commonest types, {EOS} and {UNK} among them",
    )
    group.add_argument(
        "--min-count",
        type=at_least(1),
        default=1,
        metavar="N",
        help="keep words that occur at least N times (default: %(default)s)",
    )
    group.add_argument(
        "--dict",
        type=Path,
        metavar="FILE",
        help="take the vocabulary of this dict.txt instead (to prepare text for a trained model)",
    )
    group.add_argument(
        "--padding-factor",
        type=at_least(1),
        default=8,
        metavar="N",
        help="fill the dictionary up to a multiple of N with made-up words, as fairseq-preprocess "
        "does for the sake of tensor cores; 1: no filling (default: %(default)s)",
    )


def make_parser() -> argparse.ArgumentParser:
    """The command line of this script."""
    parser = argparse.ArgumentParser(
        description="Turn text into the binarised data that fairseq's language models train on: "
        "tokenise, split, cut the vocabulary, run fairseq-preprocess."
    )
    add_input_options(parser)
    add_word_options(parser)
    add_vocabulary_options(parser)
    group = parser.add_argument_group("result")
    group.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="gets text/, bin/ and report.json",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace those three in a FOLDER that has data in it",
    )
    group.add_argument(
        "--text-only",
        action="store_true",
        help="write the text (and dict.txt beside it) without running fairseq-preprocess",
    )
    group.add_argument(
        "--workers",
        type=at_least(1),
        default=usable_cpus(),
        metavar="N",
        help="processes (default: the processors there are)",
    )
    return parser


def check_split(split: Sequence[float]) -> None:
    """Refuse shares that are none."""
    if not split[0] > 0 or min(split) < 0 or not math.isclose(sum(split), 1, abs_tol=1e-6):
        raise PrepareError(
            "--split: a share above 0 for train and three that add up to 1 are required, but came "
            f"{' '.join(map(str, split))} (sum {sum(split):g})"
        )


def check_sources(args: argparse.Namespace) -> None:
    """Refuse combinations of inputs that do not say what belongs to which split."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split)}
    if args.input and given:
        raise PrepareError(f"--input: cannot be combined with --{' --'.join(given)}")
    if args.split and not args.input:
        raise PrepareError("--split: --input is required with it, but was not given")
    if not args.input and not given:
        raise PrepareError("--train or --input is required, but neither was given")
    if not args.input and not args.train and not args.dict:
        raise PrepareError("--train (or the vocabulary of an earlier one, --dict) is required")
    names = [name for files in ([args.input or []] + list(given.values())) for name in files]
    if names.count(STDIN) > 1:
        raise PrepareError(f"input: standard input ('{STDIN}') can be read only once")
    for name in names:
        check_input(name)


def check_requirements(args: argparse.Namespace) -> None:
    """Find out before the work whether what it needs is there."""
    if args.dict and (args.vocab_size or args.min_count > 1):
        raise PrepareError("--dict: cannot be combined with --vocab-size or --min-count")
    if args.dict and not args.dict.is_file():
        raise PrepareError(f"--dict: a dict.txt is required, but {args.dict} is not a file")
    if not args.tokenized:
        if importlib.util.find_spec("sacremoses") is None:
            raise PrepareError(
                "sacremoses, which tokenises, is missing: pip install 'fairseq-bnce[text]' "
                "(or give --tokenized text)"
            )
        if args.language not in languages():
            raise PrepareError(
                f"--language: one of {' '.join(languages())} is required, but came {args.language}"
            )
    if not args.text_only and importlib.util.find_spec("fairseq_cli") is None:
        raise PrepareError(
            "fairseq, which binarises, is missing: pip install 'fairseq-bnce[fairseq]' "
            "(or ask for --text-only)"
        )


def run(args: argparse.Namespace) -> None:
    """Check everything, make the result, move it to its place and report."""
    check_sources(args)
    args.split = args.split or list(DEFAULT_SPLIT)
    check_split(args.split)
    check_requirements(args)
    out = args.out.resolve()
    check_output(out, args.overwrite)
    with staging_folder(out) as scratch:
        report = prepare(args, scratch)
        install(scratch / "result", out, scratch)
    print_report(report, args.out)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 with a message on standard error, or 130 if interrupted."""
    args = make_parser().parse_args(argv)
    try:
        run(args)
    except (PrepareError, OSError) as error:
        print(f"prepare_text.py: error: {error}", file=sys.stderr)
        return 1
    except BrokenProcessPool:
        print(
            "prepare_text.py: error: a worker process was killed (out of memory? try fewer "
            "--workers)",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
