"""fairseq-bnce score: what it prints, and what it does with all that text can be."""

import csv
import fcntl
import json
import math
import os
import random
import signal
import struct
import sys
import termios
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.tokenizer import tokenize_line
from tools import call_command, modern, write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.text import reading

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, str(ROOT / "scripts" / "fairseq-bnce"), "score"]
LINES = ["w1 w2 w3", "", "w7 unheard of w9", "w0"]


@pytest.fixture
def score(command):
    return partial(command, "score", model="lstm_lm")


@pytest.fixture
def file(tmp_path):
    return write_lines(tmp_path / "text", LINES)


@pytest.fixture
def start(language_model, start_process):
    """Start the command as a process of its own."""

    def call(*arguments, model="lstm_lm", **named):
        return start_process([*COMMAND, "--path", language_model(model), *arguments], **named)

    return call


@pytest.fixture
def scorer(language_model):
    return Scorer.from_checkpoint(language_model("lstm_lm"))


def objects(output):
    return [json.loads(line) for line in output.splitlines()]


def rows(output):
    return [line.split("\t") for line in output.splitlines()]


@pytest.mark.parametrize("flags, end", [([], None), (["--document"], None), (["--no-eos"], -1)])
def test_a_line_out_for_each_line_in(flags, end, score, file, scorer):
    status, output, errors = score(file, *flags)
    assert status == 0 and errors.count("\n") == 1  # of unknown words
    scored, found = list(scorer.score_stream(LINES, document="--document" in flags)), rows(output)
    totals = [one.log_probs[:end].sum() for one in scored]
    np.testing.assert_allclose([float(row[0]) for row in found], totals, atol=1e-6)
    assert [[*map(int, row[1:])] for row in found] == [[len(s.words[:end]), s.oov] for s in scored]
    assert not flags or output != score(file)[1]


@pytest.mark.parametrize(("base", "unit"), [("e", 1), ("10", math.log(10))])
def test_per_word_as_columns_and_json(base, unit, score, file, scorer):
    flags = [file, "--per-word", "--exact", "--base", base]
    found = rows(score(*flags)[1])
    as_json = objects(score(*flags, "--json")[1])
    scored = list(scorer.with_exact(True).score_stream(LINES))
    assert len(found) == len(as_json) == len(scored)
    for (total, _, _, *pairs), line, want in zip(found, as_json, scored):
        words, scores = zip(*(pair.split(" ") for pair in pairs))
        log_probs = pytest.approx((want.log_probs / unit).tolist(), abs=2e-6)
        assert list(words) == want.words and [*map(float, scores)] == log_probs
        assert float(total) == pytest.approx(want.total / unit, abs=1e-5)
        assert line == {
            **{"log_prob": pytest.approx(want.total / unit, abs=1e-5), "log_probs": log_probs},
            **{"words": want.words, "is_oov": want.is_oov.tolist()},
            **{"tokens": len(want.words), "oov": want.oov},
        }


WITHOUT_ENDS = (["--no-eos", "--base", "10"], -1, math.log(10))


@pytest.mark.parametrize(("flags", "end", "unit"), [([], None, 1), WITHOUT_ENDS])
def test_a_table_has_a_row_for_each_word(flags, end, unit, score, tmp_path, scorer):
    """A quotation mark is a word as any other; a file appears when it is complete."""
    lines = [*LINES, 'w1 " null']
    write_lines(tmp_path / "text", lines)
    status, output, _ = score(tmp_path / "text", "--table", *flags)
    header, *found = csv.reader(output.splitlines(), "excel-tab")
    assert status == 0 and header == ["line", "position", "word", "log_prob", "is_oov"]
    *found, log_probs, is_oov = zip(*found)
    scored = list(scorer.score_stream(lines))
    cells = []
    for number, one in enumerate(scored, 1):
        words = enumerate(one.words[:end], 1)
        cells += [(str(number), str(position), word) for position, word in words]
    assert found == list(zip(*cells))
    want = np.concatenate([one.log_probs[:end] for one in scored]) / unit
    np.testing.assert_allclose(np.array(log_probs, dtype=float), want, atol=2e-6)
    assert [*map(int, is_oov)] == [one for s in scored for one in s.is_oov[:end]]
    out = tmp_path / "out"
    assert score(tmp_path / "text", "--table", *flags, "--out", out)[1] == ""
    assert out.read_text(encoding="utf-8") == output


