"""Lines in and out, and the words of lines."""

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
from pydoc_data.topics import topics

import pytest
from sacremoses import MosesTokenizer

from fairseq_bnce.errors import InputError
from fairseq_bnce.text import tokens
from fairseq_bnce.text.numerals import NEGATIVE
from fairseq_bnce.text.reading import LineSource, TextLines
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import Output

# ---------------------------------------------------------------- in


@pytest.mark.parametrize("kind", [gzip, bz2, lzma])
def test_a_compressed_file_is_read_as_its_text(kind, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(kind.compress(b"one two\r\nthree\n"))
    text = TextLines([str(path)])
    assert list(text) == ["one two", "three"] and text.total_bytes is None
    assert [line.text for line in LineSource(str(path))] == ["one two\r", "three"]
    whole = kind.compress(b"".join(b"line %d\n" % i for i in range(10_000)))
    for damaged in (whole[:-20], whole[:200] + b"x" * 200 + whole[400:]):
        path.write_bytes(damaged)
        for lines in (TextLines([str(path)]), LineSource(str(path))):
            with pytest.raises(InputError, match=r"a\.txt: "):
                list(lines)


def test_a_text_that_is_named_as_if_compressed(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"one two\n")
    text = TextLines([str(tmp_path / "a.gz")])
    assert list(text) == ["one two"] and text.total_bytes == 8


def test_a_compressed_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(gzip.compress(b"one two\nthree\n" * 9))
    with subprocess.Popen(f"cat {tmp_path}/file > {tmp_path}/pipe", shell=True):
        assert list(TextLines([str(tmp_path / "pipe")])) == ["one two", "three"] * 9


@pytest.mark.parametrize(
    "content",
    [
        b"\x28\xb5\x2f\xfd zstd",
        b"PK\3\4 zip",
        gzip.compress("one two\n".encode("utf-16")),
        *("one two\n".encode(code) for code in ("utf-16", "utf-16-le", "utf-32")),
    ],
)
def test_files_that_are_not_utf8_text_are_refused(content, tmp_path):
    """The second of several files, too."""
    (tmp_path / "good").write_bytes(b"one two\n")
    (tmp_path / "bad").write_bytes(content)
    found = iter(TextLines([str(tmp_path / "good"), str(tmp_path / "bad")]))
    assert next(found) == "one two"
    with pytest.raises(InputError, match="bad: required UTF-8"):
        next(found)
    with pytest.raises(InputError, match="bad: required UTF-8"):
        list(LineSource(str(tmp_path / "bad")))


@pytest.mark.parametrize("reader", [LineSource, lambda name: TextLines([name])])
def test_a_file_that_is_not_there(reader, tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=f"{path}: "):
            reader(str(path))


# ---------------------------------------------------------------- words


@pytest.mark.parametrize("tokenizer, language", [(NONE, None), (SACREMOSES, "en")])
def test_the_ends_of_a_sentence_are_dropped(tokenizer, language):
    made = TrainingText(tokenizer, language, lowercase=True)
    for words in (made.words, made.new_words):
        last = ["<unk>", "."] if language else ["<unk>."]
        assert words("<s> One two <unk>. </s>") == ["one", "two", *last]
        assert words("<s> a </s>") == ["a"]


PIECES = ["a", "A", "1", "x", "Mr", "No", "etc", "U.S", "s'", "n't", "\xe9", "\u0661", "\u4e2d"]
PIECES += [*"    ''',,..", "\xdf", "  ", "\xa0", "..", '"', "`", "-", "--", "(", ")", "&", "<unk>"]
PIECES += ["\u20ac", "\u2019", "\x01", "\x1c", "DOTMULTI", "!", "@-@", "&apos;", "%", "/"]
TRICKY = ["a,,1", "' '5", "x' 'y", ",5 ,5", "end. 5", "end. b", "end. B", "'tis. 'Tis", "\x01 .' "]


@pytest.mark.parametrize("language", ["en", "fr", "de", "fi"])
def test_remembered_words_are_those_that_sacremoses_makes_of_whole_lines(language):
    """On Python's documentation, and on lines made to mislead."""
    rng = random.Random(language)
    made = ["".join(rng.choices(PIECES, k=rng.randint(1, 14))) for _ in range(1500)]
    lines = [*TRICKY, *made, *"".join(topics.values()).splitlines()[::7]]
    alone = MosesTokenizer(language)
    for line in lines:
        assert tokens.moses_words(line, language) == alone.tokenize(line, escape=False), repr(line)


@pytest.mark.parametrize("text", ["-1", "-1.", "-.5", "-1e5", "-9.1E-05", "-inf", "-NaN"])
def test_a_negative_number_is_told_from_a_flag(text):
    assert NEGATIVE.match(text) and float(text) != 0
    for other in (text[1:], f"-{text}", f"{text}x", f"{text}\n", f"+{text[1:]}"):
        assert not NEGATIVE.match(other)


# ---------------------------------------------------------------- out


def written_to(name, cwd, **options):
    """By a process of its own, of "a line"."""
    code = f"from fairseq_bnce.text.writing import Output\nwith Output({name!r}) as out:\n"
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
    with Output(str(tmp_path / "link")) as out:
        out.write("new \udcff")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real").read_bytes() == b"new \xff\n"
    assert os.listdir(tmp_path / "disk") == ["real"]


def test_an_error_leaves_the_earlier_file(tmp_path, caplog):
    """What was written by then is kept until the next run writes a line."""
    path, part = tmp_path / "out", tmp_path / "out.part"

    def interrupted(*lines):
        caplog.clear()
        with pytest.raises(KeyboardInterrupt), Output(str(path)) as out:
            for line in lines:
                out.write(line)
            raise KeyboardInterrupt

    path.write_text("old\n")
    interrupted()
    assert os.listdir(tmp_path) == ["out"] and not caplog.text
    interrupted("hours of work")
    assert str(part) in caplog.text
    interrupted()
    assert path.read_text() == "old\n" and part.read_text() == "hours of work\n"
    interrupted("more")
    assert path.read_text() == "old\n" and part.read_text() == "more\n"
    with Output(str(path)):
        pass
    assert path.read_text() == "" and os.listdir(tmp_path) == ["out"]


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="none/out: "):
        Output(str(tmp_path / "none" / "out"))
    with open("/dev/null", "rb") as null, Output("/dev/null") as out:
        out.write("a device stays one")
        assert null.read() == b""
