"""fairseq-bnce score: what it prints, and what it does with all that text can be."""

import fcntl
import functools
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import forks
import numpy as np
import pytest
import torch
from conftest import zipf_lines
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.tokenizer import tokenize_line
from memory import memory
from tools import call_command, modern, write_lines

from fairseq_bnce import Scorer, cli
from fairseq_bnce.text import reading

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, str(ROOT / "scripts" / "fairseq-bnce"), "score"]
LINES = ["w1 w2 w3", "", "w7 unheard of w9", "w0"]


@pytest.fixture
def score(language_model, capfd):
    """Run the command on a file in this process: (exit status, standard output, its errors)."""

    def call(*arguments, model="lstm_lm"):
        status = call_command("score", "--path", language_model(model), *arguments)
        return (status, *capfd.readouterr())

    return call


@pytest.fixture
def file(tmp_path):
    write_lines(tmp_path / "text", LINES)
    return tmp_path / "text"


@pytest.fixture
def start(language_model, start_process):
    """Start the command as a process of its own."""

    def call(*arguments, model="lstm_lm", **named):
        return start_process([*COMMAND, "--path", language_model(model), *arguments], **named)

    return call


@pytest.fixture
def scorer(language_model):
    return Scorer.from_checkpoint(language_model("lstm_lm"))


def rows(output):
    return [line.split("\t") for line in output.splitlines()]


def scored(score, *arguments, **named):
    """The rows of all LINES."""
    status, output, _ = score(*arguments, **named)
    found = rows(output)
    assert status == 0 and len(found) == len(LINES)
    return found


def test_a_line_out_for_each_line_in(score, file, scorer):
    status, output, errors = score(file)
    assert status == 0 and errors.count("\n") == 1  # of unknown words
    found = rows(output)
    np.testing.assert_allclose([float(row[0]) for row in found], scorer.score(LINES), atol=1e-6)
    assert [row[1:] for row in found] == [["4", "0"], ["1", "0"], ["5", "2"], ["2", "0"]]


def test_per_word(score, file, scorer):
    found = scored(score, file, "--per-word", "--exact")
    for row, line, want in zip(found, LINES, scorer.with_exact(True).score_words(LINES)):
        words, scores = zip(*(column.split(" ") for column in row[3:]))
        assert list(words) == [*line.split(), "</s>"]
        np.testing.assert_allclose(np.array(scores, dtype=float), want, rtol=0, atol=1e-6)
        assert float(row[0]) == pytest.approx(sum(want), abs=1e-5)


def test_base_10(score, file, scorer):
    found = scored(score, file, "--base", "10", "--per-word")
    for row, want in zip(found, scorer.score_words(LINES)):
        assert float(row[0]) * math.log(10) == pytest.approx(want.sum(), abs=1e-5)
        assert float(row[3].split()[1]) * math.log(10) == pytest.approx(want[0], abs=1e-5)


def test_json(score, file, scorer):
    plain, longer, of_ten = (
        [json.loads(line) for (line,) in scored(score, file, "--json", *flags)]
        for flags in ([], ["--per-word"], ["--per-word", "--base", "10"])
    )
    for line, found, total in zip(plain, longer, scorer.score(LINES)):
        assert line == {k: found[k] for k in ("log_prob", "tokens", "oov")}
        assert found["log_prob"] == pytest.approx(total, abs=1e-6)
        assert sum(found["is_oov"]) == found["oov"] and len(found["words"]) == found["tokens"]
    for unit, lines in ((1, longer), (math.log(10), of_ten)):
        for line, want in zip(lines, scorer.score_stream(LINES)):
            assert (line["words"], line["is_oov"]) == (want.words, want.is_oov.tolist())
            assert line["log_prob"] == pytest.approx(want.total / unit, abs=1e-6)
            np.testing.assert_allclose(line["log_probs"], want.log_probs / unit, atol=1e-6)