def test_summary(score, file, scorer):
    """Perplexities over all tokens, and over those that are no <unk>."""
    log_probs = np.concatenate(scorer.score_words(LINES))
    is_oov = np.array([0] * 6 + [1, 1] + [0] * 4, dtype=bool)
    want = math.exp(-log_probs.mean()), math.exp(-log_probs[~is_oov].mean())
    _, output, _ = score(file, "--summary")
    names, values = zip(*rows(output))
    perplexities = ["Perplexity including OOVs:", "Perplexity excluding OOVs:"]
    assert list(names) == [*perplexities, "OOVs:", "Tokens:"]
    assert [float(value) for value in values] == pytest.approx([*want, 2, 12], rel=1e-5)
    found = json.loads(score(file, "--summary", "--json", "--base", "10")[1])
    assert (found["ppl_with_oov"], found["ppl_without_oov"]) == pytest.approx(want)
    assert (found["oov"], found["tokens"], found["lines"]) == (2, 12, 4)
    assert found["log_prob"] == pytest.approx(log_probs.sum() / math.log(10))


def test_no_text_at_all(score, tmp_path):
    (tmp_path / "text").write_bytes(b"")
    assert score(tmp_path / "text") == (0, "", "")
    perplexities = [row[1] for row in rows(score(tmp_path / "text", "--summary")[1])[:2]]
    assert perplexities == ["none", "none"]
    found = json.loads(score(tmp_path / "text", "--summary", "--json")[1])
    assert found["tokens"] == 0 and found["ppl_with_oov"] is found["ppl_without_oov"] is None


def test_bytes_that_are_no_utf8_are_replaced_and_counted(score, tmp_path):
    (tmp_path / "text").write_bytes(b"w1 \xff w2\n\xef\xbb\xbfw3\n\xc3\xa9t\xe9\n")
    status, output, errors = score(tmp_path / "text", "--per-word")
    assert status == 0
    assert [row[1:3] for row in rows(output)] == [["4", "1"], ["2", "0"], ["2", "1"]]
    assert rows(output)[0][4].startswith("\ufffd ") and rows(output)[2][3].startswith("\xe9t")
    assert "2 line(s) were not UTF-8" in errors


def test_lines_longer_than_the_model_reads(score, tmp_path):
    lines = [" ".join(["w1"] * 40), "w2", " ".join(["w3"] * 20)]
    write_lines(tmp_path / "text", lines)
    status, output, _ = score(tmp_path / "text", model="transformer_lm")
    assert status == 0 and [row[1] for row in rows(output)] == ["41", "2", "21"]
    narrow = score(tmp_path / "text", "--context-window", "1", model="transformer_lm")[1]
    assert narrow.splitlines()[1] == output.splitlines()[1]
    assert narrow.splitlines()[0] != output.splitlines()[0]


OPTIONS = [
    (["--log-z-shift", "-2.5e-01"], {"shift": -0.25}),
    (["--log-z-shift", "none", "--batch-tokens", "3"], {"shift": "none"}),
    (["--exact", "--data", "CORPUS"], {"exact": True}),
    (["--bf16"], {"dtype": torch.bfloat16}),
    *modern((["--fp16"], {"dtype": torch.float16})),
]


@pytest.mark.parametrize("flags, options", OPTIONS)
def test_options_reach_the_scorer(flags, options, score, file, language_model, corpus):
    checkpoint = language_model("lstm_lm")
    want = Scorer.from_checkpoint(checkpoint, **options).score(LINES)
    assert np.abs(want - Scorer.from_checkpoint(checkpoint).score(LINES)).max() > 1e-4
    flags = [corpus if flag == "CORPUS" else flag for flag in flags]
    got = [float(row[0]) for row in rows(score(file, *flags)[1])]
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_commands_and_version(capsys):
    for arguments, printed in ((["--help"], "score"), (["--version"], "fairseq-bnce")):
        assert call_command(*arguments) == 0 and printed in capsys.readouterr().out
    assert call_command() == call_command("scores") == 2


# ---------------------------------------------------------------- lines and words as fairseq's


NASTY = [
    b"w1 w2\rw3\r\nw4\n\rw5\r\r\n\n",
    b"\r",
    b"\r\n\r",
    b"w1\r" * 3 + b"w2",
    b"w1\x0bw2\x0cw3\x1cw4\x1dw5\x1ew6\x1fw7\n",
    "w1\x85w2\u2028w3\u2029w4\xa0w5\u3000w6\u1680w7\n".encode(),
    "w1\u200bw2\u180ew3 \u2060 \x00 w4\x1b\n".encode(),
    b"</s> w1 <s> <unk> madeupword0000 w2 </s> w3\n \t \nw1\tw2 ",
]
SPACES = ["\r", "\n", "\r\n", " ", "\x0b", "\x85", "\u2028", "\x1c", "\t", "\u00a0"]


