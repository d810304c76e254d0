"""fairseq-bnce prepare-text: its text, its report, and what fairseq reads of its data."""

from __future__ import annotations

import contextlib
import gzip
import json
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

from fairseq_bnce.data import parallel, preparation
from fairseq_bnce.text import tokens

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["line 1", *(f"{i} 1" for i in range(200))]  # a dict.txt for numbered()
COMMAND = [sys.executable, "-m", "fairseq_bnce.cli", "prepare-text", "--tokenized"]


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def written(path: Path, lines: list[str]) -> Path:
    write_lines(path, lines)
    return path


def numbered(path: Path, count: int) -> Path:
    return written(path, [f"line {i}" for i in range(count)])


def corpus(path: Path, lines: int = 300) -> Path:
    """Write words with a long tail, <unk> among them."""
    rng = random.Random(3)
    words = [f"w{int(rng.paretovariate(0.7))}" for _ in range(lines * 8)] + ["<unk>"] * 20
    rng.shuffle(words)
    return written(path, [" ".join(words[i * 8 : i * 8 + 8]) for i in range(lines)])


def run(*arguments) -> int:
    return call_command("prepare-text", *arguments)


def text_only(tmp_path: Path, *arguments) -> Path:
    out = tmp_path / "out"
    assert run("--tokenized", "--text-only", "--workers", 1, "--out", out, *arguments) == 0
    return out / "text"


def report_of(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))


# ---------------------------------------------------------------- words


def test_raw_text_is_tokenised_without_escapes() -> None:
    assert tokens.tokenize("It's Mr. Smith's \"dog & cat\".", "en") == (
        ["It", "'s", "Mr.", "Smith", "'s", '"', "dog", "&", "cat", '"', "."]
    )
    assert tokens.tokenize("l'ami", "fr") == ["l'", "ami"]


def test_unk_in_raw_text_stays_one_word() -> None:
    found = tokens.tokenize("the <unk>, (<unk>) and <unk>." + " <unk>" * 1001, "en")
    assert found[:9] == ["the", "<unk>", ",", "(", "<unk>", ")", "and", "<unk>", "."]
    assert found.count("<unk>") == 1004


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        (b"a b\n\nc", [], ["a b", "c"]),
        (b"a b\n\nc", ["--keep-empty-lines"], ["a b", "", "c"]),
        (b"A <UNK>\n", ["--lowercase"], ["a <unk>"]),
        (b"<s> a b </s>\na </s> <s> b </s>\n</s>\n", [], ["a b", "a", "b"]),
        (b"a <unk> <pad>\n", [], ["a <unk> <unk>"]),
        (b"\xef\xbb\xbfa b\r\ncaf\xe9\rc \x0c d\xc2\x85e\n", [], ["a b", "caf\ufffd", "c d e"]),
    ],
)
def test_lines_become_words(tmp_path, text: bytes, flags: list[str], expected: list[str]) -> None:
    (tmp_path / "a").write_bytes(text)
    assert read(text_only(tmp_path, "--train", tmp_path / "a", *flags) / "train.txt") == expected


def test_lower_casing_does_not_hide_the_ends_of_sentences(tmp_path) -> None:
    write_lines(tmp_path / "a", ["It works. Despite that"])
    flags = ["--train", tmp_path / "a", "--lowercase", "--text-only", "--out", tmp_path / "out"]
    assert run(*flags) == 0
    assert read(tmp_path / "out" / "text" / "train.txt") == ["it works . despite that"]


def test_several_processes_give_the_same_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(parallel, "CHUNK_BYTES", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(numbered(tmp_path / "a", 2000).read_bytes()))
    for name in ("a", "a.gz"):
        flags = ["--train", tmp_path / name, "--workers", 3, "--overwrite"]
        text = text_only(tmp_path, *flags)
        assert (text / "train.txt").read_bytes() == (tmp_path / "a").read_bytes()


def end_process(*_, **__) -> None:
    os._exit(1)


