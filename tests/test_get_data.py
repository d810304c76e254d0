"""fairseq-bnce get-data: fetching, then every recipe on an archive of its form, made here."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import sys
import tarfile
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import forks
import pytest
from fairseq.data import Dictionary, data_utils
from tools import call_command

from fairseq_bnce.data import cleaning, corpora
from fairseq_bnce.data.corpora import CORPORA, Corpus
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.tokens import penn_words

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


@pytest.fixture
def url(monkeypatch, tmp_path):
    """The address of CONTENT, and no proxy, which this machine may have for all addresses."""
    (tmp_path / "a.zip").write_bytes(CONTENT)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}/a.zip"
        http.shutdown()


def test_a_download_is_kept_and_compared(url, tmp_path) -> None:
    pytest.importorskip("pooch")
    corpus = Corpus("", ("a.zip",), {}, url, MD5)
    assert corpora.find_archive(corpus, None, tmp_path / "new").read_bytes() == CONTENT
    unreachable = corpus._replace(url="http://127.0.0.1:9/a.zip")
    assert corpora.find_archive(unreachable, None, tmp_path / "new").read_bytes() == CONTENT
    wrong = corpus._replace(digest="sha256:00")
    for other in (wrong, unreachable, corpus._replace(url=None)):
        with pytest.raises(InputError):
            corpora.find_archive(other, None, tmp_path / "other")
    assert not any((tmp_path / "other").glob("*"))


# ---------------------------------------------------------------- sentences


SENTENCES = [
    ("One. Two? Three!", ["One.", "Two?", "Three!"]),
    ('"Go!" He went. "Why?"', ['"Go!"', "He went.", '"Why?"']),
    ("Mr. Smith met J. B. Jones at St. Paul's.", None),
    ("He was in the U.S. Army, e.g. there.", None),
    ("It cost 3.50 dollars. e", None),
    ("So said I. Then he left.", ["So said I.", "Then he left."]),
]


@pytest.mark.parametrize(("text", "expected"), SENTENCES)
def test_sentences(text: str, expected: list[str] | None) -> None:
    assert list(cleaning.split_sentences(text)) == (expected or [text])


PENN = [
    ('"I don\'t," said Mr. Hood.', "`` I do n't , '' said Mr. Hood ."),
    ("It's Tom's--isn't it?", "It 's Tom 's -- is n't it ?"),
    ("'Yes,' he said. . . .", "` Yes , ' he said ..."),
    ("'Twas 1,000 at 10:30; the boys' end", "'T was 1,000 at 10:30 ; the boys ' end"),
    ("We cannot (ever) stop it!", "We can not ( ever ) stop it !"),
    ("He ended it.'", "He ended it . '"),
    ("already , split up .", "already , split up ."),
]


@pytest.mark.parametrize(("text", "expected"), PENN)
def test_penn_words(text: str, expected: str) -> None:
    assert " ".join(penn_words(text)) == expected


# ---------------------------------------------------------------- Wikipedia

DUMP = """<mediawiki>
<page><title>No</title><text xml:space="preserve">#REDIRECT [[Yes]]</text></page>
<page><title>A &amp; B</title><text xml:space="preserve">{{icon|
x}}'''Anarchism''' is [[Politics|political]] in the U.S. today. It &quot;began&quot; in 1840!
[[Image:x.png|thumb|30px|A caption]] [[de:Wort]]&lt;ref&gt;gone&lt;/ref&gt; caf\xe9 \xc5s
[http://x.y a link]
{| table
| cell
|}
[[Category:Ideas|Z]]</text></page></mediawiki>
"""
ARTICLE = [
    "anarchism is political in the u s today",
    "it began in one eight four zero",
    "a caption caf s",
    "a link",
    "ideas",
]


@pytest.mark.parametrize("block", [7, cleaning.BLOCK])
def test_wikipedia_as_wikifil_has_it(block: int, monkeypatch) -> None:
    """The second byte of an A with a ring is that of a line end, U+0085, elsewhere."""
    monkeypatch.setattr(cleaning, "BLOCK", block)
    assert list(cleaning.dump_sentences(io.BytesIO(DUMP.encode()))) == ARTICLE


# ---------------------------------------------------------------- novels

HEADER = "Project Gutenberg's Etext\n***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**\n"
HEADER += "legal\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n"
BODY = 'A TALE\n\nThe _end of_ it was\nnear.  "Go," said\nMr. Hood.\n\nWell-\nknown words.\n\n'
NOVEL = ["a tale", "the end of it was near .", "`` go , '' said mr. hood .", "well-known words ."]


FOOTERS = [
    "\x1a\n",
    "THE END\n\nEnd of Project Gutenberg's Etext of A Tale\nmore\n",
    "End Of\nThe Project Gutenberg Etext of Volume 1:\nA Tale\n",
    "**The Project Gutenberg Etext of A Tale, by Nobody**\n",
    "This is the end of the Project Gutenberg Edition of A Tale\n",
    "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***\nlicence\n" * 3,
]


@pytest.mark.parametrize("footer", FOOTERS)
def test_novels_lose_header_and_footer(footer: str) -> None:
    assert list(cleaning.novel_sentences(io.BytesIO((HEADER + BODY + footer).encode()))) == NOVEL


def test_later_header_none_and_the_old_code_page() -> None:
    later = "Produced by X\n*** START OF THIS PROJECT GUTENBERG EBOOK A TALE ***\n\n"
    for header in (later, ""):
        assert list(cleaning.novel_sentences(io.BytesIO((header + BODY).encode()))) == NOVEL
    assert list(cleaning.novel_sentences(io.BytesIO("café".encode("cp437")))) == ["café"]


# ---------------------------------------------------------------- the recipes


def run(corpus: str, source: Path, tmp_path: Path, *arguments: object) -> int:
    command = [corpus, "--source", source, "--out", tmp_path / "out", "--workers", 1]
    return call_command("get-data", *command, "--text-only", *arguments)


def splits(tmp_path: Path) -> dict[str, list[str]]:
    return {s: read(tmp_path / "out" / "text" / f"{s}.txt") for s in ("train", "valid", "test")}


def test_ptb_from_archive_and_folder(tmp_path, capsys, monkeypatch) -> None:
    """Counts are compared with the published ones."""
    made_up = CORPORA["ptb"]._replace(types=6, markers=1, tokens={"train": 7, "valid": 5}, words=9)
    monkeypatch.setitem(CORPORA, "ptb", made_up)
    files = {"train": "a <unk> N\n b a \n", "valid": "a b\n", "test": "b c"}
    named = {f"./simple-examples/data/ptb.{s}.txt": text for s, text in files.items()}
    named["./simple-examples/data/ptb.char.train.txt"] = "no"
    folder = tmp_path / "folder"
    folder.mkdir()
    for split, text in files.items():
        (folder / f"ptb.{split}.txt").write_text(text)
    for given in (make_tar(tmp_path / "simple-examples.tgz", named), folder):
        assert run("ptb", given, tmp_path, "--overwrite") == 0
        expected = {"train": ["a <unk> N", "b a"], "valid": ["a b"], "test": ["b <unk>"]}
        assert splits(tmp_path) == expected
        assert capsys.readouterr().out.splitlines()[-4:] == [
            "types: 6, as published",
            "train tokens: 7, as published",
            "warning: valid tokens: 5 are published, but came 3",
            "words in all splits: 9, as published",
        ]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["corpus"]["name"] == "ptb" and "train" not in report["settings"]
    assert {"what": "valid tokens", "published": 5, "here": 3} in report["corpus"]["counts"]


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


def test_billion_words(tmp_path, capsys) -> None:
    top = "1-billion/"
    shard = "".join(f"w{i % 3} often w{i} .\n" for i in range(4))
    files = {f"{top}training-m/news.en-{i:05d}-of-00100": shard for i in (1, 2, 99)}
    files[f"{top}heldout-m/news.en-00000-of-00100"] = "all held-out text\n"
    files[f"{top}training-m/._news.en-00001-of-00100"] = "of another system\n"
    files.update({f"{top}heldout-m/news.en.heldout-{i:05d}-of-00050": f"{i}\n" for i in range(50)})
    assert run("obwb", make_tar(tmp_path / "b.tar.gz", files), tmp_path) == 0
    found = splits(tmp_path)
    assert found["train"][:4] == [f"w{i % 3} often w{i} ." for i in range(4)]
    assert [len(lines) for lines in found.values()] == [12, 5, 45]
    printed = capsys.readouterr().out
    assert "train: 99 file(s) are published, but came 3" in printed
    assert "types: 793,471 are published, but came 8" in printed  # <s>, which fairseq lacks, too


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
    """Also as fairseq reads it."""
    mscc(tmp_path)
    extra = [*questions(tmp_path), "--split", 0.8, 0.1, 0.1, "--workers", 1]
    command = [sys.executable, "-m", "fairseq_bnce.cli", "get-data", "mscc", "--source", tmp_path]
    done = forks.run([*command, "--out", tmp_path / "out", *extra], cwd=tmp_path)
    printed = done.stdout.decode("utf-8")
    assert done.returncode == 0, printed
    assert "522 file(s) are published, but came 1" in printed
    found = splits(tmp_path)
    assert "he ran home ." in found["train"]
    assert sum(len(lines) for lines in found.values()) == 303  # the last one stays open
    folder = tmp_path / "out" / "questions"
    for place in (folder, tmp_path / "out"):
        made = json.loads((place / "bin" / "text.json").read_text())
        assert (made["tokenizer"], made["lowercase"]) == ("penn", True)
    asked = ["he ran <unk> home ."] + ["he <unk> <unk> home ."] * 4
    asked += ["he home ."] + ["<unk> home ."] * 4
    assert read(folder / "text" / "test.txt") == asked
    assert read(folder / "answers.txt") == ["0", "2"]
    dictionary = Dictionary.load(str(tmp_path / "out" / "bin" / "dict.txt"))
    for binary, text in (("bin/valid", found["valid"]), ("questions/bin/test", asked)):
        rows = data_utils.load_indexed_dataset(str(tmp_path / "out" / binary), dictionary)
        assert [dictionary.string(row) for row in rows] == text


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