def binarized(path, dictionary):
    """(words, ids) of every line, by fairseq-preprocess's own binariser."""
    found = []

    class Remembering(VocabularyDatasetBinarizer):
        def binarize_line(self, line, summary):
            found.append((tokenize_line(line), super().binarize_line(line, summary).tolist()))
            return torch.IntTensor(found[-1][1])

    FileBinarizer.multiprocess_dataset(
        str(path), "mmap", Remembering(dictionary), str(path) + ".bin", vocab_size=len(dictionary)
    )
    return found


def nasty_texts():
    rng = random.Random(7)
    pieces = [*SPACES, *SPACES, "w1", "w2", "oov", "\xe9"]
    made = ["".join(rng.choices(pieces, k=rng.randint(1, 60))).encode() for _ in range(20)]
    return [*NASTY, *made, ("w1 " * 9000 + "\r\n" + "w2\r" * 9000).encode()]


@pytest.mark.parametrize("chunk", [1, 2**16])
def test_lines_and_words_are_fairseqs(chunk, language_model, tmp_path, monkeypatch):
    """Those of its own binariser."""
    monkeypatch.setattr(reading, "_CHUNK", chunk)
    dictionary = Scorer.from_checkpoint(language_model("lstm_lm")).dictionary
    for content in nasty_texts() if chunk > 3 else nasty_texts()[:-1]:
        (tmp_path / "text").write_bytes(content)
        want = binarized(tmp_path / "text", dictionary)
        got = [line.split() for line in reading.TextLines([str(tmp_path / "text")])]
        assert got == [words for words, _ in want]
        ids = [[*map(dictionary.index, words), dictionary.eos()] for words in got]
        assert ids == [row for _, row in want]


# ---------------------------------------------------------------- as a process


def test_a_named_pipe_is_opened_once(start, tmp_path):
    """Its writer would end if it was tried first."""
    os.mkfifo(tmp_path / "pipe")
    process = start(tmp_path / "pipe")
    (tmp_path / "pipe").write_bytes(b"w1 w2\n")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"") and output.endswith(b"\t3\t0\n")


def test_a_pipe_that_waits_for_its_scores(start):
    """Whoever writes a line gets its score before the next is written; nothing else is said."""
    process = start("--per-word")
    for word in ("w1", "w2", "\xe9", "w3", "w4", "w5"):
        process.stdin.write(f"{word}\n".encode())
        process.stdin.flush()
        assert f"\t2\t{int(word == chr(233))}\t{word} " in process.stdout.readline().decode()
    output, errors = process.communicate()
    assert (process.returncode, output, errors) == (0, b"", b"")


def test_broken_pipe(start, tmp_path):
    """As `| head -1`: it ends, quietly."""
    write_lines(tmp_path / "text", zipf_lines(20_000, seed=1))
    process = start(tmp_path / "text", "--per-word", "--batch-tokens", "500")
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_ctrl_c(start):
    process = start()
    process.stdin.write(b"w1\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and process.stderr.read() == b""


def test_progress_is_shown_where_errors_go_to_a_terminal(start, tmp_path):
    write_lines(tmp_path / "text", ["w1 w2"])
    for quiet in ([], ["--quiet"]):
        parent, child = os.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 99, 0, 0))
        process = start(tmp_path / "text", *quiet, stderr=child)
        assert process.communicate()[0] and process.returncode == 0
        os.write(child, b"end")
        shown = os.read(parent, 2**16)
        assert shown == b"end" if quiet else b" words/s" in shown
        os.close(child)
        os.close(parent)


def test_beams_of_nemo(score, tmp_path, scorer):
    """score + ALPHA x log-probability + BETA x characters, the text as it was."""
    write_lines(tmp_path / "beams", ["w1 w2 \t-3.5", "\t-1", "w7 unheard\t2e-1"])
    texts = ["w1 w2 ", "", "w7 unheard"]
    for base, unit in (("e", 1), ("10", math.log(10))):
        flags = ["--nemo", "5e-1", "-25E-2", "--base", base]
        status, out, _ = score(*flags, tmp_path / "beams")
        assert status == 0 and [text for text, _ in rows(out)] == texts
        want = np.array([-3.5, -1, 0.2]) - 0.25 * np.array([6, 0, 10])
        want += 0.5 * scorer.score(texts) / unit
        np.testing.assert_allclose([float(number) for _, number in rows(out)], want, atol=1e-5)