def test_a_worker_that_is_killed_is_reported(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(parallel, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(preparation, "tokenize_lines", end_process)
    flags = ["--train", numbered(tmp_path / "a", 2000), "--workers", 2, "--tokenized"]
    assert run(*flags, "--text-only", "--out", tmp_path / "out") == 2
    assert "--workers" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a"]


def test_standard_input(tmp_path, monkeypatch) -> None:
    write_lines(tmp_path / "in", ["a b", "b c"])
    with (tmp_path / "in").open() as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        text = text_only(tmp_path, "--train", "-")
    assert read(text / "train.txt") == ["a b", "b c"]


# ---------------------------------------------------------------- splits


def split(tmp_path: Path, *flags) -> dict[str, list[str]]:
    text = text_only(tmp_path, "--input", tmp_path / "a", "--overwrite", *flags)
    names = ("train", "valid", "test")
    return {name: read(text / f"{name}.txt") for name in names if (text / f"{name}.txt").exists()}


def test_split_sizes_add_up() -> None:
    for total in (1, 2, 7, 10, 99, 1000):
        sizes = preparation.split_sizes(total, {"train": 0.8, "valid": 0.1, "test": 0.1})
        assert sum(sizes.values()) == total
        assert all(abs(sizes[s] - total * p) < 1 for s, p in [("train", 0.8), ("test", 0.1)])
    # Shares that are accepted for 1 may lack several lines of millions.
    thirds = {"train": 0.3333331, "valid": 0.3333331, "test": 0.333333}
    assert sum(preparation.split_sizes(12_000_000, thirds).values()) == 12_000_000


def test_blocks_are_contiguous(tmp_path) -> None:
    source = numbered(tmp_path / "a", 10)
    found = split(tmp_path, "--split", 0.7, 0.2, 0.1, "--dict", written(tmp_path / "d", WORDS))
    assert found["train"] + found["valid"] + found["test"] == read(source)
    assert [len(lines) for lines in found.values()] == [7, 2, 1]


def test_drawn_lines_keep_sizes_and_order(tmp_path) -> None:
    numbered(tmp_path / "a", 200)
    flags = ["--split", 0.75, 0.15, 0.1, "--split-by", "line"]
    flags += ["--dict", written(tmp_path / "d", WORDS)]
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


def test_vocabulary_is_cut_by_size_and_count(tmp_path) -> None:
    write_lines(tmp_path / "a", ["b b b a a a c c c c c d <unk> <unk>"])
    for flags, expected in (
        ([], ["c 5", "a 3", "b 3", "d 1"]),
        (["--vocab-size", 4], ["c 5", "a 3"]),  # and </s>, <unk>
        (["--min-count", 2], ["c 5", "a 3", "b 3"]),
        (["--min-count", 2, "--padding-factor", 8], ["c 5", "a 3", "b 3", "madeupword0000 0"]),
    ):
        flags = ["--train", tmp_path / "a", "--padding-factor", 1, "--overwrite", *flags]
        assert read(text_only(tmp_path, *flags) / "dict.txt") == expected


def test_made_up_words_are_new(tmp_path) -> None:
    write_lines(tmp_path / "a", ["madeupword0000 a"])
    text = text_only(tmp_path, "--train", tmp_path / "a")
    expected = ["a 1", "madeupword0000 1", "madeupword0001 0", "madeupword0002 0"]
    assert read(text / "dict.txt") == expected


def test_vocabulary_comes_from_the_train_share_alone(tmp_path) -> None:
    write_lines(tmp_path / "a", ["a"] * 8 + ["b"] * 2)
    found = split(tmp_path, "--split", 0.8, 0.2, 0)
    assert list(found) == ["train", "valid"] and found["valid"] == ["<unk>", "<unk>"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a 3\n<unk> 5\n", 2),
        (b"</s> 5 #fairseq:overwrite\n", 1),
        (b"a 3\na 2\n", 2),
        (b"a three\n", 1),
        (b"\n", 1),
        (b"", 1),
        (b"\xef\xbb\xbfa 3\nb 2\n", 1),
        (b"caf\xe9 3\n", None),
    ],
)
def test_bad_dictionaries_are_refused(tmp_path, capsys, content: bytes, line: int | None) -> None:
    (tmp_path / "dict.txt").write_bytes(content)
    flags = ["--test", corpus(tmp_path / "a"), "--dict", tmp_path / "dict.txt", "--text-only"]
    assert run(*flags, "--out", tmp_path / "out") == 2
    where = f"--dict {tmp_path / 'dict.txt'}" + (f", line {line}" if line else "")
    assert where in capsys.readouterr().err


# ---------------------------------------------------------------- the report


def test_text_and_report(tmp_path, capsys) -> None:
    (tmp_path / "a").write_text("a a b\n<s> a c </s>\n\n")
    (tmp_path / "b").write_text("a d d\n")
    flags = ["--train", tmp_path / "a", "--valid", tmp_path / "b", "--min-count", 2]
    text = text_only(tmp_path, *flags)
    assert read(text / "train.txt") == ["a a <unk>", "a <unk>"]
    assert read(text / "valid.txt") == ["a <unk> <unk>"]
    splits = report_of(tmp_path)["splits"]
    assert splits["train"] == {"lines": 2, "types": 3, "tokens": 7, "unk": 2}
    assert splits["valid"] == {"lines": 1, "types": 3, "tokens": 4, "unk": 2}
    printed = capsys.readouterr().out
    assert "50.00%" in printed and "vocabulary: 3 types" in printed
    assert "4 line(s) read" in printed and "1 line(s) without a word, left out" in printed


def test_what_was_read_is_reported_alike_for_splits_and_for_one_text(tmp_path, capsys) -> None:
    (tmp_path / "a").write_bytes(b"a b\n" * 30 + b"caf\xe9\n")
    (tmp_path / "empty").touch()
    found = []
    for flag in ("--input", "--train"):
        text_only(tmp_path, flag, tmp_path / "a", tmp_path / "empty", "--overwrite")
        found.append(report_of(tmp_path)["read"])
    assert found[0] == found[1] and found[0]["bad_utf8"] == found[0]["empty_files"] == 1
    assert "1 line(s) with bytes that are not UTF-8" in capsys.readouterr().out


def test_missing_unk_in_train_is_pointed_out(tmp_path, capsys) -> None:
    write_lines(tmp_path / "a", ["a b"])
    write_lines(tmp_path / "b", ["a c"])
    text_only(tmp_path, "--train", tmp_path / "a", "--test", tmp_path / "b")
    assert "train has no <unk>, but test have" in capsys.readouterr().out
    write_lines(tmp_path / "dict", ["a 1"])
    text_only(tmp_path, "--test", tmp_path / "b", "--dict", tmp_path / "dict", "--overwrite")
    assert "train has no" not in capsys.readouterr().out


def test_file_names_that_are_not_utf8(tmp_path, capsys) -> None:
    name = written(tmp_path / os.fsdecode(b"caf\xe9"), ["a b", "c d"])
    out = tmp_path / os.fsdecode(b"out\xff")
    assert run("--tokenized", "--text-only", "--train", name, "--out", out) == 0
    assert capsys.readouterr().out.endswith("out\\udcff/text\n")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["settings"]["train"] == [str(name)]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--train"),
        (["--train", "{tmp}/none"], "{tmp}/none"),
        (["--train", "{tmp}"], "{tmp}"),
        (["--train", "{tmp}/zip"], "{tmp}/zip"),
        (["--train", "{tmp}/a", "--valid", "{tmp}/blank"], "--valid"),
        (["--train", "-", "--valid", "-"], "'-'"),
        (["--train", "{tmp}/a", "--input", "{tmp}/a"], "--input"),
        (["--train", "{tmp}/a", "--split", "1", "0", "0"], "--split:"),
        (["--train", "{tmp}/a", "--split-by", "line"], "--split-by:"),
        (["--valid", "{tmp}/a"], "--train"),
        (["--input", "{tmp}/a", "--split", "0.5", "0.2", "0.2"], "--split:"),
        (["--input", "{tmp}/a", "--split", "0", "0.5", "0.5"], "--split:"),
        (["--input", "{tmp}/one"], "--split:"),
        (["--train", "{tmp}/a", "--dict", "{tmp}/none"], "--dict {tmp}/none"),
        (["--train", "{tmp}/a", "--dict", "{tmp}/a", "--vocab-size", "9"], "--dict:"),
        (["--train", "{tmp}/a", "--min-count", "2"], "--min-count"),
        (["--train", "{tmp}/a", "--workers", "0"], "--workers"),
        (["--train", "{tmp}/a", "--out", "{tmp}/a"], "--out"),
        (["--train", "{tmp}/a", "--out", "{tmp}"], "--out"),
    ],
)
def test_what_is_refused(tmp_path, capsys, arguments, named) -> None:
    (tmp_path / "a").write_text("a b\nc\n")
    (tmp_path / "one").write_text("a b\n")
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04\x00\x00")
    before = sorted(os.listdir(tmp_path))
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert run("--tokenized", "--text-only", "--out", tmp_path / "out", *arguments) == 2
    assert named.format(tmp=tmp_path) in capsys.readouterr().err.splitlines()[-1]
    assert sorted(os.listdir(tmp_path)) == before


