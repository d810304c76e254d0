"""Lines in and out: what a name stands for, and what is no text."""

import bz2
import errno
import fcntl
import gzip
import lzma
import math
import os
import random
import subprocess
import sys
from pydoc_data.topics import topics

import pytest
from sacremoses import MosesTokenizer

from fairseq_bnce.errors import InputError
from fairseq_bnce.text import tokens
from fairseq_bnce.text.lines import LineSource
from fairseq_bnce.text.numerals import NEGATIVE, decimal
from fairseq_bnce.text.output import Output
from fairseq_bnce.text.stream import TextLines
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText

# ---------------------------------------------------------------- in


@pytest.mark.parametrize("kind", [gzip, bz2, lzma])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_compressed_file_is_read_as_its_text(kind, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(kind.compress(b"one two\r\nthree\n"))
    text = TextLines([str(path)])
    assert list(text) == ["one two", "three"] and text.total_bytes is None
    whole = kind.compress(b"".join(b"line %d\n" % i for i in range(10_000)))
    for damaged in (whole[:-20], whole[:200] + b"x" * 200 + whole[400:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.txt.*: required readable text, got: ."):
            list(TextLines([str(path)]))


def test_a_text_that_is_named_as_if_compressed(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"one two\n")
    text = TextLines([str(tmp_path / "a.gz")])
    assert list(text) == ["one two"] and text.total_bytes == 8


@pytest.mark.parametrize("kind", [gzip, bz2, lzma])
def test_a_compressed_pipe(kind, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(kind.compress(b"one two\nthree\n" * 9))
    with subprocess.Popen(f"cat {tmp_path}/file > {tmp_path}/pipe", shell=True):
        assert list(TextLines([str(tmp_path / "pipe")])) == ["one two", "three"] * 9


@pytest.mark.parametrize(
    "content, kind",
    [
        (b"\x28\xb5\x2f\xfd one", "zstd"),
        (b"PK\3\4 one", "a zip archive"),
        ("one two\n".encode("utf-16"), "UTF-16"),
        (gzip.compress("one two\n".encode("utf-16")), "UTF-16"),
        ("one two\n".encode("utf-16-le"), "as many zero bytes as UTF-16 has"),
        ("one two\n".encode("utf-32"), "UTF-32"),
    ],
)
def test_what_is_no_utf8_from_the_first_byte_is_refused(content, kind, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.txt.*: required UTF-8 text, got {kind}"):
        list(TextLines([str(path)]))
    with pytest.raises(InputError, match=rf"a\.txt.*: required UTF-8 text, got {kind}"):
        list(LineSource(str(path)))


def test_the_second_file_is_looked_at_as_the_first_is(tmp_path):
    (tmp_path / "good").write_bytes(b"one two\n")
    (tmp_path / "bad").write_bytes("one two\n".encode("utf-16"))
    lines = iter(TextLines([str(tmp_path / "good"), str(tmp_path / "bad")]))
    assert next(lines) == "one two"
    with pytest.raises(InputError, match="bad.: required UTF-8 text, got UTF-16"):
        next(lines)


@pytest.mark.parametrize("tokenizer, language", [(NONE, None), (SACREMOSES, "en")])
def test_the_ends_of_a_sentence_are_dropped(tokenizer, language):
    made = TrainingText(tokenizer, language, lowercase=True)
    for words in (made.words, made.new_words):
        last = ["<unk>", "."] if language else ["<unk>."]
        assert words("<s> One two <unk>. </s>") == ["one", "two", *last]
        assert words("<s> a </s>") == ["a"]


# ---------------------------------------------------------------- words

PIECES = [
    "a",
    "A",
    "1",
    "x",
    "Mr",
    "No",
    "etc",
    "U.S",
    "s'",
    "n't",
    "\xe9",
    "\u0661",
    "\u4e2d",
    "\xdf",
]
PIECES += [
    " ",
    " ",
    " ",
    "  ",
    "\xa0",
    "'",
    "'",
    ",",
    ",",
    ".",
    ".",
    "..",
    '"',
    "`",
    "-",
    "--",
    "(",
    ")",
]
PIECES += [
    "&",
    "<unk>",
    "\u20ac",
    "\u2019",
    "\x01",
    "\x1c",
    "DOTMULTI",
    "!",
    "@-@",
    "&apos;",
    "%",
    "/",
]
TRICKY = [
    "a,,1",
    "' '5",
    "x' 'y",
    ",5 ,5",
    "end. 5",
    "end. b",
    "end. B",
    "'tis. 'Tis",
    "\x01 .' \x01",
]


@pytest.mark.parametrize("language", ["en", "fr", "de", "fi"])
def test_remembered_words_are_those_that_sacremoses_makes_of_whole_lines(language):
    """On Python's documentation, code and all, and on lines made to mislead."""
    rng = random.Random(language)
    made = ["".join(rng.choices(PIECES, k=rng.randint(1, 14))) for _ in range(1500)]
    lines = [*TRICKY, *made, *"".join(topics.values()).splitlines()[::7]]
    alone = MosesTokenizer(language)
    for line in lines:
        assert tokens.moses_words(line, language) == alone.tokenize(line, escape=False), repr(line)


# ---------------------------------------------------------------- numbers


def test_many_digits_are_read_once():
    """Where they end in what is no number, too: not once for each place of a dot."""
    digits = "7" * 1_000_000
    assert decimal(f"-{digits}.") == -math.inf
    for end in ("x", ".x", "e", "e+", ".7x"):
        assert decimal(digits + end) is None


@pytest.mark.parametrize("text", ["-1", "-1.", "-.5", "-1e5", "-9.1E-05", "-inf", "-NaN"])
def test_a_negative_number_is_told_from_a_flag(text):
    assert NEGATIVE.match(text) and decimal(text) is not None
    for other in (text[1:], f"-{text}", f"{text}x", f"{text} ", f"{text}\n", f"+{text[1:]}"):
        assert not NEGATIVE.match(other)


# ---------------------------------------------------------------- out


def written_to(name, cwd, **options):
    """By a process of its own, of "a line"."""
    code = f"from fairseq_bnce.text.output import Output\nwith Output({name!r}) as out:\n"
    code += "    out.write('a line')\n"
    subprocess.run([sys.executable, "-c", code], cwd=cwd, check=True, **options)


@pytest.mark.parametrize("name", ["/dev/stdout", "link", "-"])
def test_standard_output_by_another_name(name, tmp_path):
    """It stays what it is, a file too, to which more may have been written."""
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    with open(tmp_path / "got", "wb") as got:
        got.write(b"before\n")
        got.flush()
        written_to(name, tmp_path, stdout=got)
    assert (tmp_path / "got").read_bytes() == b"before\na line\n"
    assert (tmp_path / "link").is_symlink() and sorted(os.listdir(tmp_path)) == ["got", "link"]


def test_the_file_that_a_link_names_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "real").write_text("old\n")
    (tmp_path / "link").symlink_to("disk/real")
    written_to("link", tmp_path)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real").read_text() == "a line\n"
    assert os.listdir(tmp_path / "disk") == ["real"]


def test_a_name_that_promises_gzip_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"b\.gz: required a name without \.gz"):
        Output(str(tmp_path / "b.gz"))


def test_two_runs_write_no_file_at_once(tmp_path):
    """The second ends before it has touched what the first one has written."""
    name = str(tmp_path / "out")
    with Output(name) as first:
        first.write("a line")
        first.flush()
        with pytest.raises(InputError, match="out: required a file that no other run is writing"):
            Output(name)
        assert (tmp_path / "out.part").read_text() == "a line\n"
        first.write("another")
    assert (tmp_path / "out").read_text() == "a line\nanother\n"
    written_to("out", tmp_path)
    assert (tmp_path / "out").read_text() == "a line\n" and os.listdir(tmp_path) == ["out"]


def test_a_file_that_another_run_finishes_is_not_taken_from_it(tmp_path, monkeypatch):
    """Between this one's opening it and locking it."""
    lock = fcntl.flock

    def late(*arguments):
        os.replace(tmp_path / "out.part", tmp_path / "out")
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InputError, match="out: required a file that no other run is writing"):
        Output(str(tmp_path / "out"))


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Output(str(tmp_path / "out")) as out:
        out.write("a line")
    assert (tmp_path / "out").read_text() == "a line\n"