def test_summary(score, file, scorer):
    """Perplexities over all tokens, and over those that are no <unk>."""
    log_probs = np.concatenate(scorer.score_words(LINES))
    is_oov = np.array([0] * 6 + [1, 1] + [0] * 4, dtype=bool)
    want = math.exp(-log_probs.mean()), math.exp(-log_probs[~is_oov].mean())
    _, output, _ = score(file, "--summary", "--base", "10")
    names, values = zip(*rows(output))
    assert names == (
        *("Perplexity including OOVs:", "Perplexity excluding OOVs:", "OOVs:", "Tokens:"),
    )
    assert [float(value) for value in values] == pytest.approx([*want, 2, 12], rel=1e-5)
    found = json.loads(score(file, "--summary", "--json")[1])
    assert found["ppl_with_oov"] == pytest.approx(want[0])
    assert found["ppl_without_oov"] == pytest.approx(want[1])
    assert (found["oov"], found["tokens"], found["lines"]) == (2, 12, 4)
    assert found["log_prob"] == pytest.approx(log_probs.sum())
    found = json.loads(score(file, "--summary", "--json", "--base", "10")[1])
    assert found["log_prob"] == pytest.approx(log_probs.sum() / math.log(10))
    assert found["ppl_with_oov"] == pytest.approx(want[0])


def test_no_text_at_all(score, tmp_path):
    (tmp_path / "text").write_bytes(b"")
    assert score(tmp_path / "text") == (0, "", "")
    found = json.loads(score(tmp_path / "text", "--summary", "--json")[1])
    assert found["tokens"] == 0 and found["ppl_with_oov"] is found["ppl_without_oov"] is None


def test_several_files_and_line_ends(score, tmp_path, scorer):
    """The last line of a file may lack its end; carriage returns are spaces."""
    (tmp_path / "a").write_bytes(b"w1 w2\r\nw3")
    (tmp_path / "b").write_bytes(b"w4\n\n")
    _, output, _ = score(tmp_path / "a", tmp_path / "b")
    want = scorer.score(["w1 w2", "w3", "w4", ""])
    np.testing.assert_allclose([float(row[0]) for row in rows(output)], want, atol=1e-6)


def test_document(score, file, scorer):
    _, output, _ = score(file, "--document")
    want = [found.total for found in scorer.score_stream(LINES, document=True)]
    np.testing.assert_allclose([float(row[0]) for row in rows(output)], want, atol=1e-6)
    assert output != score(file)[1]


def test_tokenised_and_lower_cased_as_for_training(score, tmp_path):
    """<unk> stays one word, also before a full stop; a line's own <s> and </s> are dropped."""
    raw = ["W1, w2's <unk>.", "(W3)"]
    write_lines(tmp_path / "raw", raw)
    _, output, _ = score(tmp_path / "raw", "--tokenize", "en", "--lowercase", "--per-word")
    found = [[column.split(" ")[0] for column in row[3:]] for row in rows(output)]
    assert found == [["w1", ",", "w2", "'s", "<unk>", ".", "</s>"], ["(", "w3", ")", "</s>"]]
    write_lines(tmp_path / "ends", ["<s> W1, w2's </s>", "</s>", "<s>"])
    _, output, _ = score(tmp_path / "ends", "--per-word")
    found = [[column.split(" ")[0] for column in row[3:]] for row in rows(output)]
    assert found == [["W1,", "w2's", "</s>"], ["</s>"], ["</s>"]]
    status, _, errors = score(tmp_path / "raw", "--tokenize", "elvish")
    assert status == 2 and "--tokenize: required" in errors and "'elvish'" in errors


def test_bad_utf8_is_mended_and_counted(score, tmp_path):
    (tmp_path / "text").write_bytes(b"w1 \xff w2\n\xef\xbb\xbfw3\n\xc3\xa9t\xe9\n")
    status, output, errors = score(tmp_path / "text", "--per-word")
    assert status == 0
    assert [row[1:3] for row in rows(output)] == [["4", "1"], ["2", "0"], ["2", "1"]]
    assert rows(output)[0][4].startswith("\ufffd ") and rows(output)[2][3].startswith("\xe9t")
    assert "2 line(s) were not UTF-8" in errors