def test_unknown_language_is_refused(tmp_path, capsys) -> None:
    arguments = ("--train", corpus(tmp_path / "a"), "--out", tmp_path / "out", "--language", "xx")
    assert run("--text-only", *arguments) == 2
    assert "--language" in capsys.readouterr().err


# ---------------------------------------------------------------- the earlier result


def test_overwrite_replaces_its_own_and_nothing_else(tmp_path) -> None:
    corpus(tmp_path / "a")
    text_only(tmp_path, "--train", tmp_path / "a", "--test", tmp_path / "a")
    (tmp_path / "out" / "notes").write_text("mine")
    text_only(tmp_path, "--train", tmp_path / "a", "--overwrite")
    assert sorted(os.listdir(tmp_path / "out")) == ["notes", "report.json", "text"]
    assert sorted(os.listdir(tmp_path / "out" / "text")) == ["dict.txt", "text.json", "train.txt"]


def test_overwrite_replaces_no_text_that_it_reads_and_no_foreign_text(tmp_path, capsys) -> None:
    (tmp_path / "out" / "text").mkdir(parents=True)
    mine = corpus(tmp_path / "out" / "text" / "train.txt")
    words = written(tmp_path / "out" / "text" / "dict.txt", ["w1 1"])
    corpus(tmp_path / "a")
    flags = ["--tokenized", "--text-only", "--out", tmp_path / "out", "--overwrite"]
    before = mine.read_bytes()
    for inputs, has_report in (
        (["--train", tmp_path / "a"], False),
        (["--train", mine], True),
        (["--test", tmp_path / "a", "--dict", words], True),
    ):
        if has_report:
            (tmp_path / "out" / "report.json").write_text("{}")
        assert run(*flags, *inputs) == 2
        assert "--out" in capsys.readouterr().err
        assert mine.read_bytes() == before


