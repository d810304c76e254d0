"""Turn text into the data that fairseq trains on.

Text is streamed: only word counts are held in memory. Nothing here imports torch or fairseq.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, AbstractSet, Callable, Iterable, Iterator, Mapping, Sequence

from tqdm import tqdm

from fairseq_bnce.data.results import Report, write_report
from fairseq_bnce.errors import InputError
from fairseq_bnce.text import training_text
from fairseq_bnce.text.reading import BOM, TextLines
from fairseq_bnce.text.tokens import BOS, EOS, PAD, SPECIALS, UNK, check_language
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import say

SPLITS = ("train", "valid", "test")
DEFAULT_SPLIT = (0.9, 0.05, 0.05)
CHUNK = 1000  # lines that a process tokenises at a time
BYTES_PER_WORKER = 1 << 18  # another process takes as long to start as to read fewer
LOOKS = {  # how lines may look, for the report's warnings
    "escaped": re.compile("&(?:apos|quot);"),
    "of_a_page": re.compile(r"^.{60,80}$"),
    "ended": re.compile(r"""[.!?\u2026]["'\u2019\u201d\u00bb)\]\s]*$"""),
}


@dataclasses.dataclass
class Settings:
    """The flags of prepare-text that change its result, in the order of report.json."""

    train: list[str] | None = None
    valid: list[str] | None = None
    test: list[str] | None = None
    input: list[str] | None = None
    split: Sequence[float] = DEFAULT_SPLIT
    split_by: str = "block"
    seed: int = 1
    language: str = "en"
    tokenized: bool = False
    normalize: str | None = None
    lowercase: bool = False
    keep_empty_lines: bool = False
    vocab_size: int | None = None
    min_count: int = 1
    dict: Path | None = None
    padding_factor: int = 8
    out: Path = Path()
    text_only: bool = False
    workers: int = 1

    def all_files(self) -> list[str]:
        """Return the names of all texts that are read."""
        return [name for split in ("input", *SPLITS) for name in getattr(self, split) or ()]

    def check(self) -> None:
        """Raise InputError for values that cannot be followed, whatever the text."""
        is_whole = math.isclose(sum(self.split), 1, abs_tol=1e-6)
        if not is_whole or self.split[0] <= 0 or min(self.split) < 0:
            required = "a share above 0 for train, and three shares that add up to 1"
            raise InputError(f"--split: required {required}, got {self.split}")
        if not self.tokenized:
            check_language("--language", self.language)
        if not self.text_only:
            importlib.import_module("fairseq_cli")  # fairseq-preprocess binarises


def prepare(args: Settings, scratch: Path, made: TrainingText | None = None) -> Report:
    """Make the result in ``scratch / "result"`` and return its report.

    Args:
        args: checked settings.
        scratch: an empty folder.
        made: how the text was cut into words, if another program has done this.

    Raises:
        InputError: for text or settings without a result.
    """
    tokenizer, language = (NONE, None) if args.tokenized else (SACREMOSES, args.language)
    own = TrainingText(tokenizer, language, args.lowercase, normalize=args.normalize)
    made = made or own
    known = read_dictionary(args.dict, made) if args.dict else None  # before hours of work
    result, dictionary = scratch / "result", scratch / "dict.txt"
    (result / "text").mkdir(parents=True)
    notes: Counter[str] = Counter()
    for name in ("input", *SPLITS):
        if getattr(args, name):
            notes.update(_tokenize(args, name, scratch / name, own))
    if args.input:
        lines = notes["usable"] + (notes["empty"] if args.keep_empty_lines else 0)
        _split(args, scratch, lines)
    if known is None or args.dict is None:
        known, summary = _make_vocabulary(args, scratch / "train", dictionary)
    else:
        summary = f"vocabulary: {len(known):,} words of {args.dict}"
        shutil.copyfile(args.dict, dictionary)
    splits = {
        split: _write_text(scratch / split, result / "text" / f"{split}.txt", known)
        for split in SPLITS
        if (scratch / split).exists()
    }
    if args.text_only:
        shutil.copyfile(dictionary, result / "text" / "dict.txt")
    else:
        _binarise(result, splits, dictionary, args.workers)
    training_text.write(result / ("text" if args.text_only else "bin"), made)
    report: Report = {"settings": dict(vars(args)), "read": dict(notes)}
    report.update(vocabulary=summary, splits=splits)
    write_report(result, report)
    return report