def test_lines_longer_than_the_model_reads(score, tmp_path):
    lines = [" ".join(["w1"] * 40), "w2", " ".join(["w3"] * 20)]
    write_lines(tmp_path / "text", lines)
    status, output, errors = score(tmp_path / "text", model="transformer_lm")
    assert status == 0 and [row[1] for row in rows(output)] == ["41", "2", "21"]
    assert errors.count("longer than the model reads at once") == 1
    assert "2 lines were scored in blocks" in errors
    narrow = score(tmp_path / "text", "--context-window", "1", model="transformer_lm")[1]
    assert narrow.splitlines()[1] == output.splitlines()[1]
    assert narrow.splitlines()[0] != output.splitlines()[0]


def test_what_is_asked_wrongly(score, file, tmp_path):
    for arguments, said in {
        (tmp_path / "none",): "none: required",
        (tmp_path,): ": required",
        ("-", "-"): "required standard input ('-') once",
        (file, "--data", tmp_path): "--data: required",
        (file, "--path", tmp_path / "none.pt"): "none.pt: required",
        (file, "--path", "shift: "): "error: --path shift: : required a checkpoint",
        (file, "--log-z-shift", "much"): "--log-z-shift: required",
        (file, "--device", "abacus"): "--device: required",
    }.items():
        status, output, errors = score(*arguments)
        assert (status, output) == (2, "")
        assert errors.startswith("fairseq-bnce: error: ") and said in errors
        assert len(errors.splitlines()) == 1
    for arguments in ((file, "--batch-tokens", "0"), (file, "--fp16", "--bf16")):
        status, _, errors = score(*arguments)
        assert status == 2 and "usage: fairseq-bnce score" in errors
    status, _, errors = score(file, "--document", model="lbl_lm both sides")
    assert status == 2 and "--document: required" in errors
    flags = ["--document", "--context-window", "99"]
    status, _, errors = score(file, *flags, model="transformer_lm")
    assert status == 2 and "--context-window: required" in errors


@pytest.mark.parametrize(
    "flags, options",
    [
        (["--log-z-shift", "0.25"], {"shift": 0.25}),
        (["--log-z-shift", "-2.5e-01"], {"shift": -0.25}),
        (["--log-z-shift", "-2."], {"shift": -2.0}),
        (["--log-z-shift", "none", "--batch-tokens", "3"], {"shift": "none"}),
        (["--exact", "--data", "CORPUS"], {"exact": True}),
    ],
)
def test_options_reach_the_scorer(flags, options, score, file, language_model, corpus):
    checkpoint = language_model("lstm_lm")
    want = Scorer.from_checkpoint(checkpoint, **options).score(LINES)
    assert np.abs(want - Scorer.from_checkpoint(checkpoint).score(LINES)).min() > 1e-4
    flags = [corpus if flag == "CORPUS" else flag for flag in flags]
    got = [float(row[0]) for row in rows(score(file, *flags)[1])]
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    "flag, least, most", [("--bf16", 5e-4, 2e-2), *modern(("--fp16", 0, 5e-4))]
)
def test_half_precision(flag, least, most, score, file):
    """float16 has three more bits of a number."""
    full, half = (
        np.array([float(row[0]) for row in scored(score, file, *flags, model="rnn_lm")])
        for flags in ([], [flag])
    )
    off = np.abs(half / full - 1).max()
    assert least < off < most


