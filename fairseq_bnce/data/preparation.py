"""Turn text into the data that fairseq trains on.

Text is streamed: only word counts are held in memory. Nothing here imports torch or fairseq.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import AbstractSet, Any, Iterable, Iterator, Mapping, Sequence, TextIO

from fairseq_bnce.data.parallel import map_lines, max_workers
from fairseq_bnce.data.report import PAGE, SplitStats, write_report
from fairseq_bnce.errors import InputError
from fairseq_bnce.text import training_text
from fairseq_bnce.text.reading import TextLines, strip_bom
from fairseq_bnce.text.tokens import BOS, EOS, PAD, SPECIALS, UNK, words_of
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import say

SPLITS = ("train", "valid", "test")
DEFAULT_SPLIT = (0.9, 0.05, 0.05)
_ESCAPE = re.compile("&(?:apos|quot);")
_SENTENCE_END = re.compile(r"""[.!?\u2026]["'\u2019\u201d\u00bb)\]\s]*$""")
_NOTES = ("read", "bad_utf8", "empty", "cut", "pad", "usable")
_UNREPORTED = ("overwrite", "command", "run")  # settings that do not change the result


def prepare(
    args: argparse.Namespace, scratch: Path, made: TrainingText | None = None
) -> dict[str, Any]:
    """Make the result in ``scratch / "result"`` and return its report.

    Args:
        args: the settings of prepare-text.
        scratch: an empty folder.
        made: how the text was cut into words, if another program has done this.

    Raises:
        InputError: for text or settings without a result.
    """
    if args.input:
        args.split = args.split or list(DEFAULT_SPLIT)
        args.split_by = args.split_by or "block"
    if made is None:
        tokenizer, language = (NONE, None) if args.tokenized else (SACREMOSES, args.language)
        made = TrainingText(tokenizer, language, args.lowercase)
    if args.dict:
        _warn_of_other_words(args.dict, made)
    result, dictionary = scratch / "result", scratch / "dict.txt"
    (result / "text").mkdir(parents=True)
    files, notes = _tokenized_splits(args, scratch)
    words, vocabulary = _make_vocabulary(args, files, dictionary)
    stats = {}
    for split, source in files.items():
        stats[split] = _replace_rare_words(source, result / "text" / f"{split}.txt", words)
        source.unlink()
    if args.text_only:
        shutil.copyfile(dictionary, result / "text" / "dict.txt")
    else:
        _binarise(result, list(files), dictionary, args.workers)
    training_text.write(result / ("text" if args.text_only else "bin"), made)
    report = {
        "settings": {name: value for name, value in vars(args).items() if name not in _UNREPORTED},
        "read": dict(notes),
        "vocabulary": vocabulary,
        "splits": {split: found._asdict() for split, found in stats.items()},
    }
    write_report(result, report)
    return report


# ---------------------------------------------------------------- words


def _tokenized_splits(
    args: argparse.Namespace, folder: Path
) -> tuple[dict[str, Path], Counter[str]]:
    """Tokenise all input; return the file of each split, and counts of what was read."""
    notes: Counter[str] = Counter()
    files = {}
    for split in ("input",) if args.input else SPLITS:
        if getattr(args, split):
            files[split] = folder / split
            # update() keeps zero counts, += does not.
            notes.update(_tokenize(args, split, files[split]))
    return (_split_lines(args, files["input"], notes) if args.input else files), notes


def _tokenize(args: argparse.Namespace, split: str, target: Path) -> Counter[str]:
    """Write the tokenised lines of a split's files; return counts of what was read."""
    names = getattr(args, split)
    text = TextLines(names)
    # Empty lines end paragraphs: they have to stay until the text is split.
    keep_empty = args.keep_empty_lines or bool(args.input) and args.split_by == "paragraph"
    function = functools.partial(
        tokenize_lines,
        language=None if args.tokenized else args.language,
        lowercase=args.lowercase,
        keep_empty=keep_empty,
    )
    notes: Counter[str] = Counter(dict.fromkeys(_NOTES, 0))
    with _open_to_write(target) as out:
        for found, counts in map_lines(
            function, text, workers=args.workers, label=f"tokenise --{split}"
        ):
            out.write(found)
            notes.update(counts)
    notes["bad_utf8"] = text.bad_lines
    notes["empty_files"] = sum(os.path.isfile(n) and not os.path.getsize(n) for n in names)
    if not notes["usable"]:
        raise InputError(
            f"--{split}: at least one line with a word is required, but {' '.join(names)} "
            f"has {notes['read']} line(s), none with a word"
        )
    return notes


