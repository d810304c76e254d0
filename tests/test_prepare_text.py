"""fairseq-bnce prepare-text: every step on its own, then the whole against fairseq's own reader."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Iterator

import forks
import pytest
from tools import call_command, write_lines

from fairseq_bnce.data.preparation import (
    binarising,
    folder,
    parallel,
    pipeline,
    progress,
    reading,
    splits,
    vocabulary,
    words,
)
from fairseq_bnce.errors import InputError
from fairseq_bnce.text import tokens

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "fairseq_bnce.cli", "prepare-text", "--tokenized"]
COMMAND += ["--text-only", "--workers", "1"]
WORDS = words.TextOptions(language=None, lowercase=False, keep_empty=False)


def numbered(path: Path, count: int) -> Path:
    path.write_text("".join(f"line {i}\n" for i in range(count)))
    return path


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


# ---------------------------------------------------------------- lines to words


def test_raw_text_is_tokenised_without_escapes() -> None:
    assert tokens.tokenize("It's Mr. Smith's \"dog & cat\".", "en") == (
        ["It", "'s", "Mr.", "Smith", "'s", '"', "dog", "&", "cat", '"', "."]
    )


def test_languages_have_their_own_rules() -> None:
    assert tokens.tokenize("l'ami", "fr") == ["l'", "ami"]
    assert tokens.tokenize("l'ami", "en") == ["l", "'ami"]


def test_unk_in_raw_text_stays_one_word() -> None:
    found = tokens.tokenize("the <unk>, (<unk>) and <unk>." + " <unk>" * 1001, "en")
    assert found[:9] == ["the", "<unk>", ",", "(", "<unk>", ")", "and", "<unk>", "."]
    assert found.count("<unk>") == 1004
    ends = "<s> one. </s> two</s>"
    assert tokens.tokenize(ends, "en") == ["<s>", "one", ".", "</s>", "two", "</s>"]


def test_lower_casing_does_not_hide_the_ends_of_sentences() -> None:
    options = words.TextOptions(language="en", lowercase=True, keep_empty=False)
    assert (
        words.tokenize_chunk(options, [b"It works. Despite that"])[0] == "it works . despite that\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a b"]),
        ("<s> a b </s>", ["a b"]),
        ("a </s> <s> b </s>", ["a", "b"]),
        ("</s>", []),
        ("", []),
        ("a <unk> <pad>", ["a <unk> <unk>"]),
    ],
)
def test_markers_of_sentences(text: str, expected: list[str]) -> None:
    assert [" ".join(found) for found in words.sentences(text.split())] == expected


def test_tokenize_chunk_counts_what_it_mends() -> None:
    lines = [b"\xef\xbb\xbfa b\r\n", b"caf\xe9 c\n", b" \t\n", b"d </s> <pad>\n", b"e"]
    text, notes = words.tokenize_chunk(WORDS, lines)
    assert text == "a b\ncaf\ufffd c\nd\n<unk>\ne\n"
    assert notes == {"read": 5, "bad_utf8": 1, "empty": 1, "cut": 1, "pad": 1, "usable": 5}


def test_keep_empty_and_lowercase() -> None:
    options = words.TextOptions(language=None, lowercase=True, keep_empty=True)
    assert words.tokenize_chunk(options, [b"\n", b"A <UNK>\n"])[0] == "\na <unk>\n"


# ---------------------------------------------------------------- reading and parallel work


def test_lines_end_where_fairseq_preprocess_cuts_them(tmp_path) -> None:
    (tmp_path / "a").write_bytes("a\x85b\u2028c\x0cd\re\r\nf\n".encode())
    ((text, _),) = parallel.map_chunks(
        words.tokenize_chunk, WORDS, [str(tmp_path / "a")], workers=1, label=""
    )
    assert text == "a b c d\ne\nf\n"


def test_chunks_hold_every_line_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 50)
    names = [str(numbered(tmp_path / "a", 100)), str(numbered(tmp_path / "b", 3))]
    chunks = list(reading.read_chunks(names))
    assert len(chunks) > 10
    assert b"".join(line + b"\n" for chunk in chunks for line in chunk) == (
        (tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes()
    )


def test_parallel_equals_serial(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 200)
    name = str(numbered(tmp_path / "a", 500))
    results = [
        list(parallel.map_chunks(words.tokenize_chunk, WORDS, [name], workers=workers, label=""))
        for workers in (1, 2)
    ]
    assert results[0] == results[1]
    assert "".join(text for text, _ in results[0]) == Path(name).read_text()


def test_parallel_work_does_not_read_ahead() -> None:
    taken = []

    def chunks():
        for i in range(1000):
            taken.append(i)
            yield [b"a\n"]

    results = parallel._pooled(words.tokenize_chunk, WORDS, chunks(), 2)
    next(results)
    assert len(taken) < 10
    results.close()


def die(_, lines) -> None:
    os._exit(1)


def test_killed_worker_is_noticed() -> None:
    """Also where other chunks, larger than a pipe, wait for it."""
    with pytest.raises(InputError, match="a worker process was killed"):
        list(parallel._pooled(die, None, [[b"a" * 2**18]] * 9, 2))


def test_a_worker_that_cannot_be_started(monkeypatch) -> None:
    """What the machine says of it is told, and those that run end."""
    started, start = [], multiprocessing.Process.start

    def second_fails(process) -> None:
        if started:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)
        started.append(process.pid)

    monkeypatch.setattr(multiprocessing.Process, "start", second_fails)
    with pytest.raises(OSError, match="Resource temporarily unavailable"):
        list(parallel._pooled(words.tokenize_chunk, WORDS, [[b"a"]] * 9, 3))
    wait_for_end(started)


def test_a_log_has_lines_that_say_how_far_it_is(tmp_path, capfd, monkeypatch) -> None:
    """No more often than they can be read."""
    arguments = ["--train", numbered(tmp_path / "a", 500), "--out", tmp_path / "out"]
    for seconds, is_told in ((10.0, False), (0.0, True)):
        monkeypatch.setattr(progress, "EVERY", seconds)
        monkeypatch.setattr(reading, "CHUNK_BYTES", 1000)
        assert run("--text-only", "--tokenized", "--workers", 1, "--overwrite", *arguments) == 0
        lines = capfd.readouterr().err.splitlines()
        assert bool(lines) == is_told
        assert not is_told or any("tokenise --train" in line and "100%" in line for line in lines)


# ---------------------------------------------------------------- splits


def test_split_sizes_add_up() -> None:
    for total in (1, 2, 7, 10, 99, 1000):
        sizes = splits.split_sizes(total, {"train": 0.8, "valid": 0.1, "test": 0.1})
        assert sum(sizes.values()) == total
        assert all(abs(sizes[s] - total * p) < 1 for s, p in [("train", 0.8), ("test", 0.1)])
    # Shares that are accepted for 1 may lack some lines of millions.
    thirds = {"train": 0.3333331, "valid": 0.3333331, "test": 0.333333}
    assert sum(splits.split_sizes(12_000_000, thirds).values()) == 12_000_000


def shared_out(tmp_path: Path, source: Path, sizes: dict[str, int], **settings) -> dict[str, list]:
    targets = {split: tmp_path / f"{split}.out" for split in sizes}
    settings = {"split_by": "block", "seed": 1, "keep_empty": False, **settings}
    splits.share_out(source, targets, sizes, **settings)
    return {split: read(path) for split, path in targets.items()}


def test_blocks_are_contiguous(tmp_path) -> None:
    source = numbered(tmp_path / "a", 10)
    found = shared_out(tmp_path, source, {"train": 7, "valid": 2, "test": 1})
    assert found["train"] + found["valid"] + found["test"] == read(source)
    assert [len(lines) for lines in found.values()] == [7, 2, 1]


def test_drawn_lines_keep_sizes_and_order(tmp_path) -> None:
    source = numbered(tmp_path / "a", 200)
    sizes = {"train": 150, "valid": 30, "test": 20}
    found = shared_out(tmp_path, source, sizes, split_by="line")
    assert {split: len(lines) for split, lines in found.items()} == sizes
    assert sorted(sum(found.values(), [])) == sorted(read(source))
    numbers = [int(line.split()[1]) for line in found["valid"]]
    assert numbers == sorted(numbers) and numbers != list(range(numbers[0], numbers[0] + 30))
    assert shared_out(tmp_path, source, sizes, split_by="line") == found
    assert shared_out(tmp_path, source, sizes, split_by="line", seed=2) != found


def test_drawn_paragraphs_stay_together(tmp_path) -> None:
    source = tmp_path / "a"
    source.write_text("".join(f"{i} a\n{i} b\n\n" for i in range(50)))
    sizes = {"train": 80, "valid": 20}
    found = shared_out(tmp_path, source, sizes, split_by="paragraph")
    assert {split: len(lines) for split, lines in found.items()} == sizes
    for lines in found.values():
        assert set(Counter(line.split()[0] for line in lines).values()) == {2}
    sizes = {"train": 120, "valid": 30}
    kept = shared_out(tmp_path, source, sizes, split_by="paragraph", keep_empty=True)
    assert {split: len(lines) for split, lines in kept.items()} == sizes
    assert sum(lines.count("") for lines in kept.values()) == 50


# ---------------------------------------------------------------- vocabulary


def test_vocabulary_is_cut_by_size_and_count() -> None:
    counts = {"b": 3, "a": 3, "c": 5, "d": 1}
    assert vocabulary.cut_vocabulary(counts) == [("c", 5), ("a", 3), ("b", 3), ("d", 1)]
    assert vocabulary.cut_vocabulary(counts, size=4) == [("c", 5), ("a", 3)]  # and </s>, <unk>
    assert vocabulary.cut_vocabulary(counts, min_count=2) == [("c", 5), ("a", 3), ("b", 3)]
    with pytest.raises(InputError, match="none of the 4 types .* --min-count 6"):
        vocabulary.cut_vocabulary(counts, min_count=6)


def test_count_words_leaves_specials_out(tmp_path) -> None:
    (tmp_path / "a").write_text("a <unk> a\n\nb\n")
    assert vocabulary.count_words(tmp_path / "a", workers=1) == {"a": 2, "b": 1}


def test_dictionary_is_filled_up(tmp_path) -> None:
    path = tmp_path / "dict.txt"
    vocabulary.write_dictionary(path, [("madeupword0000", 4), ("a", 2)], 8)
    assert read(path) == ["madeupword0000 4", "a 2", "madeupword0001 0", "madeupword0002 0"]
    assert vocabulary.read_dictionary(path) == {line.split()[0] for line in read(path)}
    vocabulary.write_dictionary(path, [("a", 2)], 1)
    assert read(path) == ["a 2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 3\n<unk> 5\n", r"line 2: .* defines <unk> again"),
        ("</s> 5 #fairseq:overwrite\n", r"line 1: .* defines </s> again"),
        ("a 3\na 2\n", r"line 2: 'a' is there twice"),
        ("a three\n", r"line 1: '<word> <count>' is required, but came 'a three'"),
        ("\n", r"line 1: '<word> <count>' is required, but came ''"),
        ("", r"at least one word is required, but it is empty"),
        ("\ufeffa 3\nb 2\n", r"line 1: .* without a byte order mark is required, .* before 'a'"),
    ],
)
def test_bad_dictionaries_are_refused(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "dict.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        vocabulary.read_dictionary(path)


def test_a_file_name_that_is_not_utf8_is_reported(tmp_path) -> None:
    """The report comes last: all work was lost where it could not be written."""
    name = tmp_path / os.fsdecode(b"caf\xe9 \xc3\xa9.txt")
    write_lines(name, ["a b", "c d"])
    text_only(tmp_path, "--train", name)
    report = (tmp_path / "out" / "report.json").read_text(encoding="utf-8")
    assert json.loads(report)["settings"]["train"] == [str(name)]
    assert "\u00e9.txt" in report


def test_a_file_that_cannot_be_read_is_named(tmp_path, capfd) -> None:
    """Root may read any but this one, whose first page is not mapped."""
    assert run("--input", "/proc/self/mem", "--split", 1, 0, 0, "--out", tmp_path / "out") == 2
    errors = capfd.readouterr().err
    assert "input: a file that can be read is required, but /proc/self/mem" in errors


def test_dictionary_that_is_not_utf8_is_refused(tmp_path) -> None:
    path = tmp_path / "dict.txt"
    path.write_bytes(b"caf\xe9 3\n")
    with pytest.raises(InputError, match="UTF-8 is required"):
        vocabulary.read_dictionary(path)


# ---------------------------------------------------------------- the command


def corpus(path: Path, lines: int = 300) -> Path:
    """Words with a long tail, <unk> among them."""
    rng = random.Random(3)
    words = [f"w{int(rng.paretovariate(0.7))}" for _ in range(lines * 8)] + ["<unk>"] * 20
    rng.shuffle(words)
    text = [" ".join(words[i * 8 : i * 8 + 8]) for i in range(lines)]
    path.write_text("\n".join(text) + "\n")
    return path


def run(*arguments) -> int:
    return call_command("prepare-text", *arguments)


def text_only(tmp_path: Path, *arguments) -> Path:
    out = tmp_path / "out"
    assert run("--tokenized", "--text-only", "--workers", 1, "--out", out, *arguments) == 0
    return out / "text"


def test_text_and_report(tmp_path, capsys) -> None:
    (tmp_path / "a").write_text("a a b\n<s> a c </s>\n\n")
    (tmp_path / "b").write_text("a d d\n")
    text = text_only(
        tmp_path, "--train", tmp_path / "a", "--valid", tmp_path / "b", "--min-count", 2
    )
    assert read(text / "train.txt") == ["a a <unk>", "a <unk>"]
    assert read(text / "valid.txt") == ["a <unk> <unk>"]
    assert read(text / "dict.txt")[0] == "a 3"
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["splits"]["train"] == {"lines": 2, "types": 3, "tokens": 7, "unk": 2}
    assert report["splits"]["valid"] == {"lines": 1, "types": 3, "tokens": 4, "unk": 2}
    printed = capsys.readouterr().out
    assert "50.00%" in printed and "vocabulary: 3 types" in printed
    assert "4 line(s) read" in printed and "1 line(s) without a word, left out" in printed
    assert "2 line break(s)" not in printed


def test_missing_unk_in_train_is_pointed_out(tmp_path, capsys) -> None:
    (tmp_path / "a").write_text("a b\n")
    (tmp_path / "b").write_text("a c\n")
    text_only(tmp_path, "--train", tmp_path / "a", "--test", tmp_path / "b")
    assert "train has no <unk>, but test have" in capsys.readouterr().out


def test_flags_reach_the_text(tmp_path, capsys) -> None:
    line = "Das ist z.B. GUT, usw. am 1. Mai."
    german, english = (
        words.tokenize_chunk(words.TextOptions(language, True, True), [line.encode()])[0].strip()
        for language in ("de", "en")
    )
    assert german != english
    (tmp_path / "a").write_bytes(f"{line}\n\n".encode() * 20 + b"caf\xe9\n")
    (tmp_path / "empty").write_bytes(b"")
    flags = ["--input", tmp_path / "a", tmp_path / "empty", "--split", 0.5, 0.5, 0]
    flags += ["--split-by", "line", "--language", "de", "--lowercase", "--keep-empty-lines"]
    flags += ["--padding-factor", 64, "--text-only", "--workers", 1]
    made = []
    for seed in (1, 2):
        assert run(*flags, "--seed", seed, "--out", tmp_path / str(seed)) == 0
        text = tmp_path / str(seed) / "text"
        lines = [read(text / f"{split}.txt") for split in ("train", "valid")]
        kept = Counter(sum(lines, []))
        assert (len(lines[0]), len(lines[1])) in ((20, 21), (21, 20))
        assert kept[german] == kept[""] == 20
        assert (len(read(text / "dict.txt")) + 4) % 64 == 0
        made.append(lines)
    assert made[0] != made[1]
    printed = capsys.readouterr().out
    assert "20 line(s) without a word, kept" in printed and "1 empty input file(s)" in printed
    assert "1 line(s) with bytes that are not UTF-8" in printed
    assert call_command("prepare-text", *flags, "--out", tmp_path / "default") == 0
    assert read(tmp_path / "default" / "text" / "train.txt") == made[0][0]


def test_what_was_read_is_told_alike_of_splits_and_of_one_text(tmp_path) -> None:
    numbered(tmp_path / "a", 30)
    found = []
    for flags in (["--input", tmp_path / "a"], ["--train", tmp_path / "a"]):
        text_only(tmp_path, *flags, "--overwrite")
        found.append(json.loads((tmp_path / "out" / "report.json").read_text())["read"])
    assert found[0] == found[1] and found[0]["bad_utf8"] == 0


def test_a_dictionary_alone_makes_no_remark_on_training_data(tmp_path, capsys) -> None:
    (tmp_path / "dict").write_text("a 1\n")
    (tmp_path / "b").write_text("a c\n")
    text_only(tmp_path, "--valid", tmp_path / "b", "--dict", tmp_path / "dict")
    assert "train has no" not in capsys.readouterr().out


def test_vocabulary_comes_from_the_train_share_alone(tmp_path) -> None:
    (tmp_path / "a").write_text("a\n" * 8 + "b\n" * 2)
    text = text_only(tmp_path, "--input", tmp_path / "a", "--split", 0.8, 0.2, 0)
    assert sorted(path.stem for path in text.glob("*.txt")) == ["dict", "train", "valid"]
    assert read(text / "valid.txt") == ["<unk>", "<unk>"]


def test_paragraphs_from_the_command_line(tmp_path) -> None:
    (tmp_path / "a").write_text("".join(f"{i} a\n{i} b\n\n" for i in range(20)))
    text = text_only(
        tmp_path, "--input", tmp_path / "a", "--split", 0.5, 0.5, 0, "--split-by", "paragraph"
    )
    lines = read(text / "train.txt")
    assert len(lines) == 20 and [line.split()[1] for line in lines] == ["a", "b"] * 10


def test_standard_input(tmp_path, monkeypatch) -> None:
    (tmp_path / "in").write_text("a b\nb c\n")
    with (tmp_path / "in").open() as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        text = text_only(tmp_path, "--train", "-")
    assert read(text / "train.txt") == ["a b", "b c"]


def test_a_gzipped_file(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"a b\nb c\n"))
    text = text_only(tmp_path, "--train", str(tmp_path / "in.gz"), "--workers", "2")
    assert read(text / "train.txt") == ["a b", "b c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--train or --input is required"),
        (["--train", "{tmp}/none"], "{tmp}/none does not exist"),
        (["--train", "{tmp}"], "{tmp} is a folder"),
        (["--train", "{tmp}/zip"], "{tmp}/zip holds zero bytes"),
        (["--train", "{tmp}/blank"], "has 2 line(s), none with a word"),
        (["--train", "{tmp}/a", "--valid", "{tmp}/blank"], "--valid: at least one line"),
        (["--train", "-", "--valid", "-"], "can be read only once"),
        (["--train", "{tmp}/a", "--input", "{tmp}/a"], "cannot be combined with --train"),
        (["--train", "{tmp}/a", "--split", "1", "0", "0"], "--input is required with it"),
        (["--train", "{tmp}/a", "--split-by", "line"], "--split-by: --input is required with it"),
        (["--valid", "{tmp}/a"], "--train (or the vocabulary"),
        (["--input", "{tmp}/a", "--split", "0.5", "0.2", "0.2"], "0.5 0.2 0.2 (sum 0.9)"),
        (["--input", "{tmp}/a", "--split", "0", "0.5", "0.5"], "share above 0 for train"),
        (["--input", "{tmp}/a", "--split", "1.1", "-0.1", "0"], "1.1 -0.1 0.0 (sum 1)"),
        (["--input", "{tmp}/one"], "at least one line for valid is required, but 1 usable"),
        (["--train", "{tmp}/a", "--dict", "{tmp}/none"], "{tmp}/none is not a file"),
        (["--train", "{tmp}/blank", "--dict", "{tmp}/one"], "--dict {tmp}/one, line 1"),
        (
            ["--train", "{tmp}/a", "--dict", "{tmp}/a", "--vocab-size", "9"],
            "--dict: cannot be combined",
        ),
        (["--train", "{tmp}/a", "--out", "{tmp}/a"], "a folder is required, but {tmp}/a is a file"),
        (["--train", "{tmp}/a", "--out", "{tmp}"], "{tmp} has data in it"),
    ],
)
def test_what_is_refused(tmp_path, capsys, arguments, message) -> None:
    (tmp_path / "a").write_text("a b\nc\n")
    (tmp_path / "one").write_text("a b\n")
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04\x00\x00")
    before = sorted(os.listdir(tmp_path))
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert run("--tokenized", "--text-only", "--out", tmp_path / "out", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairseq-bnce: error: ")
    assert message.format(tmp=tmp_path) in error
    assert sorted(os.listdir(tmp_path)) == before


def test_unknown_language_is_refused(tmp_path, capsys) -> None:
    corpus(tmp_path / "a")
    arguments = ("--train", tmp_path / "a", "--out", tmp_path / "out", "--language", "xx")
    assert run("--text-only", *arguments) == 2
    assert "zh, got 'xx'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--workers", "--min-count", "--vocab-size"])
def test_numbers_are_checked(capsys, option: str) -> None:
    assert run("--train", "a", "--out", "b", option, "0") == 2
    assert ": required at least " in capsys.readouterr().err


def test_failure_leaves_nothing_and_loses_nothing(tmp_path, monkeypatch, capsys) -> None:
    def fail(*_, **__) -> None:
        raise InputError("no disk")

    monkeypatch.setattr(pipeline, "replace_rare", fail)
    corpus(tmp_path / "a")
    (tmp_path / "old").mkdir()
    for name in ("text", "report.json"):
        (tmp_path / "old" / name).write_text("precious")
    for name in ("new", "old"):
        arguments = ("--train", tmp_path / "a", "--out", tmp_path / name, "--overwrite")
        assert run("--tokenized", "--text-only", *arguments) == 2
    assert "no disk" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a", "old"]
    assert sorted(os.listdir(tmp_path / "old")) == ["report.json", "text"]


def test_a_folder_whose_name_is_no_utf8_is_told_of(tmp_path, capsys) -> None:
    corpus(tmp_path / "a")
    out = tmp_path / os.fsdecode(b"out\xff")
    assert run("--tokenized", "--text-only", "--train", tmp_path / "a", "--out", out) == 0
    assert capsys.readouterr().out.endswith("out\\udcff/text\n")
    assert (out / "report.json").exists()


def test_what_the_terminal_cannot_show_is_escaped(tmp_path) -> None:
    """Also of names that are no UTF-8; all the work was done by then."""
    words = tmp_path / os.fsdecode(b"words\xff")
    words.write_text("w1 2\n")
    corpus(tmp_path / "a")
    out = tmp_path / "caf\xe9"
    for encoding, name in (("ascii", b"caf\\xe9"), ("utf-8", b"caf\xc3\xa9")):
        command = [*COMMAND, "--train", tmp_path / "a", "--dict", words, "--out", out]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = forks.run([*command, "--overwrite"], env=environment)
        assert done.returncode == 0, done.stdout
        assert b"words\\udcff\n" in done.stdout and name + b"/text\n" in done.stdout


def test_a_report_on_a_full_disk(tmp_path) -> None:
    """Also where it is not written at the end alone; the result is whole."""
    corpus(tmp_path / "a")
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-u", *COMMAND[1:], "--train", tmp_path / "a", "--out"]
        done = subprocess.run(
            [*command, tmp_path / "out"], stdout=full, stderr=subprocess.PIPE, timeout=60, cwd=ROOT
        )
    want = "standard output: required a file with room to write, got: No space left on device"
    assert (done.returncode, done.stderr.decode()) == (2, f"fairseq-bnce: error: {want}\n")
    assert (tmp_path / "out" / "report.json").exists()


def test_overwrite_replaces_its_own_and_nothing_else(tmp_path) -> None:
    corpus(tmp_path / "a")
    text_only(tmp_path, "--train", tmp_path / "a", "--test", tmp_path / "a")
    (tmp_path / "out" / "notes").write_text("mine")
    text_only(tmp_path, "--train", tmp_path / "a", "--overwrite")
    assert sorted(os.listdir(tmp_path / "out")) == ["notes", "report.json", "text"]
    assert sorted(os.listdir(tmp_path / "out" / "text")) == ["dict.txt", "text.json", "train.txt"]


def test_overwrite_replaces_no_text_that_it_reads_and_none_of_others(tmp_path, capsys) -> None:
    """A folder of one's own texts, whose name is that of a result's."""
    (tmp_path / "out" / "text").mkdir(parents=True)
    corpus(tmp_path / "out" / "text" / "train.txt")
    corpus(tmp_path / "a")
    mine, flags = tmp_path / "out" / "text" / "train.txt", ["--tokenized", "--text-only"]
    flags += ["--out", tmp_path / "out", "--overwrite"]
    before = mine.read_bytes()
    assert run(*flags, "--train", tmp_path / "a") == 2
    assert "with its report.json, but" in capsys.readouterr().err
    (tmp_path / "out" / "report.json").write_text("{}")
    assert run(*flags, "--train", mine) == 2
    assert f"another folder is required, since {mine} is" in capsys.readouterr().err
    assert mine.read_bytes() == before
    words = tmp_path / "out" / "text" / "dict.txt"
    words.write_text("w1 1\n")
    assert run(*flags, "--test", tmp_path / "a", "--dict", words) == 2
    assert f"another folder is required, since {words} is" in capsys.readouterr().err
    assert mine.read_bytes() == before


@pytest.mark.parametrize("is_there", [False, True])
def test_what_another_run_has_finished_meanwhile_stays(
    tmp_path, capsys, monkeypatch, is_there
) -> None:
    """Both began when there was nothing."""
    corpus(tmp_path / "a")
    numbered(tmp_path / "b", 30)
    if is_there:
        (tmp_path / "out").mkdir()
    replace_rare = pipeline.replace_rare

    def late(*arguments, **named):
        monkeypatch.setattr(pipeline, "replace_rare", replace_rare)
        text_only(tmp_path, "--train", tmp_path / "b")
        return replace_rare(*arguments, **named)

    monkeypatch.setattr(pipeline, "replace_rare", late)
    flags = ["--tokenized", "--text-only", "--out", tmp_path / "out"]
    assert run(*flags, "--train", tmp_path / "a") == 2
    assert "an empty or new folder is required" in capsys.readouterr().err
    assert read(tmp_path / "out" / "text" / "train.txt") == read(tmp_path / "b")
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


def test_overwrite_leaves_nothing_of_the_earlier_result(tmp_path) -> None:
    corpus(tmp_path / "a")
    for name in ("bin", "questions"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "dict.txt").write_text("old 1\n")
    (tmp_path / "out" / "report.json").write_text("{}")
    text_only(tmp_path, "--train", tmp_path / "a", "--overwrite")
    assert sorted(os.listdir(tmp_path / "out")) == ["questions", "report.json", "text"]


def test_what_cannot_be_installed_leaves_the_earlier_result(tmp_path) -> None:
    for name in ("out", "result"):
        (tmp_path / name / "text").mkdir(parents=True)
        (tmp_path / name / "text" / "train.txt").write_text(name)
    (tmp_path / "out" / "zoo").mkdir()
    (tmp_path / "result" / "zoo").write_text("no folder")
    (tmp_path / "scratch").mkdir()
    with pytest.raises(OSError):
        folder.install(tmp_path / "result", tmp_path / "out", tmp_path / "scratch")
    assert sorted(os.listdir(tmp_path / "out")) == ["text", "zoo"]
    assert (tmp_path / "out" / "text" / "train.txt").read_text() == "out"


# ---------------------------------------------------------------- signals

# Workers that say who they are, in the place of those that tokenise.
SLOW = """
import os, sys, time
from fairseq_bnce import cli
from fairseq_bnce.data.preparation import reading, words

