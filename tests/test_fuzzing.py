"""Files that are damaged at random: an answer that another way confirms, or an error."""

import copy
import csv
import io
import random

import numpy as np
import pytest
from fairseq.tokenizer import tokenize_line
from tools import call_command

from fairseq_bnce import Scorer, checkpoints

pytestmark = pytest.mark.modern
CASES = 25  # of a door
TEXT = """w0 <unk>  w1.	oov
<s> W1 été </s>

's 日 " <pad> -1e400 nan
= 7 w2
"""
NBEST = "".join(
    f"{place // 2} ||| {line} ||| TM= 0.{place} ||| -1\n"
    for place, line in enumerate(TEXT.splitlines())
)
QUESTIONS = """id,question,a,b,c,d,e
0,w1 \xe9 _____ w2,w0,nan,'s,W1,"\u65e5 x"
1,"_____, ""w1"".",7,=,|||,<unk>,</s>
"""
STRANGE = [b"\xff", b"\xc3", b"\x00", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1b[31m", b"\n"]


@pytest.fixture(scope="module")
def path(language_model):
    return str(language_model("rnn_lm"))


@pytest.fixture
def run(path, monkeypatch, capfdbinary):
    """Run a command with the model: its output, or None after an error that is well reported."""
    trained = checkpoints.load(path)  # once, and not for every command
    monkeypatch.setattr(checkpoints, "load", lambda *_: copy.deepcopy(trained))

    def call(command, *arguments):
        status = call_command(command, "--path", path, *arguments)
        output, errors = capfdbinary.readouterr()
        assert status in (0, 2)
        if status == 2:
            last = errors.decode().splitlines()[-1]
            assert last.startswith("fairseq-bnce") and ": error: " in last
        return None if status else output

    return call


def damaged(rng, content):
    """Change, insert or remove a few bytes, in about half of the cases."""
    while content and rng.random() < 0.4:
        start = rng.randrange(len(content))
        end = start + rng.choice([0, 1, 20])
        content = content[:start] + rng.choice([*STRANGE, b""]) + content[end:]
    return content


def scores(content, scorer):
    """What the command prints of a text, by Python's lines and fairseq's words."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace")
    lines = [tokenize_line(line.lstrip("\ufeff")) for line in lines]
    lines = [words[words[:1] == ["<s>"] :] for words in lines]
    lines = [words[: len(words) - (words[-1:] == ["</s>"])] for words in lines]
    return np.array([scorer.score(map(" ".join, lines)), [len(words) + 1 for words in lines]]).T


def check_score(output, content, scorer):
    found = np.array([row.split(b"\t")[:2] for row in output.splitlines()], dtype=float)
    np.testing.assert_allclose(found, scores(content, scorer), rtol=1e-4, atol=1e-3)


def check_rescore(output, content, scorer):
    """All but features and scores stays, and the hypotheses of a list are sorted."""
    rows, found = ([row.split(b"|||") for row in one.split(b"\n")] for one in (content, output))
    assert sorted(row[:2] for row in found) == sorted(row[:2] for row in rows)
    for one, other in zip(found, found[1:-1]):
        assert one[0].split() != other[0].split() or float(one[3]) >= float(other[3])


def check_complete(output, content, scorer):
    rows = list(csv.DictReader(io.StringIO(output.decode(), newline="")))
    values = np.array([[float(row[f"exact_{letter}"]) for letter in "abcde"] for row in rows])
    assert [row["exact"] for row in rows] == ["abcde"[place] for place in values.argmax(1)]


@pytest.mark.parametrize(
    ("command", "text", "check"),
    [
        ("score", TEXT, check_score),
        ("rescore --weights TM=1,BNCE=0.5", NBEST, check_rescore),
        ("complete", QUESTIONS, check_complete),
    ],
)
def test_damaged_files(command, text, check, run, path, tmp_path):
    """Some cases have to end well."""
    scorer, ends = Scorer.from_checkpoint(path, exact=True), []
    for number in range(CASES):
        rng = random.Random(f"{command} {number}")
        content = damaged(rng, text.encode())
        (tmp_path / "given").write_bytes(content)
        output = run(*command.split(), "--exact", tmp_path / "given")
        ends.append(output is not None)
        if output is not None:
            check(output, content, scorer)
    assert any(ends)