def tokenize_lines(
    lines: list[str], *, language: str | None, lowercase: bool, keep_empty: bool
) -> tuple[str, Counter[str]]:
    """Tokenise lines of text.

    Args:
        lines: the text.
        language: selects the rules of sacremoses. None: spaces separate the words already.
        lowercase: whether to lower-case all words.
        keep_empty: whether to keep lines without a word.

    Returns:
        the tokenised text, and counts of what was read.
    """
    notes: Counter[str] = Counter(read=len(lines))
    written: list[str] = []
    for line in lines:
        words = words_of(line, language, lowercase)
        sentences = split_at_markers(words)
        notes.update(
            empty=int(not sentences),
            cut=max(0, len(sentences) - 1),
            pad=words.count(PAD),
            usable=len(sentences),
        )
        line = line.strip()
        looks = {
            "escaped": _ESCAPE.search(line),
            "of_a_page": len(line) in PAGE,
            "ended": _SENTENCE_END.search(line),
        }
        notes.update(name for name, is_so in looks.items() if is_so)
        written += [" ".join(sentence) + "\n" for sentence in sentences]
        if keep_empty and not sentences:
            written.append("\n")
    return "".join(written), notes


def split_at_markers(words: list[str]) -> list[list[str]]:
    """Split a line at each <s> and </s>, since fairseq adds its own; write <pad> as <unk>."""
    if SPECIALS.isdisjoint(words):
        return [words] if words else []
    found: list[list[str]] = [[]]
    for word in words:
        if word in (BOS, EOS):
            found.append([])
        else:
            found[-1].append(UNK if word == PAD else word)
    return [sentence for sentence in found if sentence]