def test_commands_and_version(capsys):
    for arguments, said in ((["--help"], "score"), (["--version"], "fairseq-bnce")):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 0 and said in capsys.readouterr().out
    for arguments in ([], ["scores"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2


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
    made = ["".join(rng.choices(pieces, k=rng.randint(1, 60))).encode() for _ in range(60)]
    return [*NASTY, *made, ("w1 " * 9000 + "\r\n" + "w2\r" * 9000).encode()]


@pytest.mark.parametrize("chunk", [1, 2, 3, 2**16])
def test_lines_and_words_are_those_of_fairseqs_own_binariser(
    chunk, language_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(reading, "_CHUNK", chunk)
    dictionary = Scorer.from_checkpoint(language_model("lstm_lm")).dictionary
    for content in nasty_texts() if chunk > 3 else nasty_texts()[:-1]:
        (tmp_path / "text").write_bytes(content)
        want = binarized(tmp_path / "text", dictionary)
        lines = reading.TextLines([str(tmp_path / "text")])
        got = [line.split() for line in lines]
        assert got == [words for words, _ in want]
        ids = [[*map(dictionary.index, words), dictionary.eos()] for words in got]
        assert ids == [row for _, row in want]
        alone = re.findall(rb"\r(?!\n)", content)
        assert lines.lone_returns == len(alone)


def test_lines_that_end_at_a_carriage_return_alone_are_told_of(score, tmp_path, scorer):
    (tmp_path / "text").write_bytes(b"w1\rw2\r\nw3\n")
    status, output, errors = score(tmp_path / "text")
    assert status == 0 and "1 line(s) end at a carriage return alone, as fairseq-pre" in errors
    want = scorer.score(["w1", "w2", "w3"])
    np.testing.assert_allclose([float(row[0]) for row in rows(output)], want, atol=1e-6)
    (tmp_path / "text").write_bytes(b"w1\r\nw2\r\n")
    assert score(tmp_path / "text")[2] == ""


# ---------------------------------------------------------------- what else may be given


def test_a_shift_that_is_not_used(score, file):
    status, output, errors = score(file, "--exact", "--log-z-shift", "1")
    assert status == 0 and "--log-z-shift: not used with --exact" in errors
    assert output == score(file, "--exact")[1]


def test_perplexities_beyond_any_number(score, file):
    status, output, _ = score(file, "--summary", "--log-z-shift", "100000")
    assert status == 0 and rows(output)[0] == ["Perplexity including OOVs:", "inf"]


def test_a_named_pipe_is_opened_once(start, tmp_path):
    """Its writer would end if it was tried first."""
    os.mkfifo(tmp_path / "pipe")
    process = start(tmp_path / "pipe")
    (tmp_path / "pipe").write_bytes(b"w1 w2\n")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"") and output.endswith(b"\t3\t0\n")


def test_closed_stderr_changes_nothing(language_model, tmp_path):
    """As by a shell's 2>&-: no bar, and no note among the scores."""
    write_lines(tmp_path / "text", ["w1 w2"])
    with (tmp_path / "text").open("ab") as text:
        text.write(b"\xff\n")  # which is told of
    usual = [*COMMAND, "--path", str(language_model("lstm_lm")), str(tmp_path / "text")]
    mistaken = [*COMMAND, "--path", os.fsdecode(b"\xe9"), str(tmp_path / "text")]
    closing = functools.partial(os.close, 2)
    found = [output_of(usual), output_of(usual, closing), output_of(mistaken, closing)]
    assert found[0] == found[1] and found[0][0] == 0
    assert len(found[0][1].splitlines()) == 2
    assert found[2] == (2, b"")


def output_of(command, preexec_fn=None):
    process = forks.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=preexec_fn
    )
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        forks.end(process)
    return process.returncode, output


def test_threads(score, file, monkeypatch):
    given = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    assert score(file, "--threads", "3")[0] == score(file)[0] == 0 and given == [3]
    status, _, errors = score(file, "--threads", "0")
    assert status == 2 and "--threads: required" in errors


# ---------------------------------------------------------------- as a process


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


SLOW_TORCH = """
import time

try:
    print("importing", flush=True)
    time.sleep(60)
except KeyboardInterrupt as interrupt:
    raise RuntimeError("what torch makes of it") from interrupt
"""


def test_ctrl_c_while_torch_is_imported(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW_TORCH, encoding="utf-8")
    process = subprocess.Popen(
        [*COMMAND, "--path", "none.pt"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.parametrize("when", ["while it scores", "while it waits"])
def test_ctrl_c(start, when):
    process = start()
    process.stdin.write(b"w1\n")
    process.stdin.flush()
    process.stdout.readline()
    if when == "while it scores":
        process.stdin.write(b"w1 w2\n" * 10_000)
        process.stdin.flush()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert process.returncode == 130
    assert process.stderr.read() == b""


def test_a_bar_where_errors_go_to_a_terminal(start, file, tmp_path):
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with open(tmp_path / "out", "wb") as out:
        process = start(file, stderr=child, stdout=out)
        assert process.wait(60) == 0
    os.close(child)
    assert b"100%" in os.read(parent, 2**16)
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == len(LINES)


@pytest.mark.slow
def test_memory_is_flat(start, tmp_path):
    """200,000 lines more in nearly the same memory: as strings they would be 16 MiB.

    The first ones are as many as it takes until windows, and what holds them, are at their largest.
    """
    peaks = []
    for count in (100_000, 300_000):
        lines = "\n".join(zipf_lines(1000, seed=2)).encode() + b"\n"
        with (tmp_path / str(count)).open("w+b") as out:
            process = start(stdout=out, start=subprocess.Popen, seconds=300)
            for _ in range(count // 1000):
                process.stdin.write(lines)
            process.stdin.flush()
            while (tmp_path / str(count)).read_bytes().count(b"\n") < count:
                assert process.poll() is None
                time.sleep(0.2)
        peaks.append(memory(pid=process.pid))
        process.communicate()
    assert peaks[1] - peaks[0] < 8 * 2**20


def test_beams_of_nemo(score, tmp_path, language_model):
    """score + ALPHA x log-probability + BETA x characters, the text as it was."""
    write_lines(tmp_path / "beams", ["w1 w2 \t-3.5", "\t-1", "w7 unheard\t2e-1"])
    status, out, _ = score("--nemo", "0.5", "-0.25", tmp_path / "beams")
    texts = ["w1 w2 ", "", "w7 unheard"]
    nats = Scorer.from_checkpoint(language_model("lstm_lm")).score(texts)
    want = np.array([-3.5, -1, 0.2]) + 0.5 * nats - 0.25 * np.array([6, 0, 10])
    lines = [line.split("\t") for line in out.splitlines()]
    assert status == 0 and [text for text, _ in lines] == texts
    np.testing.assert_allclose([float(number) for _, number in lines], want, atol=1e-5)
    _, of_ten, _ = score("--nemo", "0.5", "-0.25", "--base", "10", tmp_path / "beams")
    found = [float(line.split("\t")[1]) for line in of_ten.splitlines()]
    np.testing.assert_allclose(found, want - 0.5 * nats * (1 - 1 / math.log(10)), atol=1e-5)
    _, same, _ = score("--nemo", "5e-1", "-25E-2", tmp_path / "beams")
    assert same == out
    for bad in ("w1 w2 -3.5", "w1\tw2\t-3.5", "w1\tx", "w1\tnan"):
        write_lines(tmp_path / "beams", ["w1\t-1", bad])
        status, _, errors = score("--nemo", "1", "0", tmp_path / "beams")
        assert status == 2 and "--nemo: required" in errors
        assert "(line 2 of the input)" in errors
    for flag in ("--json", "--per-word", "--summary", "--document"):
        status, _, errors = score("--nemo", "1", "0", flag, tmp_path / "beams")
        assert status == 2 and "--nemo: required" in errors
    for number in ("nan", "inf", "x"):
        status, _, errors = score("--nemo", number, "0", tmp_path / "beams")
        assert status == 2 and "argument --nemo: " in errors
