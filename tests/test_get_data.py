"""fairseq-bnce get-data: fetching, then every recipe on an archive of its form, made here."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import forks
import pytest
from tools import call_command

from fairseq_bnce.data.corpora import archives, fetch, novels, recipe, sentences, wikipedia
from fairseq_bnce.data.corpora.fetch import Archive
from fairseq_bnce.data.corpora.table import CORPORA, Published, billion_split
from fairseq_bnce.data.preparation import progress
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.penn import penn_words

ROOT = Path(__file__).resolve().parents[1]

CONTENT = bytes(range(256)) * 40
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def make_tar(path: Path, files: dict[str, str], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def make_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


# ---------------------------------------------------------------- fetching


class Server:
    """A file at an address; ``served`` bytes of it a request, with or without ranges."""

    def __init__(self) -> None:
        self.ranges = True
        self.served = len(CONTENT)
        self.asked: list[str | None] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wish = request.headers.get("Range")
        self.asked.append(wish)
        start = int(re.findall(r"\d+", wish)[0]) if wish and self.ranges else 0
        if start >= len(CONTENT):
            return request.send_error(416)
        request.send_response(206 if start else 200)
        if start:
            end = len(CONTENT) - 1
            request.send_header("Content-Range", f"bytes {start}-{end}/{len(CONTENT)}")
        request.send_header("Content-Length", str(len(CONTENT) - start))
        request.end_headers()
        request.wfile.write(CONTENT[start : start + self.served])


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Of this machine's, which may have one for all addresses."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server():
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_address[1]}/a.zip"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        http.shutdown()


def test_download(server, tmp_path) -> None:
    fetch.download(server.url, tmp_path / "new" / "a.zip", MD5)
    assert (tmp_path / "new" / "a.zip").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.zip"]
    assert server.asked == [None]


def test_a_full_disk_is_no_broken_connection(server, tmp_path, monkeypatch) -> None:
    def full(*_, **__) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(progress.tqdm, "update", full)  # which follows a block's being written
    with pytest.raises(InputError, match="cannot be had .*No space left on device"):
        fetch.download(server.url, tmp_path / "a.zip", MD5)


def test_download_goes_on_where_it_broke_off(server, tmp_path) -> None:
    (tmp_path / "a.zip.part").write_bytes(CONTENT[:1000])
    server.served = 5000  # then the connection breaks
    fetch.download(server.url, tmp_path / "a.zip", MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", "bytes=6000-"]


def test_connection_that_keeps_breaking(server, tmp_path) -> None:
    server.served = 10
    with pytest.raises(InputError, match=r"broke \(30 of 10,240 bytes came\): the same command"):
        fetch.download(server.url, tmp_path / "new" / "a.zip", MD5)
    assert (tmp_path / "new" / "a.zip.part").read_bytes() == CONTENT[:30]
    assert not (tmp_path / "new" / "a.zip").exists()


def test_server_without_ranges_starts_anew(server, tmp_path) -> None:
    (tmp_path / "a.zip.part").write_bytes(b"x" * 20_000)  # longer than the file
    server.ranges = False
    fetch.download(server.url, tmp_path / "a.zip", MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_part_that_is_whole_is_taken(server, tmp_path) -> None:
    (tmp_path / "a.zip.part").write_bytes(CONTENT)
    fetch.download(server.url, tmp_path / "a.zip", MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert server.asked == ["bytes=10240-"]


def test_wrong_checksum_is_refused_and_not_kept(server, tmp_path) -> None:
    with pytest.raises(InputError, match=r"sha256 00 is required, but came [0-9a-f]{64} \(10,240"):
        fetch.download(server.url, tmp_path / "new" / "a.zip", "sha256:00")
    archive = Archive(("a.zip",), server.url, "", {"a.zip": "sha256:00"})
    with pytest.raises(InputError, match=r"sha256 00 is required, but came [0-9a-f]{64} \(10,240"):
        fetch.locate(archive, None, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip"
        with pytest.raises(InputError, match="a.zip is required, but .* cannot be had .*timed out"):
            fetch.download(url, tmp_path / "a.zip", None)


def test_recipes_make_the_published_vocabularies() -> None:
    found = {name: " ".join(CORPORA[name].options) for name in ("ltcb", "obwb", "mscc")}
    assert found == {
        "ltcb": "--vocab-size 80000 --split 0.8944 0.0525 0.0531",
        "obwb": "--min-count 3",
        "mscc": "--min-count 10 --split 0.99 0.005 0.005 --split-by line",
    }


def test_without_a_network_the_file_and_its_place_are_named(tmp_path) -> None:
    """And no folder is left, neither the cache nor one above it."""
    archive = Archive(("a.zip",), "http://127.0.0.1:9/a.zip", "its pages")
    cache = tmp_path / "new" / "cache"
    with pytest.raises(InputError) as caught:
        fetch.locate(archive, None, cache)
    assert list(tmp_path.iterdir()) == []
    message = str(caught.value)
    assert "a.zip is required, but http://127.0.0.1:9/a.zip cannot be had" in message
    assert f"put it at {cache / 'a.zip'}, or give it as --source" in message


def test_archive_without_an_address(tmp_path) -> None:
    with pytest.raises(InputError, match="a.zip is required, .* fetch it from its pages and give"):
        fetch.locate(Archive(("a.zip",), None, "its pages"), None, tmp_path)


def test_local_copies_are_found_and_compared(tmp_path, capsys) -> None:
    archive = Archive(("a.zip", "b.zip"), None, "", {"b.zip": MD5})
    (tmp_path / "b.zip").write_bytes(CONTENT)
    for source, cache in ((tmp_path, None), (tmp_path / "b.zip", None), (None, tmp_path)):
        assert fetch.locate(archive, source, cache) == tmp_path / "b.zip"
    assert capsys.readouterr().out == ""
    (tmp_path / "b.zip").write_bytes(b"other")
    fetch.locate(archive, tmp_path, tmp_path)
    assert "b.zip is not the published file: md5" in capsys.readouterr().out
    other = tmp_path / os.fsdecode(b"caf\xe9")
    other.mkdir()
    (other / "b.zip").write_bytes(b"other")
    fetch.locate(archive, other, tmp_path)
    assert r"caf\udce9/b.zip is not the published file: md5" in capsys.readouterr().out
    with pytest.raises(InputError, match="none does not exist"):
        fetch.locate(archive, tmp_path / "none", tmp_path)


def test_known_checksums_have_a_form() -> None:
    for corpus in CORPORA.values():
        for checksum in corpus.archive.checksums.values():
            assert re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", checksum)


# ---------------------------------------------------------------- archives


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz", "folder"])
def test_members(tmp_path, kind: str) -> None:
    files = {"a/b.txt": "one\n", "c.txt": "two"}
    source = tmp_path / f"x.{kind}"
    if kind == "zip":
        make_zip(source, files)
    elif kind == "folder":
        (source / "a").mkdir(parents=True)
        for name, text in files.items():
            (source / name).write_text(text)
    else:
        make_tar(source, files, {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}[kind])
    found = {name: stream.read().decode() for name, stream in archives.members(source)}
    assert found == files


def test_plain_file_is_its_own_member(tmp_path) -> None:
    (tmp_path / "enwik9").write_text("x")
    assert [name for name, _ in archives.members(tmp_path / "enwik9")] == ["enwik9"]


def test_cut_off_archive_is_named(tmp_path, capsys) -> None:
    files = {f"simple-examples/data/{name}": "a b\n" * 50_000 for name in ("ptb.train.txt",)}
    source = make_tar(tmp_path / "simple-examples.tgz", files)
    source.write_bytes(source.read_bytes()[:-100])
    assert run("ptb", source, tmp_path) == 2
    error = capsys.readouterr().err
    assert "simple-examples.tgz: a whole archive is required, but it is damaged" in error


@pytest.mark.parametrize(
    ("flags", "method", "reason"),
    [(1, zipfile.ZIP_DEFLATED, "is encrypted, password required"), (0, 9, "compression")],
)
def test_a_zip_archive_that_python_cannot_unpack(tmp_path, capsys, flags, method, reason) -> None:
    """Of a password, or of Deflate64, as Windows writes those of 2 GB and more."""
    source = make_zip(tmp_path / "texts.zip", {"a/ptb.train.txt": "a b\n"})
    content = bytearray(source.read_bytes())
    entry = content.index(b"PK\1\2")  # in the directory at the end, which is what is read
    content[entry + 8 : entry + 12] = struct.pack("<HH", flags, method)
    content[6:10] = struct.pack("<HH", flags, method)
    source.write_bytes(content)
    assert run("ptb", source, tmp_path) == 2
    error = capsys.readouterr().err
    assert f"{source}: a zip archive that can be unpacked is required, but its a/ptb" in error
    assert reason in error


# ---------------------------------------------------------------- sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ('"Go!" He went. "Why?"', ['"Go!"', "He went.", '"Why?"']),
        ("Mr. Smith met J. B. Jones at St. Paul's.", None),
        ("He was in the U.S. Army, e.g. there.", None),
        ("It cost 3.50 dollars. e", None),
        ("So said I. Then he left.", ["So said I.", "Then he left."]),
    ],
)
def test_sentences(text: str, expected: list[str] | None) -> None:
    assert list(sentences.split_sentences(text)) == (expected or [text])


def test_marks_are_looked_at_once() -> None:
    """8,000 took 0.6 s, by the square of their number: these would take half an hour."""
    text = f"a{'!' * 400_000}b. {'C. ' * 100_000}D"
    assert len(list(sentences.split_sentences(text))) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"I don\'t," said Mr. Hood.', "`` I do n't , '' said Mr. Hood ."),
        ("It's Tom's--isn't it?", "It 's Tom 's -- is n't it ?"),
        ("'Yes,' he said. . . .", "` Yes , ' he said ..."),
        ("'Twas 1,000 at 10:30; the boys' end", "'T was 1,000 at 10:30 ; the boys ' end"),
        ("We cannot (ever) stop it!", "We can not ( ever ) stop it !"),
        ("He ended it.'", "He ended it . '"),
        ("already , split up .", "already , split up ."),
    ],
)
def test_penn_words(text: str, expected: str) -> None:
    assert " ".join(penn_words(text)) == expected


# ---------------------------------------------------------------- Wikipedia

DUMP = """<mediawiki>
<page><title>No</title><text xml:space="preserve">#REDIRECT [[Yes]]</text></page>
<page><title>A &amp; B</title><text xml:space="preserve">{{icon|
x}}'''Anarchism''' is [[Politics|political]] in the U.S. today. It &quot;began&quot; in 1840!
[[Image:x.png|thumb|30px|A caption]] [[de:Wort]]&lt;ref&gt;gone&lt;/ref&gt; caf\xe9
[http://x.y a link]
{| table
| cell
|}
[[Category:Ideas|Z]]</text></page></mediawiki>
"""
ARTICLE = [
    "anarchism is political in the u s today",
    "it began in one eight four zero",
    "a caption caf",
    "a link",
    "ideas",
]


def test_wikipedia_as_wikifil_has_it() -> None:
    assert list(wikipedia.dump_sentences(io.BytesIO(DUMP.encode("latin-1")))) == ARTICLE


def test_a_byte_of_a_letter_ends_no_line() -> None:
    """The second one of an A with a ring is that of a line end, U+0085, elsewhere."""
    text = (
        '<text xml:space="preserve">Born near \N{LATIN CAPITAL LETTER A WITH RING ABOVE}s.</text>'
    )
    assert list(wikipedia.dump_sentences(io.BytesIO(text.encode()))) == ["born near s"]


def test_records_do_not_depend_on_blocks(monkeypatch) -> None:
    monkeypatch.setattr(wikipedia, "BLOCK", 7)
    assert list(wikipedia.dump_sentences(io.BytesIO(DUMP.encode("latin-1")))) == ARTICLE
    monkeypatch.setattr(wikipedia, "RECORD_LIMIT", 50)
    with pytest.raises(InputError, match="there is no tag in a piece of"):
        list(wikipedia.records(io.BytesIO(b"x" * 100)))


# ---------------------------------------------------------------- novels

HEADER = "Project Gutenberg's Etext\n***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**\n"
HEADER += "legal\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n"
BODY = 'A TALE\n\nThe _end of_ it was\nnear.  "Go," said\nMr. Hood.\n\nWell-\nknown words.\n\n'
NOVEL = [
    "a tale",
    "the end of it was near .",
    "`` go , '' said mr. hood .",
    "well-known words .",
]


@pytest.mark.parametrize(
    "footer",
    [
        "",
        "\x1a\n",
        "THE END\n\nEnd of Project Gutenberg's Etext of A Tale\nmore\n",
        "End Of\nThe Project Gutenberg Etext of Volume 1:\nA Tale\n",
        "**The Project Gutenberg Etext of A Tale, by Nobody**\n",
        "This is the end of the Project Gutenberg Edition of A Tale\n",
        "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***\nlicence\n" * 3,
    ],
)
def test_novels_lose_header_and_footer(footer: str) -> None:
    assert list(novels.novel_sentences((HEADER + BODY + footer).encode())) == NOVEL


def test_later_header_and_none() -> None:
    later = "Produced by X\n*** START OF THIS PROJECT GUTENBERG EBOOK A TALE ***\n\n"
    for header in (later, ""):
        assert list(novels.novel_sentences((header + BODY).encode())) == NOVEL


def test_old_code_page() -> None:
    assert novels.decode("café".encode("cp437")) == novels.decode("café".encode()) == "café"


# ---------------------------------------------------------------- the recipes


def run(corpus: str, source: Path, tmp_path: Path, *arguments: object) -> int:
    command = [corpus, "--source", source, "--out", tmp_path / "out", "--workers", 1]
    return call_command("get-data", *command, "--text-only", *arguments)


def splits(tmp_path: Path) -> dict[str, list[str]]:
    return {s: read(tmp_path / "out" / "text" / f"{s}.txt") for s in ("train", "valid", "test")}


def test_ptb_from_archive_and_folder(tmp_path, capsys) -> None:
    files = {"train": "a <unk> N\n b a \n", "valid": "a b\n", "test": "b c"}
    named = {f"./simple-examples/data/ptb.{s}.txt": text for s, text in files.items()}
    named["./simple-examples/data/ptb.char.train.txt"] = "no"
    source = make_tar(tmp_path / "simple-examples.tgz", named)
    folder = tmp_path / "folder"
    folder.mkdir()
    for split, text in files.items():
        (folder / f"ptb.{split}.txt").write_text(text)
    for given in (source, folder):
        assert run("ptb", given, tmp_path, "--overwrite") == 0
        expected = {"train": ["a <unk> N", "b a"], "valid": ["a b"], "test": ["b <unk>"]}
        assert splits(tmp_path) == expected
        printed = capsys.readouterr().out
        assert "warning: types: 10,000 are published, but came 5" in printed
        assert "is not the published file: md5" in printed
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["corpus"]["name"] == "ptb"
    assert {"what": "test tokens", "published": 82_430, "here": 3} in report["corpus"]["counts"]
    assert "train" not in report["settings"]


def test_wikitext_keeps_empty_lines_and_its_unk(tmp_path) -> None:
    text = " \n = Title = \n \n the <unk> @-@ end . \n"
    files = {f"wikitext-2/wiki.{s}.tokens": text for s in ("train", "valid", "test")}
    assert run("wikitext-2", make_zip(tmp_path / "wikitext-2-v1.zip", files), tmp_path) == 0
    assert splits(tmp_path)["test"] == ["", "= Title =", "", "the <unk> @-@ end ."]


def test_ltcb_from_archive_and_bare_file(tmp_path) -> None:
    dump = DUMP.replace("\xe9", "") * 5
    (tmp_path / "enwik9").write_text(dump)
    for source in (make_zip(tmp_path / "enwik9.zip", {"enwik9": dump}), tmp_path / "enwik9"):
        extra = ("--overwrite", "--vocab-size", 8, "--split", 0.8, 0.1, 0.1)
        assert run("ltcb", source, tmp_path, *extra) == 0
        found = splits(tmp_path)
        assert [len(lines) for lines in found.values()] == [20, 3, 2]
        dictionary = read(tmp_path / "out" / "text" / "dict.txt")
        assert len([line for line in dictionary if not line.endswith(" 0")]) == 6


def billion_archive(path: Path, sentences_a_shard: int = 4) -> Path:
    top = "1-billion/"
    shard = "".join(f"w{i % 3} often w{i} .\n" for i in range(sentences_a_shard))
    files = {f"{top}training-m/news.en-{i:05d}-of-00100": shard for i in (1, 2, 99)}
    files[f"{top}heldout-m/news.en-00000-of-00100"] = "all held-out text\n"
    files.update({f"{top}heldout-m/news.en.heldout-{i:05d}-of-00050": f"{i}\n" for i in range(50)})
    return make_tar(path, files)


def test_billion_words(tmp_path, capsys) -> None:
    source = billion_archive(tmp_path / "b.tar.gz")
    assert run("obwb", source, tmp_path) == 0
    found = splits(tmp_path)
    assert (
        found["train"] == ["w0 often w0 .", "w1 often w1 .", "w2 often w2 .", "w0 often w3 ."] * 3
    )
    assert [len(lines) for lines in found.values()] == [12, 5, 45]
    printed = capsys.readouterr().out
    assert "warning: train: 99 shards are published, but came 3" in printed
    assert "types: 793,471 are published, but came 8" in printed  # <s>, which fairseq lacks, too


def test_billion_shards() -> None:
    top = "1-billion-word-language-modeling-benchmark-r13output/"
    for name, split in {
        "training-monolingual.tokenized.shuffled/news.en-00001-of-00100": "train",
        "training-monolingual.tokenized.shuffled/news.en-00099-of-00100": "train",
        "heldout-monolingual.tokenized.shuffled/news.en-00000-of-00100": None,
        "heldout-monolingual.tokenized.shuffled/news.en.heldout-00004-of-00050": "valid",
        "heldout-monolingual.tokenized.shuffled/news.en.heldout-00005-of-00050": "test",
        "training-monolingual.tokenized.shuffled/._news.en-00001-of-00100": None,
        "README": None,
    }.items():
        assert billion_split(top + name) == split


MEASURE = """
import sys
sys.path[:0] = sys.argv[1:3]
from memory import memory
from fairseq_bnce import cli
assert cli.main(["get-data", *sys.argv[3:]]) == 0
print(memory(), file=sys.stderr)
"""


def peak(tmp_path: Path, name: str, sentences_a_shard: int) -> int:
    source = billion_archive(tmp_path / f"{name}.tar.gz", sentences_a_shard)
    command = [sys.executable, "-c", MEASURE, ROOT, ROOT / "tests", "obwb", "--source", source]
    command += ["--out", tmp_path / name, "--text-only", "--workers", "1"]
    done = subprocess.run([*map(str, command)], stderr=subprocess.PIPE, check=True)
    return int(done.stderr.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
def test_memory_does_not_grow_with_tokens(tmp_path, monkeypatch) -> None:
    # The same types in both: 10,000 words and four, repeated.
    text = "".join(f"w{i} is a word .\n" for i in range(10_000))
    monkeypatch.setattr(sys.modules[__name__], "billion_archive", repeated_archive(text))
    small, large = peak(tmp_path, "small", 5), peak(tmp_path, "large", 105)
    assert large - small < 8 * 2**20, (small, large)  # for 17 MB more of text


def repeated_archive(text: str):
    def make(path: Path, times: int) -> Path:
        files = {"news.en-00001-of-00100": text * times}
        files.update({f"news.en.heldout-{i:05d}-of-00050": "w1\n" for i in range(50)})
        return make_tar(path, files)

    return make


def mscc(tmp_path: Path) -> Path:
    text = HEADER + BODY.replace("A TALE", "He ran home. " * 300) + "End of Project Gutenberg\n"
    return make_tar(tmp_path / "Holmes_Training_Data.tar.xz", {"H/A.TXT": text}, "w:xz")


def questions(tmp_path: Path) -> list[object]:
    heading = "id,question,a),b),c),d),e)\n"
    rows = '1,"He _____ , home .",Ran,is,was,were,be\n2,_____ home.,He,a,b,c,d\n'
    (tmp_path / "q.csv").write_text(heading + rows)
    (tmp_path / "a.csv").write_text("id,answer\n1,a\n2,c\n")
    return ["--questions", tmp_path / "q.csv", "--answers", tmp_path / "a.csv"]


def test_sentence_completion(tmp_path, capsys) -> None:
    extra = [*questions(tmp_path), "--split", 0.8, 0.1, 0.1]
    assert run("mscc", mscc(tmp_path), tmp_path, *extra) == 0
    found = splits(tmp_path)
    assert "he ran home ." in found["train"]
    assert sum(len(lines) for lines in found.values()) == 303  # the last one stays open
    folder = tmp_path / "out" / "questions"
    for place in (folder, tmp_path / "out"):
        made = json.loads((place / "text" / "text.json").read_text())
        assert (made["tokenizer"], made["lowercase"]) == ("penn", True)
    assert read(folder / "text" / "test.txt") == (
        ["he ran <unk> home ."]
        + ["he <unk> <unk> home ."] * 4
        + ["he home ."]
        + ["<unk> home ."] * 4
    )
    assert read(folder / "answers.txt") == ["0", "2"]
    assert "522 novels are published, but came 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ptb", "--source", "{tmp}/none"], "{tmp}/none does not exist"),
        (["ptb", "--source", "{tmp}/wrong.tgz"], "ptb.train.txt is required, but it has b.txt"),
        (["ptb", "--source", "{tmp}/twice"], "one ptb.train.txt is required, but it has 2"),
        (["obwb", "--source", "{tmp}/wrong.tgz"], "news.en-00001-of-00100 or another training"),
        (["ltcb", "--source", "{tmp}/wrong.tgz"], "enwik9 (a dump with <text> in it) is required"),
        (["mscc"], "Holmes_Training_Data.tar.xz is required"),
        (["ptb", "--source", "{tmp}", "--out", "{tmp}"], "{tmp} has data in it"),
        (["ptb", "--questions", "{tmp}/x"], "the corpus mscc is required, but came ptb"),
        (["mscc", "--questions", "{tmp}/x"], "{tmp}/x is not a file"),
        (["mscc", "--answers", "{tmp}/x"], "--questions is required with it"),
        (["mscc", "--questions", "{tmp}/twice/a/ptb.test.txt"], "ptb.test.txt"),
        (["mscc", "--questions", "{tmp}/q.csv", "--answers", "{tmp}/a.csv"], "a.csv: "),
        (["mscc", "--dict", "{tmp}/bad.txt"], "bad.txt, line 1"),
        (["ltcb", "--split-by", "paragraph"], "--split-by: required block or line, since the text"),
        (["ltcb", "--split", "1", "1", "1"], "1.0 1.0 1.0 (sum 3)"),
        (["ptb", "--split", "1", "0", "0"], "--split: required a corpus that is split here, got p"),
        (["obwb", "--split-by", "line"], "--split-by: required a corpus that is split here, got o"),
        (["ptb", "--seed", "2"], "--seed: required a corpus that is split here, got ptb, whose sp"),
        (["mscc", "--dict", "{tmp}/wrong.tgz", "--min-count", "2"], "--dict: cannot be combined"),
    ],
)
def test_what_is_refused(tmp_path, capsys, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    make_tar(tmp_path / "wrong.tgz", {"b.txt": "x"})
    (tmp_path / "bad.txt").write_text("word\n")
    questions(tmp_path)
    (tmp_path / "a.csv").write_text("id,answer\n1,a\n")  # of two
    for part in "ab":
        (tmp_path / "twice" / part).mkdir(parents=True)
        for split in ("train", "valid", "test"):
            (tmp_path / "twice" / part / f"ptb.{split}.txt").write_text("x\n")
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    defaults = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert call_command("get-data", arguments[0], *defaults, *arguments[1:]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairseq-bnce: error: ")
    assert message.format(tmp=tmp_path) in error
    assert not (tmp_path / "out").exists()


def test_a_dictionary_stands_for_the_vocabulary_of_the_recipe(tmp_path) -> None:
    (tmp_path / "dict.txt").write_text("ran 5\n")
    extra = ("--dict", tmp_path / "dict.txt", "--split", 0.8, 0.1, 0.1)
    assert run("mscc", mscc(tmp_path), tmp_path, *extra) == 0
    assert "<unk> ran <unk> <unk>" in splits(tmp_path)["train"]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["settings"]["vocab_size"], report["settings"]["min_count"]) == (None, 1)


@pytest.mark.parametrize("out", [".", "data/novels"])
def test_results_inside_the_source_are_no_part_of_it(tmp_path, out: str) -> None:
    """The second run reads what the first one read; the questions of the first one go."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "A.TXT").write_text(HEADER + "He ran home. " * 300)
    command = ["mscc", "--source", source, "--out", source / out, "--overwrite", "--text-only"]
    command += ["--workers", 1, "--split", 0.8, 0.1, 0.1]
    reports = []
    for extra in (questions(tmp_path), []):
        assert call_command("get-data", *command, *extra) == 0
        reports.append(json.loads((source / out / "report.json").read_text())["splits"])
        assert (source / out / "questions").exists() == bool(extra)
    assert reports[0] == reports[1]


def test_overwrite_replaces_no_file_that_it_reads(tmp_path, capsys) -> None:
    """Nor a folder of one's own that has a result's name."""
    source, out = mscc(tmp_path), tmp_path / "out"
    assert run("mscc", source, tmp_path, *questions(tmp_path), "--split", 0.8, 0.1, 0.1) == 0
    within = source.replace(out / "text" / source.name)
    assert run("mscc", within, tmp_path, "--overwrite") == 2
    assert f"another folder is required, since {within} is of what" in capsys.readouterr().err
    within.rename(source)
    table = (tmp_path / "q.csv").replace(out / "questions" / "q.csv")
    assert run("mscc", source, tmp_path, "--overwrite", "--questions", table) == 2
    assert f"another folder is required, since {table} is of what" in capsys.readouterr().err
    words = out / "text" / "dict.txt"
    assert run("mscc", source, tmp_path, "--overwrite", "--dict", words) == 2
    assert f"another folder is required, since {words} is of what" in capsys.readouterr().err
    (out / "questions" / "report.json").unlink()
    assert run("mscc", source, tmp_path, "--overwrite") == 2
    assert "has questions without one" in capsys.readouterr().err
    assert table.exists()


def test_what_another_run_has_finished_meanwhile_stays(tmp_path, capsys, monkeypatch) -> None:
    source, prepare = mscc(tmp_path), recipe.prepare

    def late(*arguments):
        (tmp_path / "out" / "text").mkdir(parents=True)
        return prepare(*arguments)

    monkeypatch.setattr(recipe, "prepare", late)
    assert run("mscc", source, tmp_path, "--split", 0.8, 0.1, 0.1) == 2
    assert "an empty or new folder is required" in capsys.readouterr().err
    assert not list((tmp_path / "out" / "text").iterdir())


def test_names_that_no_file_can_have_are_refused(tmp_path, capsys) -> None:
    assert run("mscc", mscc(tmp_path), tmp_path, "--questions", "q" * 300) == 2
    assert "File name too long" in capsys.readouterr().err


def test_counts_are_compared() -> None:
    report = {"splits": {"train": {"types": 9, "tokens": 30, "lines": 3}}}
    published = Published(10, markers=1, tokens={"train": 31, "valid": 5}, words=27)
    lines = [recipe.verdict(*found) for found in recipe.comparisons(published, report)]
    assert lines == [
        "types: 10, as published",
        "warning: train tokens: 31 are published, but came 30",
        "words in all splits: 27, as published",
    ]


def test_result_is_what_fairseq_reads(tmp_path) -> None:
    """From the command line as a user types it."""
    mscc(tmp_path)
    command = [sys.executable, "-m", "fairseq_bnce.cli", "get-data", "mscc", "--source", tmp_path]
    command += ["--out", tmp_path / "out", "--workers", 1, "--split", 0.8, 0.1, 0.1]
    command += questions(tmp_path)
    done = forks.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout.decode("utf-8")
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(tmp_path / "out" / "bin" / "dict.txt"))
    rows = data_utils.load_indexed_dataset(str(tmp_path / "out" / "bin" / "valid"), dictionary)
    text = read(tmp_path / "out" / "text" / "valid.txt")
    assert [dictionary.string(row) for row in rows] == text
    asked = tmp_path / "out" / "questions" / "bin" / "test"
    assert len(data_utils.load_indexed_dataset(str(asked), dictionary)) == 10