def _open_to_write(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")


def _open_to_read(path: Path) -> TextIO:
    return path.open(encoding="utf-8", newline="\n")


# ---------------------------------------------------------------- splits


def _split_lines(
    args: argparse.Namespace, source: Path, notes: Mapping[str, int]
) -> dict[str, Path]:
    """Copy the lines of ``--input`` to the files of the splits, in one pass and in order."""
    total = notes["usable"] + (notes["empty"] if args.keep_empty_lines else 0)
    left = split_sizes(total, {split: share for split, share in zip(SPLITS, args.split) if share})
    files = {split: source.with_name(split) for split in left}
    rng = None if args.split_by == "block" else random.Random(args.seed)
    with contextlib.ExitStack() as stack, _open_to_read(source) as lines:
        out = {split: stack.enter_context(_open_to_write(path)) for split, path in files.items()}
        for unit in _units(lines, args.split_by):
            kept = [line for line in unit if args.keep_empty_lines or line != "\n"]
            if kept:
                split = _choose_split(left, rng)
                out[split].writelines(kept)
                left[split] -= len(kept)
    source.unlink()
    for split, path in files.items():
        if not path.stat().st_size:
            raise InputError(
                f"--split: at least one line for {split} is required, but {total} usable line(s) "
                f"in {' '.join(args.input)} by {args.split_by} leave it none"
            )
    return files


def split_sizes(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Divide ``total`` lines by ``shares``; the largest remainders get the lines left over."""
    whole = sum(shares.values())  # about 1; of millions of lines, the difference is several
    exact = {split: total * share / whole for split, share in shares.items()}
    sizes = {split: int(value) for split, value in exact.items()}
    by_remainder = sorted(exact, key=lambda split: sizes[split] - exact[split])
    for split in by_remainder[: total - sum(sizes.values())]:
        sizes[split] += 1
    return sizes


def _units(lines: Iterable[str], split_by: str) -> Iterator[list[str]]:
    """Yield what stays together: single lines, or paragraphs with their final empty line."""
    unit: list[str] = []
    for line in lines:
        unit.append(line)
        if split_by != "paragraph" or line == "\n":
            yield unit
            unit = []
    if unit:
        yield unit


def _choose_split(left: Mapping[str, int], rng: random.Random | None) -> str:
    """Choose the first split with room, or draw one in proportion to the room left."""
    if rng is None:
        return next(split for split, room in left.items() if room > 0)
    return rng.choices(list(left), [max(0, room) for room in left.values()])[0]


# ---------------------------------------------------------------- vocabulary


def _warn_of_other_words(dictionary: Path, made: TrainingText) -> None:
    earlier = training_text.read(dictionary.parent)
    if earlier is not None and earlier != made:
        say(f"warning: for --dict {dictionary}, {earlier}; here {made}")


def _make_vocabulary(
    args: argparse.Namespace, files: Mapping[str, Path], dictionary: Path
) -> tuple[AbstractSet[str], str]:
    """Write ``dictionary``; return its words and a line about them."""
    if args.dict:
        words = read_dictionary(args.dict)
        shutil.copyfile(args.dict, dictionary)
        return words, f"vocabulary: {len(words):,} words of {args.dict}"
    counts: Counter[str] = Counter()
    with _open_to_read(files["train"]) as lines:
        for line in lines:
            counts.update(line.split())
    for special in SPECIALS:
        counts.pop(special, None)
    vocabulary = cut_vocabulary(counts, size=args.vocab_size, min_count=args.min_count)
    write_dictionary(dictionary, vocabulary, args.padding_factor)
    summary = (
        f"vocabulary: {len(vocabulary) + 2:,} types with {EOS} and {UNK} "
        f"({len(vocabulary):,} of the {len(counts):,} words of train)"
    )
    return {word for word, _ in vocabulary}, summary


def cut_vocabulary(
    counts: Mapping[str, int], *, size: int | None = None, min_count: int = 1
) -> list[tuple[str, int]]:
    """Return the words to keep: the commonest first, ties in alphabetical order.

    ``size`` includes </s> and <unk>, as the sizes in papers do.
    """
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: (-item[1], item[0]))
    if size is not None:
        kept = kept[: size - 2]
    if not kept:
        raise InputError(
            f"vocabulary: at least one word is required, but none of the {len(counts):,} types of "
            f"train occurs --min-count {min_count} times"
        )
    return kept


def write_dictionary(path: Path, vocabulary: Sequence[tuple[str, int]], multiple: int) -> None:
    """Write a dict.txt, filled up to a multiple as fairseq-preprocess does.

    fairseq puts its own four symbols in front.
    """
    known = {word for word, _ in vocabulary}
    fill = -(len(SPECIALS) + len(vocabulary)) % multiple
    names = (f"madeupword{i:04d}" for i in itertools.count())
    padding = itertools.islice((name for name in names if name not in known), fill)
    with _open_to_write(path) as out:
        out.writelines(f"{word} {count}\n" for word, count in vocabulary)
        out.writelines(f"{word} 0\n" for word in padding)


def read_dictionary(path: Path) -> AbstractSet[str]:
    """Read the words of a dict.txt.

    Raises:
        InputError: naming a line that fairseq would refuse, or would read as another word.
    """
    required = (
        "lines '<word> <count>' in UTF-8, with each word once, none of fairseq's own symbols, and "
        "no byte order mark"
    )
    words = set()
    try:
        with path.open(encoding="utf-8") as file:
            lines = list(file) or [""]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--dict {path}: required {required}, got: {error}") from error
    for number, line in enumerate(lines, 1):
        word, _, count = line.rstrip().rpartition(" ")
        is_marked = number == 1 and strip_bom(word) != word
        is_known = word in words or word.split(" ")[0] in SPECIALS
        if not word or is_known or is_marked or not count.isdecimal():
            raise InputError(
                f"--dict {path}, line {number}: required {required}, got {line.rstrip()!r}"
            )
        words.add(word)
    return words


def _replace_rare_words(source: Path, target: Path, vocabulary: AbstractSet[str]) -> SplitStats:
    """Write a split as the model will see it, with <unk> for other words; return its counts."""
    counts: Counter[str] = Counter()
    with _open_to_read(source) as lines, _open_to_write(target) as out:
        for line in lines:
            words = [word if word in vocabulary else UNK for word in line.split()]
            counts.update(words)
            counts[EOS] += 1
            out.write(" ".join(words) + "\n")
    return SplitStats(counts[EOS], len(counts), sum(counts.values()), counts[UNK])


# ---------------------------------------------------------------- binarising


def _binarise(folder: Path, splits: Sequence[str], dictionary: Path, workers: int) -> None:
    """Run fairseq-preprocess on ``folder/text``; it writes ``folder/bin``."""
    # The paths are relative to the folder, since fairseq splits --validpref at commas.
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source"]
    command += ["--srcdict", str(dictionary.resolve()), "--destdir", "bin"]
    size = sum(path.stat().st_size for path in (folder / "text").iterdir())
    command += ["--workers", str(max_workers(workers, size))]
    for split in splits:
        command += [f"--{split}pref", f"text/{split}.txt"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait()
        except BaseException:  # interrupted: end fairseq-preprocess with its workers
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        log.seek(0)
        last = "\n".join(log.read().decode("utf-8", "replace").splitlines()[-15:])
    if status:
        raise InputError(f"fairseq-preprocess failed (exit status {status}):\n{last}")