# ---------------------------------------------------------------- words


def _tokenize(args: Settings, split: str, path: Path, how: TrainingText) -> Counter[str]:
    """Write the tokenised lines of a split's files; return counts of what was read."""
    names = getattr(args, split)
    text = TextLines(names)
    # Empty lines end paragraphs: they have to stay until the text is split.
    keep_empty = args.keep_empty_lines or args.split_by == "paragraph"
    function = partial(tokenize_lines, to_words=how.words, keep_empty=keep_empty)
    notes: Counter[str] = Counter()
    with _open(path, "w") as out:
        for lines, counts in _map_lines(function, text, args.workers, f"tokenise --{split}"):
            out.write(lines)
            notes.update(counts)
    notes["bad_utf8"] = text.bad_lines
    notes["empty_files"] = sum(os.path.isfile(n) and not os.path.getsize(n) for n in names)
    return notes


def _map_lines(function: Callable, text: TextLines, workers: int, label: str) -> Iterator:
    """Yield ``function(lines)`` for each chunk of lines, in the order of the text."""
    workers = _max_workers(workers, text.total_bytes)
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the parent ends
    bar = tqdm(total=text.total_bytes, desc=label, unit="B", unit_scale=True, disable=None)
    with bar, ProcessPoolExecutor(workers, initializer=ignore_interrupts) as pool:
        map_chunks = pool.map if workers > 1 else map
        # pool.map reads at once all that it is given.
        for chunks in _batches(_batches(text, CHUNK), 8 * workers):
            yield from map_chunks(function, chunks)
            bar.update(text.read_bytes - bar.n)


def _batches(items: Iterable, size: int) -> Iterator[list]:
    items = iter(items)
    return iter(lambda: list(itertools.islice(items, size)), [])