@pytest.mark.parametrize(("parts", "flags"), [(2, []), (7, []), (7, ["--table"])])
def test_parts_of_a_text_are_the_whole(parts, flags, score, file):
    """Also where there are more parts than lines; standard input has no parts."""
    whole = score(file, *flags)[1]
    named = [f"{number}/{parts}" for number in range(1, parts + 1)]
    assert "".join(score("--shard", name, *flags, file)[1] for name in named) == whole


# Marks, a line of pieces, and its words with how many pieces each has.
PIECES = [
    ("@@", "w1@@ w2@@ w3 w4 un@@", {"w1w2w3": 3, "w4": 1, "un@@": 1, "</s>": 1}),
    ("sentencepiece", "w0 \u2581un w2 w3 \u2581", {"w0": 1, "unw2w3": 3, "\u2581": 1, "</s>": 1}),
]


def joined(values, sizes, how):
    ends = np.cumsum(sizes)
    return [how(values[end - size : end]) for size, end in zip(sizes, ends)]


@pytest.mark.parametrize("marks, line, sizes", PIECES)
@pytest.mark.parametrize("flags", [[], ["--given", "--exact"], ["--no-eos", "--document"]])
def test_scores_of_whole_words_are_sums_over_pieces(marks, line, sizes, flags, score, tmp_path):
    context = "w5 w6\t" if "--given" in flags else ""
    write_lines(tmp_path / "text", [context + line, context])
    flags, join = ["--json", *flags, tmp_path / "text"], ["--join-subwords", marks]
    pieces, words = (objects(score(*flags, "--per-word", *more)[1]) for more in ([], join))
    want = dict(list(sizes.items())[: -1 if "--no-eos" in flags else None])
    counts = list(want.values())
    assert words[0]["words"] == list(want)
    sums = joined(pieces[0]["log_probs"], counts, sum)
    assert words[0]["log_probs"] == pytest.approx(sums, abs=1e-5)
    assert words[0]["is_oov"] == joined(pieces[0]["is_oov"], counts, any)
    for name in ("tokens", "oov", "log_prob"):
        assert words[0][name] == pieces[0][name]
    assert words[1] == pieces[1]  # an empty line
    (plain,), (found,) = (objects(score(*flags, "--summary", *more)[1]) for more in ([], join))
    log_probs = np.array([value for one in words for value in one["log_probs"]])
    is_oov = np.array([value for one in words for value in one["is_oov"]])
    assert (found["word_tokens"], found["word_oov"]) == (len(log_probs), is_oov.sum())
    perplexities = found["word_ppl_with_oov"], found["word_ppl_without_oov"]
    each = np.exp(-log_probs.mean()), np.exp(-log_probs[~is_oov].mean())
    assert perplexities == pytest.approx(each, rel=1e-4)
    assert plain.items() <= found.items()


GIVEN = ["w1 w2\tw3 zzz", "\tw4", "w5 zzz\t", "w6\tw7 w8 w9"]


@pytest.mark.parametrize("model", ["lstm_lm", "transformer_lm"])
@pytest.mark.parametrize("flags", [[], ["--document"], ["--exact", "--no-eos"]])
def test_texts_after_contexts(model, flags, score, tmp_path, language_model):
    """Sums over the text's words of one pass over both; words, counts and summary follow.

    Also without the ends of lines.
    """
    write_lines(tmp_path / "text", GIVEN)
    scorer = Scorer.from_checkpoint(language_model(model), exact="--exact" in flags)
    whole = [line.replace("\t", " ") for line in GIVEN]
    scored = scorer.score_stream(whole, document="--document" in flags)
    parts = [slice(len(line.split("\t")[0].split()), None) for line in GIVEN]
    end = -1 if "--no-eos" in flags else None
    want = [found.log_probs[part][:end] for found, part in zip(scored, parts)]
    flags = ["--given", *flags, tmp_path / "text"]
    found = objects(score("--json", "--per-word", *flags, model=model)[1])
    for one, log_probs in zip(found, want):
        assert one["log_probs"] == pytest.approx(log_probs.tolist(), abs=2e-6)
        assert one["log_prob"] == pytest.approx(log_probs.sum(), abs=2e-6)
        assert one["tokens"] == len(one["words"]) == len(log_probs)
    assert [one["oov"] for one in found] == [1, 0, 0, 0]
    summary = json.loads(score("--summary", "--json", *flags, model=model)[1])
    assert summary["tokens"] == sum(map(len, want)) and summary["oov"] == 1
    assert summary["log_prob"] == pytest.approx(np.concatenate(want).sum(), abs=1e-5)