def slow(*_):
    os.write(1, b"%d " % os.getpid())
    time.sleep(float(sys.argv[1]))

reading.CHUNK_BYTES = 2**17
words.tokenize_chunk = slow
arguments = ["--train", "a", "--tokenized", "--text-only", "--workers", "3", "--out", "out"]
sys.exit(cli.main(["prepare-text", *arguments]))
"""


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """SIGHUP ends what is started, under nohup too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextlib.contextmanager
def working(tmp_path: Path, seconds: float) -> Iterator[tuple[subprocess.Popen, list[int]]]:
    """A run, and its workers, in the midst of chunks that take so long."""
    numbered(tmp_path / "a", 80_000)
    command = [sys.executable, "-c", SLOW, str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        try:
            printed = b""
            while printed.count(b" ") < 3:
                some = os.read(process.stdout.fileno(), 100)
                assert some, process.stderr.read().decode()
                printed += some
            yield process, list(map(int, printed.split()[:3]))
        finally:
            process.kill()


def wait_for_end(pids: list[int], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc/PID/stat is Linux's")


@on_linux
@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize(
    ("signals", "status"),
    [([signal.SIGTERM] * 2, 143), ([signal.SIGINT], 130), ([signal.SIGHUP], 129)],
)
def test_a_run_that_is_ended_leaves_nothing(tmp_path, signals, status) -> None:
    """Neither workers nor folders; coreutils' timeout sends two signals."""
    with working(tmp_path, 600) as (process, pids):
        for number in signals:
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        wait_for_end(pids)
    assert process.returncode == status and b"Traceback" not in errors
    assert os.listdir(tmp_path) == ["a"]


@on_linux
@pytest.mark.usefixtures("hangs_up")
def test_a_terminal_that_goes_away(tmp_path) -> None:
    """It sends SIGHUP to workers too; what nohup started ignores it, and so do its workers."""
    with working(tmp_path, 600) as (process, pids):
        for pid in pids:
            os.kill(pid, signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
        wait_for_end(pids)
    assert process.returncode == 129 and not errors
    assert os.listdir(tmp_path) == ["a"]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with working(tmp_path, 0.2) as (process, pids):
            assert all(ignores(pid, signal.SIGHUP) for pid in (process.pid, *pids))
    finally:
        signal.signal(signal.SIGHUP, before)


def ignores(pid: int, number: int) -> bool:
    mask = Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    return bool(int(mask, 16) >> (number - 1) & 1)


@on_linux
def test_workers_end_although_they_miss_a_sigterm(tmp_path) -> None:
    """As where it comes before the fork has begun to run: Python forgets it there."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a b\nb c\n"))
    blocked = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    arguments = ["--train", "a.gz", "--tokenized", "--text-only", "--workers", "2", "--out", "out"]
    program = f"{blocked}\nfrom fairseq_bnce import cli\ncli.main({['prepare-text', *arguments]})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert read(tmp_path / "out" / "text" / "train.txt") == ["a b", "b c"]


@on_linux
def test_workers_do_not_outlive_a_run_that_is_killed(tmp_path) -> None:
    with working(tmp_path, 0.2) as (process, pids):
        process.kill()
        wait_for_end(pids)


@on_linux
def test_what_binarises_ends_with_the_run(tmp_path, monkeypatch) -> None:
    """And so do its children."""
    script = "import os, time; pid = os.fork(); print(os.getpid(), flush=True); time.sleep(600)"

    class Bar(contextlib.nullcontext):
        n = 0

        def update(self, _) -> None:
            if (tmp_path / "log").read_text().count("\n") == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(binarising, "progress_bar", lambda *_: Bar(Bar()))
    with (tmp_path / "log").open("wb") as log, pytest.raises(KeyboardInterrupt):
        binarising.run_watched([sys.executable, "-c", script], tmp_path, log, 1)
    wait_for_end(list(map(int, read(tmp_path / "log"))))


HANGING = """
import multiprocessing, os, signal

def cli_main():
    with multiprocessing.Pool(2) as pool:
        pool.apply(end)

def end():
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    cli_main()
"""


@on_linux
def test_a_worker_of_what_binarises_is_killed(tmp_path, monkeypatch) -> None:
    """As by a machine that is out of memory: its pool waits for ever for the answer."""
    (tmp_path / "fairseq_cli").mkdir()
    (tmp_path / "fairseq_cli" / "__init__.py").touch()
    (tmp_path / "fairseq_cli" / "preprocess.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "dict.txt").write_text("a 1\n")
    with pytest.raises(InputError, match="was killed .out of memory. try fewer --workers"):
        binarising.binarise(tmp_path, ["train"], tmp_path / "dict.txt", workers=3)


# ---------------------------------------------------------------- with fairseq


@pytest.fixture(scope="module")
def binarised(tmp_path_factory) -> Path:
    """A whole run, from the command line as a user types it, in a path with a comma and a space."""
    folder = tmp_path_factory.mktemp("a, b")
    corpus(folder / "text")
    command = [sys.executable, "-m", "fairseq_bnce.cli", "prepare-text", "--workers", "2"]
    command += ["--tokenized"]
    command += ["--input", "text", "--split", "0.8", "0.1", "0.1", "--vocab-size", "40"]
    done = forks.run([*command, "--out", "data"], cwd=folder)
    assert done.returncode == 0, done.stdout.decode("utf-8")
    return folder / "data"


@pytest.fixture
def in_forks(monkeypatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", forks.Popen)


def ids(binary: Path, dictionary) -> list[list[int]]:
    from fairseq.data import data_utils

    return [row.tolist() for row in data_utils.load_indexed_dataset(str(binary), dictionary)]


def test_fairseq_reads_what_was_meant(binarised: Path) -> None:
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(binarised / "bin" / "dict.txt"))
    assert len(dictionary) % 8 == 0
    assert sum(count > 0 for count in dictionary.count[4:]) == 38  # 40 with </s> and <unk>
    report = json.loads((binarised / "report.json").read_text())
    for split, expected in report["splits"].items():
        lines = read(binarised / "text" / f"{split}.txt")
        rows = ids(binarised / "bin" / split, dictionary)
        assert [[dictionary[i] for i in row] for row in rows] == [
            [*line.split(), "</s>"] for line in lines
        ]
        tokens = Counter(token for row in rows for token in row)
        assert expected == {
            "lines": len(rows),
            "types": len(tokens),
            "tokens": sum(tokens.values()),
            "unk": tokens[dictionary.unk()],
        }


def test_existing_dictionary_gives_the_same_ids(binarised: Path, tmp_path, in_forks) -> None:
    from fairseq.data import Dictionary

    (tmp_path / "new").write_text("w1 w2 neverseen w1\n")
    given = binarised / "bin" / "dict.txt"
    arguments = ("--test", tmp_path / "new", "--dict", given, "--out", tmp_path / "out")
    assert run("--tokenized", *arguments) == 0
    assert (tmp_path / "out" / "bin" / "dict.txt").read_bytes() == given.read_bytes()
    dictionary = Dictionary.load(str(given))
    w1, w2 = dictionary.index("w1"), dictionary.index("w2")
    assert ids(tmp_path / "out" / "bin" / "test", dictionary) == [[w1, w2, 3, w1, 2]]


def test_failure_of_fairseq_is_shown(tmp_path, in_forks) -> None:
    (tmp_path / "dict.txt").write_text("a 1\n")
    with pytest.raises(InputError, match=r"exit status 1\):(.|\n)*train\.txt"):
        binarising.binarise(tmp_path, ["train"], tmp_path / "dict.txt", workers=1)