def _max_workers(workers: int, size: int | None) -> int:
    return workers if size is None else min(workers, 1 + size // BYTES_PER_WORKER)


def _open(path: Path, mode: str = "r") -> IO[str]:
    return path.open(mode, encoding="utf-8", newline="\n")


def tokenize_lines(
    lines: list[str], *, to_words: Callable[[str], list[str]], keep_empty: bool
) -> tuple[str, Counter[str]]:
    """Tokenise lines of text.

    Args:
        lines: the text.
        to_words: returns the words of a line.
        keep_empty: whether to keep lines without a word.

    Returns:
        the tokenised text, and counts of what was read.
    """
    notes: Counter[str] = Counter(read=len(lines))
    written: list[str] = []
    for line in lines:
        words = to_words(line)
        pad = words.count(PAD)
        if pad:
            words = [UNK if word == PAD else word for word in words]
        # fairseq adds its own markers.
        groups = itertools.groupby(words, {BOS, EOS}.__contains__)
        sentences = [" ".join(group) for is_marker, group in groups if not is_marker]
        empty, cut = int(not sentences), max(0, len(sentences) - 1)
        notes.update(empty=empty, cut=cut, pad=pad, usable=len(sentences))
        line = line.strip()
        notes.update(name for name, pattern in LOOKS.items() if pattern.search(line))
        written += sentences or [""] * keep_empty
    return "".join(f"{line}\n" for line in written), notes


# ---------------------------------------------------------------- splits


def _split(args: Settings, folder: Path, total: int) -> None:
    """Divide the ``total`` lines of ``folder / "input"`` into a file for each split."""
    left = split_sizes(total, {split: share for split, share in zip(SPLITS, args.split) if share})
    rng = None if args.split_by == "block" else random.Random(args.seed)
    split = ""
    with contextlib.ExitStack() as stack:
        out = {name: stack.enter_context(_open(folder / name, "w")) for name in left}
        for line in stack.enter_context(_open(folder / "input")):
            if args.keep_empty_lines or line != "\n":
                split = split or _choose_split(left, rng)
                left[split] -= 1
                out[split].write(line)
            if args.split_by != "paragraph" or line == "\n":
                split = ""  # the next line, or paragraph, chooses again


def split_sizes(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Divide ``total`` lines by ``shares``; the largest remainders get the lines left over."""
    whole = sum(shares.values())  # about 1; of millions of lines, the difference is several
    exact = {split: total * share / whole for split, share in shares.items()}
    sizes = {split: int(value) for split, value in exact.items()}
    by_remainder = sorted(exact, key=lambda split: sizes[split] - exact[split])
    for split in by_remainder[: total - sum(sizes.values())]:
        sizes[split] += 1
    return sizes


def _choose_split(left: Mapping[str, int], rng: random.Random | None) -> str:
    """Choose the first split with room, or draw one in proportion to the room left."""
    if rng is None:
        return next(split for split, room in left.items() if room > 0)
    return rng.choices(list(left), [max(0, room) for room in left.values()])[0]


# ---------------------------------------------------------------- vocabulary


def _make_vocabulary(args: Settings, train: Path, path: Path) -> tuple[AbstractSet[str], str]:
    """Write a dict.txt, sorted and filled up as by fairseq-preprocess.

    Returns:
        its words, and a line about them.
    """
    counts: Counter[str] = Counter()
    with _open(train) as lines:
        for line in lines:
            counts.update(line.split())
    del counts[UNK]
    kept = [(word, count) for word, count in counts.items() if count >= args.min_count]
    kept.sort(key=lambda item: (-item[1], item[0]))
    if args.vocab_size:
        kept = kept[: args.vocab_size - 2]  # without </s> and <unk>
    known = {word for word, _ in kept}
    names = map("madeupword{:04d}".format, itertools.count())
    new_names = (name for name in names if name not in known)
    padding = -(len(SPECIALS) + len(kept)) % args.padding_factor
    with _open(path, "w") as out:
        out.writelines(f"{word} {count}\n" for word, count in kept)
        out.writelines(f"{name} 0\n" for name in itertools.islice(new_names, padding))
    of_train = f"{len(kept):,} of the {len(counts):,} words of train"
    return known, f"vocabulary: {len(kept) + 2:,} types with {EOS} and {UNK} ({of_train})"


def read_dictionary(path: Path, made: TrainingText) -> AbstractSet[str]:
    """Read the words of a dict.txt; warn if its text was made in another way.

    Raises:
        InputError: for bytes that are not UTF-8, a byte order mark, or a line that fairseq would
            refuse.
    """
    earlier = training_text.read(path.parent)
    if earlier not in (None, made):
        say(f"warning: for --dict {path}, {earlier}; here {made}")
    words = set()
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        text = BOM
    if text.startswith(BOM):  # fairseq would read it as a part of the first word
        required = "UTF-8 without a byte order mark"
        raise InputError(f"--dict {path}: required {required}, got other bytes")
    for number, line in enumerate(text.splitlines() or [""], 1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdecimal() or word in words or word in SPECIALS:
            required = "'<word> <count>', each word once and none of fairseq's own symbols"
            raise InputError(f"--dict {path}, line {number}: required {required}, got {line!r}")
        words.add(word)
    return words


def _write_text(tokenized: Path, text: Path, vocabulary: AbstractSet[str]) -> dict[str, int]:
    """Write a split as a model sees it, with <unk> for rare words; return its counts.

    Tokens are words and one </s> a line.
    """
    counts: Counter[str] = Counter()
    with _open(tokenized) as lines, _open(text, "w") as out:
        for line in lines:
            words = [word if word in vocabulary else UNK for word in line.split()]
            counts.update([*words, EOS])
            out.write(" ".join(words) + "\n")
    if not counts:
        split = tokenized.name
        raise InputError(f"--{split}, --split: required lines with words for {split}, got none")
    report = {"lines": counts[EOS], "types": len(counts), "tokens": sum(counts.values())}
    return {**report, "unk": counts[UNK]}


# ---------------------------------------------------------------- binarising


def _binarise(folder: Path, splits: Iterable[str], dictionary: Path, workers: int) -> None:
    """Run fairseq-preprocess on ``folder/text``; it writes ``folder/bin``."""
    size = sum(path.stat().st_size for path in (folder / "text").iterdir())
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source"]
    command += ["--srcdict", str(dictionary.resolve()), "--destdir", "bin"]
    command += ["--workers", str(_max_workers(workers, size))]
    for split in splits:  # relative paths, since fairseq splits --validpref at commas
        command += [f"--{split}pref", f"text/{split}.txt"]
    pipe = subprocess.PIPE
    done = subprocess.run(command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = "\n".join(done.stdout.decode("utf-8", "replace").splitlines()[-15:])
        raise InputError(f"fairseq-preprocess failed (exit status {done.returncode}):\n{last}")