@pytest.mark.parametrize("step", ["_make_vocabulary", "_replace_rare_words", "write_report"])
def test_a_failure_leaves_the_earlier_result(tmp_path, monkeypatch, step) -> None:
    def fail(*_, **__) -> None:
        raise OSError(28, "No space left on device")

    text = text_only(tmp_path, "--train", corpus(tmp_path / "a"))
    before = {path: path.read_bytes() for path in text.iterdir()}
    monkeypatch.setattr(preparation, step, fail)
    flags = ["--tokenized", "--text-only", "--train", tmp_path / "a", "--overwrite", "--out"]
    for out in ("out", "new"):
        assert run(*flags, tmp_path / out) == 2
    assert {path: path.read_bytes() for path in text.iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["a", "out"]
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


def test_what_cannot_be_installed_leaves_the_earlier_result(tmp_path, monkeypatch) -> None:
    text = text_only(tmp_path, "--train", corpus(tmp_path / "a"))
    before = (text / "train.txt").read_bytes()
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "text" and path.parent.name == "result":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    flags = ["--tokenized", "--text-only", "--train", numbered(tmp_path / "b", 9), "--overwrite"]
    assert run(*flags, "--out", tmp_path / "out") == 2
    assert (text / "train.txt").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


SLOW = """
import os, sys, time
from fairseq_bnce import cli
from fairseq_bnce.data import parallel, preparation

def slow(lines, **_):
    print(os.getpid(), flush=True)
    time.sleep(1)
    return "", {}

parallel.CHUNK_BYTES = 2**12
preparation.tokenize_lines = slow
sys.exit(cli.main(["prepare-text", *sys.argv[1:]]))
"""


@contextlib.contextmanager
def working(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """A slow run with two workers, and the process id of one of them."""
    flags = ["--train", numbered(tmp_path / "b", 9000), "--tokenized", "--text-only"]
    flags += ["--workers", 2, "--overwrite", "--out", tmp_path / "out"]
    command = [sys.executable, "-c", SLOW, *map(str, flags)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)

    def hang_up() -> None:  # under nohup, too
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    with subprocess.Popen(command, env=environment, preexec_fn=hang_up, **pipes) as process:
        yield process, int(process.stdout.readline())


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_an_interrupted_run_leaves_the_earlier_result(tmp_path, number, status) -> None:
    text = text_only(tmp_path, "--train", corpus(tmp_path / "a"))
    before = (text / "train.txt").read_bytes()
    with working(tmp_path) as (process, _):
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == status and b"Traceback" not in errors
    assert (text / "train.txt").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "out")) == ["report.json", "text"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_workers_end_with_a_run_that_is_killed(tmp_path) -> None:
    with working(tmp_path) as (process, worker):
        process.kill()
        wait_until(lambda: not is_running(worker))


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
    for name, expected in report["splits"].items():
        lines = read(binarised / "text" / f"{name}.txt")
        rows = ids(binarised / "bin" / name, dictionary)
        assert [[dictionary[i] for i in row] for row in rows] == [
            [*line.split(), "</s>"] for line in lines
        ]
        counts = Counter(token for row in rows for token in row)
        assert expected == {
            "lines": len(rows),
            "types": len(counts),
            "tokens": sum(counts.values()),
            "unk": counts[dictionary.unk()],
        }


def test_existing_dictionary_gives_the_same_ids(binarised: Path, tmp_path, in_forks) -> None:
    from fairseq.data import Dictionary

    write_lines(tmp_path / "new", ["w1 w2 neverseen w1"])
    given = binarised / "bin" / "dict.txt"
    arguments = ("--test", tmp_path / "new", "--dict", given, "--out", tmp_path / "out")
    assert run("--tokenized", *arguments) == 0
    assert (tmp_path / "out" / "bin" / "dict.txt").read_bytes() == given.read_bytes()
    dictionary = Dictionary.load(str(given))
    w1, w2 = dictionary.index("w1"), dictionary.index("w2")
    assert ids(tmp_path / "out" / "bin" / "test", dictionary) == [[w1, w2, 3, w1, 2]]


FAILING = "def cli_main():\n    raise SystemExit('no room')\n\n\ncli_main()\n"
SLEEPING = "import os, time\n\nos.fork()\nopen(f'../../{os.getpid()}', 'w')\ntime.sleep(600)\n"


def with_preprocess(folder: Path, program: str, monkeypatch) -> None:
    """Put another program in the place of fairseq-preprocess."""
    (folder / "fairseq_cli").mkdir()
    (folder / "fairseq_cli" / "__init__.py").touch()
    (folder / "fairseq_cli" / "preprocess.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")


def test_failure_of_fairseq_is_shown(tmp_path, capsys, monkeypatch) -> None:
    with_preprocess(tmp_path, FAILING, monkeypatch)
    flags = ["--tokenized", "--train", corpus(tmp_path / "a"), "--out", tmp_path / "out"]
    assert run(*flags) == 2
    assert "no room" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a", "fairseq_cli"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_fairseq_ends_with_the_command(tmp_path, monkeypatch) -> None:
    """And so do its workers."""
    with_preprocess(tmp_path, SLEEPING, monkeypatch)
    flags = ["--train", corpus(tmp_path / "a"), "--out", tmp_path / "out", "--workers", 1]
    with subprocess.Popen([*COMMAND, *map(str, flags)]) as process:
        wait_until(lambda: len(pids(tmp_path)) == 2)
        process.terminate()
    assert process.returncode == 143
    wait_until(lambda: not any(map(is_running, pids(tmp_path))))
    assert not (tmp_path / "out").exists()


def pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(is_so, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
