"""fairseq-bnce prepare-text: its text, its report, and what fairseq reads of its data."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import forks
import pytest
from fairseq.data import Dictionary, data_utils
from tools import call_command, write_lines

from fairseq_bnce.data import preparation

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["line 1", *(f"{i} 1" for i in range(200))]  # a dict.txt for numbered()
COMMAND = [sys.executable, "-m", "fairseq_bnce.cli", "prepare-text", "--tokenized"]


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def numbered(path: Path, count: int) -> Path:
    return write_lines(path, [f"line {i}" for i in range(count)])


def corpus(path: Path, lines: int = 300) -> Path:
    """Write words with a long tail, <unk> among them."""
    rng = random.Random(3)
    words = [f"w{int(rng.paretovariate(0.7))}" for _ in range(lines * 8)] + ["<unk>"] * 20
    rng.shuffle(words)
    return write_lines(path, [" ".join(words[i * 8 : i * 8 + 8]) for i in range(lines)])


def run(*arguments) -> int:
    return call_command("prepare-text", *arguments)


def text_only(tmp_path: Path, *arguments) -> Path:
    out = tmp_path / "out"
    assert run("--tokenized", "--text-only", "--workers", 1, "--out", out, *arguments) == 0
    return out / "text"


# ---------------------------------------------------------------- words


LINES = [
    (b"a b\n\nc", [], ["a b", "c"]),
    (b"a b\n\nc", ["--keep-empty-lines"], ["a b", "", "c"]),
    (b"A <UNK>\n", ["--lowercase"], ["a <unk>"]),
    (b"<s> a b </s>\na </s> <s> b </s>\n</s>\n", [], ["a b", "a", "b"]),
    ("cafe\u0301 \u2019s".encode(), [], ["cafe\u0301 \u2019s"]),
    ("cafe\u0301 \u2019s".encode(), ["--normalize", "nfc"], ["caf\u00e9 \u2019s"]),
    (
        "\u201c cafe\u0301 ( a\u2014b ) : \u2019s \u201d \u2026".encode(),
        ["--normalize", "punctuation"],
        ['" caf\u00e9 ( a - b ) : \'s " ...'],
    ),
    (b"a <unk> <pad>\n", [], ["a <unk> <unk>"]),
    (b"\xef\xbb\xbfa b\r\ncaf\xe9\rc \x0c d\xc2\x85e\n", [], ["a b", "caf\ufffd", "c d e"]),
]


@pytest.mark.parametrize(("text", "flags", "expected"), LINES)
def test_lines_become_words(tmp_path, text: bytes, flags: list[str], expected: list[str]) -> None:
    (tmp_path / "a").write_bytes(text)
    assert read(text_only(tmp_path, "--train", tmp_path / "a", *flags) / "train.txt") == expected


RAW = [
    # Lower-cased first, the full stop would not end a sentence.
    ("It works. Despite that", ["--lowercase"], "it works . despite that"),
    ("l'ami <unk>.", ["--language", "fr"], "l' ami <unk> ."),
]


@pytest.mark.parametrize(("text", "flags", "expected"), RAW)
def test_raw_text_is_tokenised(tmp_path, text: str, flags: list[str], expected: str) -> None:
    write_lines(tmp_path / "a", [text])
    assert run("--train", tmp_path / "a", "--text-only", "--out", tmp_path / "out", *flags) == 0
    assert read(tmp_path / "out" / "text" / "train.txt") == [expected]


def test_several_processes_give_the_same_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(preparation, "CHUNK", 30)
    monkeypatch.setattr(preparation, "BYTES_PER_WORKER", 1000)
    source = numbered(tmp_path / "a", 2000)
    text = text_only(tmp_path, "--train", source, "--workers", 3)
    assert (text / "train.txt").read_bytes() == source.read_bytes()


def test_standard_input(tmp_path, monkeypatch) -> None:
    write_lines(tmp_path / "in", ["a b", "b c"])
    with (tmp_path / "in").open() as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        text = text_only(tmp_path, "--train", "-")
    assert read(text / "train.txt") == ["a b", "b c"]


@pytest.mark.parametrize("flag", ["--train", "--input"])
def test_files_after_a_flag_that_is_given_again(tmp_path, flag) -> None:
    files = [write_lines(tmp_path / name, [f"{name} {name}"]) for name in "abc"]
    text = text_only(tmp_path, flag, *files[:2], flag, files[2], "--split", 1, 0, 0)
    assert read(text / "train.txt") == ["a a", "b b", "c c"]


# ---------------------------------------------------------------- splits


def split(tmp_path: Path, *flags) -> dict[str, list[str]]:
    text = text_only(tmp_path, "--input", tmp_path / "a", "--overwrite", *flags)
    names = ("train", "valid", "test")
    return {name: read(text / f"{name}.txt") for name in names if (text / f"{name}.txt").exists()}


@pytest.mark.parametrize("total", [1, 7, 99, 12_000_000])
def test_split_sizes_add_up(total: int) -> None:
    """Shares that are accepted for 1 may lack several lines of millions."""
    for shares in ((0.8, 0.1, 0.1), (0.3333331, 0.3333331, 0.333333)):
        sizes = preparation.split_sizes(total, dict(zip(preparation.SPLITS, shares)))
        assert sum(sizes.values()) == total
        assert all(abs(size - total * share) < 5 for size, share in zip(sizes.values(), shares))


def test_blocks_are_contiguous(tmp_path) -> None:
    source = numbered(tmp_path / "a", 10)
    found = split(tmp_path, "--split", 0.7, 0.2, 0.1, "--dict", write_lines(tmp_path / "d", WORDS))
    assert found["train"] + found["valid"] + found["test"] == read(source)
    assert [len(lines) for lines in found.values()] == [7, 2, 1]


def test_drawn_lines_keep_sizes_and_order(tmp_path) -> None:
    numbered(tmp_path / "a", 200)
    flags = ["--split", 0.75, 0.15, 0.1, "--split-by", "line"]
    flags += ["--dict", write_lines(tmp_path / "d", WORDS)]
    found = split(tmp_path, *flags)
    assert [len(lines) for lines in found.values()] == [150, 30, 20]
    assert sorted(sum(found.values(), [])) == sorted(read(tmp_path / "a"))
    places = [int(line.split()[1]) for line in found["valid"]]
    assert places == sorted(places) and places != list(range(places[0], places[0] + 30))
    assert split(tmp_path, *flags) == found
    assert split(tmp_path, *flags, "--seed", 2) != found


def test_drawn_paragraphs_stay_together(tmp_path) -> None:
    write_lines(tmp_path / "a", [line for i in range(50) for line in (f"{i} a", f"{i} b", "")])
    flags = ["--split", 0.8, 0.2, 0, "--split-by", "paragraph"]
    found = split(tmp_path, *flags)
    assert [len(lines) for lines in found.values()] == [80, 20]
    assert set(Counter(line.split()[0] for line in found["train"]).values()) == {2}
    kept = split(tmp_path, *flags, "--keep-empty-lines")
    assert [len(lines) for lines in kept.values()] == [120, 30]
    assert sum(lines.count("") for lines in kept.values()) == 50


# ---------------------------------------------------------------- vocabulary


CUT = [
    ("", "c 5,a 3,madeupword0001 2,d 1"),
    ("--vocab-size 4", "c 5,a 3"),  # and </s>, <unk>
    ("--min-count 2", "c 5,a 3,madeupword0001 2"),
    ("--padding-factor 5", "c 5,a 3,madeupword0001 2,d 1,madeupword0000 0,madeupword0002 0"),
]


@pytest.mark.parametrize(("flags", "expected"), CUT)
def test_vocabulary_is_cut_and_filled_up(tmp_path, flags: str, expected: str) -> None:
    write_lines(tmp_path / "a", ["d c c c c a a a c <unk> <unk>" + " madeupword0001" * 2])
    given = ["--train", tmp_path / "a", "--padding-factor", 1, *flags.split()]
    assert read(text_only(tmp_path, *given) / "dict.txt") == expected.split(",")


def test_vocabulary_comes_from_the_train_share_alone(tmp_path, capsys) -> None:
    write_lines(tmp_path / "a", ["a"] * 8 + ["b"] * 2)
    found = split(tmp_path, "--split", 0.8, 0.2, 0)
    assert list(found) == ["train", "valid"] and found["valid"] == ["<unk>", "<unk>"]
    assert "train has no <unk>" in capsys.readouterr().out


# ---------------------------------------------------------------- the report


def test_text_and_report(tmp_path, capsys) -> None:
    (tmp_path / "a").write_bytes(b"a a b\n<s> a c </s>\n\n")
    (tmp_path / "b").write_bytes(b"a d caf\xe9\n")
    (tmp_path / "empty").touch()
    flags = ["--train", tmp_path / "a", "--valid", tmp_path / "b", tmp_path / "empty"]
    text = text_only(tmp_path, *flags, "--min-count", 2)
    assert read(text / "train.txt") == ["a a <unk>", "a <unk>"]
    assert read(text / "valid.txt") == ["a <unk> <unk>"]
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["splits"]["train"] == {"lines": 2, "types": 3, "tokens": 7, "unk": 2}
    assert report["splits"]["valid"] == {"lines": 1, "types": 3, "tokens": 4, "unk": 2}
    counts = {"read": 4, "bad_utf8": 1, "empty": 1, "usable": 3, "empty_files": 1}
    assert {name: report["read"][name] for name in counts} == counts
    printed = capsys.readouterr().out
    assert "50.00%" in printed and "vocabulary: 3 types" in printed
    assert "4 line(s) read" in printed and "1 line(s) without a word, left out" in printed


# ---------------------------------------------------------------- the earlier result


def test_overwrite_replaces_its_own_and_nothing_else(tmp_path, capsys) -> None:
    corpus(tmp_path / "a")
    text = text_only(tmp_path, "--train", tmp_path / "a", "--test", tmp_path / "a")
    (tmp_path / "out" / "notes").write_text("mine")
    text_only(tmp_path, "--train", tmp_path / "a", "--overwrite")
    assert sorted(os.listdir(tmp_path / "out")) == ["notes", "report.json", "text"]
    assert sorted(os.listdir(text)) == ["dict.txt", "text.json", "train.txt"]
    before = (text / "train.txt").read_bytes()
    flags = ["--tokenized", "--text-only", "--out", tmp_path / "out", "--overwrite"]
    assert run(*flags, "--train", text / "train.txt") == 2  # it would replace what it reads
    assert run(*flags, "--test", tmp_path / "a", "--dict", text / "dict.txt") == 2
    (tmp_path / "out" / "report.json").unlink()  # a text that is not the command's
    assert run(*flags, "--train", tmp_path / "a") == 2
    assert capsys.readouterr().err.count("error: --") == 3
    assert (text / "train.txt").read_bytes() == before


@pytest.mark.parametrize("last", [None, 1, 2, 3, 4])
def test_a_failure_to_move_the_result_leaves_the_earlier_one(tmp_path, monkeypatch, last) -> None:
    """Of the new text; or an interruption after the first, second, ... move."""
    moves = itertools.count(1)

    def fail_to_move(path: Path, target: Path) -> Path:
        if last is None and path.parts[-2:] == ("result", "text"):
            raise OSError(28, "No space left on device")
        moved = rename(path, target)
        if next(moves) == last:
            raise KeyboardInterrupt
        return moved

    text, rename = text_only(tmp_path, "--train", corpus(tmp_path / "a")), Path.rename
    before = {path: path.read_bytes() for path in text.iterdir()}
    monkeypatch.setattr(Path, "rename", fail_to_move)
    flags = ["--tokenized", "--text-only", "--train", tmp_path / "a", "--overwrite", "--out"]
    assert run(*flags, tmp_path / "out") == (130 if last else 2)
    assert {path: path.read_bytes() for path in text.iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["a", "out"]
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_run_changes_nothing(tmp_path, start_process, number) -> None:
    """While two workers wait for more of a text that has no end."""
    text = text_only(tmp_path, "--train", corpus(tmp_path / "a"))
    before = (text / "train.txt").read_bytes()
    flags = ["--train", "-", "--text-only", "--workers", 2, "--overwrite", "--out", "out"]

    def hang_up() -> None:  # under nohup, too
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    process = start_process([*COMMAND, *flags], cwd=tmp_path, preexec_fn=hang_up)
    process.stdin.write(b"a b c\n" * 200_000)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number and b"Traceback" not in errors
    assert (text / "train.txt").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


# ---------------------------------------------------------------- with fairseq


@pytest.fixture(scope="module")
def binarised(tmp_path_factory) -> Path:
    """A whole run, from the command line as a user types it, in a path with a comma and a space."""
    folder = tmp_path_factory.mktemp("a, b")
    corpus(folder / "text")
    flags = ["--input", "text", "--split", "0.8", "0.1", "0.1", "--vocab-size", "40"]
    done = forks.run([*COMMAND, *flags, "--workers", "2", "--out", "data"], cwd=folder)
    assert done.returncode == 0, done.stdout.decode("utf-8")
    return folder / "data"


def ids(binary: Path, dictionary) -> list[list[int]]:
    return [row.tolist() for row in data_utils.load_indexed_dataset(str(binary), dictionary)]


def test_fairseq_reads_what_was_meant(binarised: Path) -> None:
    dictionary = Dictionary.load(str(binarised / "bin" / "dict.txt"))
    assert len(dictionary) % 8 == 0
    assert sum(count > 0 for count in dictionary.count[4:]) == 38  # 40 with </s> and <unk>
    report = json.loads((binarised / "report.json").read_text())
    for name, expected in report["splits"].items():
        lines = read(binarised / "text" / f"{name}.txt")
        rows = ids(binarised / "bin" / name, dictionary)
        words = [[dictionary[i] for i in row] for row in rows]
        assert words == [[*line.split(), "</s>"] for line in lines]
        counts = Counter(token for row in rows for token in row)
        unk = counts[dictionary.unk()]
        tokens_ = {"types": len(counts), "tokens": sum(counts.values()), "unk": unk}
        assert expected == {"lines": len(rows), **tokens_}


def test_existing_dictionary_gives_the_same_ids(binarised: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", forks.Popen)
    write_lines(tmp_path / "new", ["w1 w2 neverseen w1"])
    given = binarised / "bin" / "dict.txt"
    arguments = ("--test", tmp_path / "new", "--dict", given, "--out", tmp_path / "out")
    assert run("--tokenized", *arguments) == 0
    assert (tmp_path / "out" / "bin" / "dict.txt").read_bytes() == given.read_bytes()
    dictionary = Dictionary.load(str(given))
    w1, w2 = dictionary.index("w1"), dictionary.index("w2")
    assert ids(tmp_path / "out" / "bin" / "test", dictionary) == [[w1, w2, 3, w1, 2]]


def test_failure_of_fairseq_is_shown(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "fairseq_cli").mkdir()
    (tmp_path / "fairseq_cli" / "__init__.py").touch()
    (tmp_path / "fairseq_cli" / "preprocess.py").write_text("raise SystemExit('no room')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    flags = ["--tokenized", "--train", corpus(tmp_path / "a"), "--out", tmp_path / "out"]
    assert run(*flags) == 2
    assert "no room" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a", "fairseq_cli"]
