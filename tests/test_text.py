"""Lines in and out, and the words of lines."""

import bz2
import gzip
import lzma
import os
import random
import subprocess
from pydoc_data.topics import topics

import pytest
from sacremoses import MosesTokenizer

from fairseq_bnce.errors import InputError
from fairseq_bnce.text import tokens
from fairseq_bnce.text.reading import TextLines, numbered_lines
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText
from fairseq_bnce.text.writing import Output

# ---------------------------------------------------------------- in


COMPRESSED = (gzip, bz2, lzma)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_compressed_file_is_read_as_its_text(kind, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(kind.compress(b"one two\r\nthree"))
    text = TextLines([str(path)] * 2)  # a last line may lack its end
    assert list(text) == ["one two", "three"] * 2
    assert text.total_bytes == 2 * os.path.getsize(path)
    assert [line.text for line in numbered_lines(str(path))] == ["one two\r", "three"]


def test_a_compressed_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(gzip.compress(b"one two\nthree\n" * 9))
    with subprocess.Popen(f"cat {tmp_path}/file > {tmp_path}/pipe", shell=True):
        assert list(TextLines([str(tmp_path / "pipe")])) == ["one two", "three"] * 9


MUCH = b"".join(b"line %d\n" % number for number in range(10_000))
NO_TEXTS = {"zip": b"PK\3\4 zip", "utf-16": "one two\n".encode("utf-16-le")}
NO_TEXTS.update({f"cut {kind.__name__}": kind.compress(MUCH)[:-20] for kind in COMPRESSED})


@pytest.mark.parametrize("kind", NO_TEXTS)
def test_files_that_are_no_whole_text_in_utf8_are_refused(kind, tmp_path):
    """The second of several files, too."""
    (tmp_path / "good").write_bytes(b"one two\n")
    (tmp_path / "bad").write_bytes(NO_TEXTS[kind])
    found = iter(TextLines([str(tmp_path / "good"), str(tmp_path / "bad")]))
    assert next(found) == "one two"
    for lines in (found, numbered_lines(str(tmp_path / "bad"))):
        with pytest.raises(InputError, match="bad"):
            list(lines)


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


@pytest.mark.parametrize("language", ["en", "fr"])
def test_remembered_words_are_those_that_sacremoses_makes_of_whole_lines(language):
    """On Python's documentation, and on lines made to mislead."""
    rng = random.Random(language)
    made = ["".join(rng.choices(PIECES, k=rng.randint(1, 14))) for _ in range(500)]
    lines = [*TRICKY, *made, *"".join(topics.values()).splitlines()[::20]]
    alone = MosesTokenizer(language)
    for line in lines:
        assert tokens.moses_words(line, language) == alone.tokenize(line, escape=False), repr(line)


# ---------------------------------------------------------------- out


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
    """And the lines that were written by then."""
    path, part = tmp_path / "out", tmp_path / "out.part"
    path.write_text("old\n")
    for lines in ([], ["hours of work"]):
        caplog.clear()
        with pytest.raises(KeyboardInterrupt), Output(str(path)) as out:
            for line in lines:
                out.write(line)
            raise KeyboardInterrupt
        assert path.read_text() == "old\n"
        assert part.exists() == (str(part) in caplog.text) == bool(lines)
    assert part.read_text() == "hours of work\n"
    with Output(str(path)):
        pass
    assert path.read_text() == "" and os.listdir(tmp_path) == ["out"]


def test_a_device_stays_a_device():
    with Output("/dev/null") as out:
        out.write("nothing of it is kept")
    assert not os.path.isfile("/dev/null")
