"""Random inputs by seed, a few for each door: an answer that another way confirms, or an error."""

import argparse
import contextlib
import copy
import csv
import io
import random
from dataclasses import fields

import numpy as np
import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tokenizer import tokenize_line
from omegaconf import OmegaConf
from tools import build, call_command

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.text.tokens import novel_words

pytestmark = pytest.mark.modern
CASES = 25  # of a door
WORDS = ["w0", "w1", "w2", "oov", "W1", "<unk>", "<s>", "</s>", "<pad>", "\xe9t\xe9", "\u65e5"]
WORDS += ["'s", '"', "w1.", "_____", "|||", "=", "7", "-1e400", "nan"]
SPACES = [" ", " ", " ", "  ", "\t", "\xa0", "\x0b", "\x1c", "\x85", "\u2028"]
LINE_ENDS = ["\n", "\n", "\n", "\r\n", "\r", "\n\n"]
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


def sentence(rng, most=9):
    return "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(0, most)))


def damaged(rng, content):
    """Change, insert or remove a few bytes, in about half of the cases."""
    while content and rng.random() < 0.4:
        start = rng.randrange(len(content))
        end = start + rng.choice([0, 1, 20])
        content = content[:start] + rng.choice([*STRANGE, b""]) + content[end:]
    return content


def fuzzed(name, case):
    """Some cases have to end well, and some with an error."""
    ends = [case(random.Random(f"{name} {number}")) for number in range(CASES)]
    assert 0 < ends.count(True) <= CASES
    return ends


def test_score(run, path, tmp_path):
    scorer = Scorer.from_checkpoint(path)

    def case(rng):
        text = "".join(sentence(rng) + rng.choice(LINE_ENDS) for _ in range(rng.randint(1, 9)))
        (tmp_path / "text").write_bytes(damaged(rng, text.encode()))
        exact = rng.random() < 0.5
        output = run("score", *["--exact"] * exact, tmp_path / "text")
        if output is None:
            return False
        with open(tmp_path / "text", encoding="utf-8", errors="replace") as file:
            lines = [tokenize_line(line.lstrip("\ufeff")) for line in file]
        lines = [words[words[:1] == ["<s>"] :] for words in lines]
        lines = [words[: len(words) - (words[-1:] == ["</s>"])] for words in lines]
        found = np.array([row.split(b"\t")[:2] for row in output.splitlines()], dtype=float)
        want = scorer.with_exact(exact).score(map(" ".join, lines))
        np.testing.assert_allclose(found[:, 0], want, rtol=1e-4, atol=1e-3)
        assert found[:, 1].tolist() == [len(words) + 1 for words in lines]
        return True

    fuzzed("score", case)


def test_rescore(run, path, tmp_path):
    scorer = Scorer.from_checkpoint(path, exact=True)

    def case(rng):
        lines = [
            f"{number} ||| {sentence(rng).replace('|||', '')} ||| TM= {rng.random():.3f} ||| -1\n"
            for number in range(rng.randint(1, 3))
            for _ in range(rng.randint(1, 3))
        ]
        (tmp_path / "nbest").write_bytes(damaged(rng, "".join(lines).encode()))
        weights = ["--weights", "TM=1,BNCE=0.5"] if rng.random() < 0.5 else []
        output = run("rescore", "--exact", *weights, tmp_path / "nbest")
        if output is None:
            return False
        rows = [row.split(b"|||") for row in (tmp_path / "nbest").read_bytes().split(b"\n")]
        found = [row.split(b"|||") for row in output.split(b"\n")]
        assert sorted(row[:2] for row in found) == sorted(row[:2] for row in rows)
        for row in filter(lambda row: len(row) > 3, found):
            words = tokenize_line(row[1].decode("utf-8", "replace"))
            words = words[words[:1] == ["<s>"] :]
            words = words[: len(words) - (words[-1:] == ["</s>"])]
            score = float(row[2].rpartition(b"BNCE=")[2].split()[0])
            (want,) = scorer.score([" ".join(words)], tokenized=True)
            assert score == pytest.approx(want, rel=1e-4, abs=1e-3)
        for one, other in zip(found, found[1:-1]) if weights else ():
            assert one[0].split() != other[0].split() or float(one[3]) >= float(other[3])
        return True

    fuzzed("rescore", case)


def test_complete(run, path, tmp_path):
    scorer = Scorer.from_checkpoint(path, exact=True)

    def case(rng):
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["id", "question", *"abcde"])
        for number in range(rng.randint(1, 4)):
            before, after = (sentence(rng, 4).replace("_____", "") for _ in range(2))
            choices = [rng.choice(WORDS).replace("_____", "w1") for _ in range(5)]
            writer.writerow([number, f"{before}_____{after}", *choices])
        content = table.getvalue().encode()
        (tmp_path / "questions").write_bytes(damaged(rng, content))
        output = run("complete", "--exact", tmp_path / "questions")
        if output is None:
            return False
        rows = list(csv.DictReader(io.StringIO(output.decode(), newline="")))
        scores = np.array([[float(row[f"exact_{letter}"]) for letter in "abcde"] for row in rows])
        assert [row["exact"] for row in rows] == ["abcde"[place] for place in scores.argmax(1)]
        if (tmp_path / "questions").read_bytes() == content:
            questions = csv.DictReader(io.StringIO(table.getvalue()))
            texts = [row["question"].replace("_____", row[a]) for row in questions for a in "abcde"]
            want = scorer.score(map(novel_words, texts)).reshape(-1, 5)
            np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-3)
        return True

    fuzzed("complete", case)


# ---------------------------------------------------------------- the flags of fairseq-train


VALUES = {
    float: ["0", "1", "-1", "0.5", "1e39", "nan", "inf", "x"],
    int: ["0", "1", "7", "-1", "9" * 20, "x", "1.5"],
    None: ["batch", "2", "\xb2", "-1", "", "auto", "3,0", "(0.9,0.99)", "(nan,0.9)", "None", "{}"],
}


def parts():
    """(name, dataclass) of this plugin's criteria."""
    for name, config in sorted(CRITERION_DATACLASS_REGISTRY.items()):
        if config.__module__.startswith("fairseq_bnce"):
            yield name, config


def test_flags_of_training(corpus):
    """Every criterion builds with what its flags take, or an error names one of the flags."""
    cfg, task, _ = build(corpus, "--arch", "rnn_lm", "--criterion", "bnce", "--lr", "0.1")
    ends = []
    for name, config in parts():
        rng = random.Random(name)
        parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
        gen_parser_from_dataclass(parser, config(), delete_default=True)
        own = {field.name for field in fields(config)}
        flags = [a for a in parser._actions if a.dest in own and a.nargs != 0]
        for action in rng.sample(flags, min(len(flags), 4)):
            value = rng.choice(list(action.choices or VALUES.get(action.type, VALUES[None])))
            section = OmegaConf.structured(config)
            section._set_parent(cfg)  # where its interpolations look
            OmegaConf.set_struct(section, False)
            said = io.StringIO()
            try:
                with contextlib.redirect_stderr(said):
                    given = vars(parser.parse_args([f"{action.option_strings[0]}={value}"]))
                    section._name = name
                    section.update({key: one for key, one in given.items() if one is not None})
                    assert task.build_criterion(section) is not None
                ends.append(True)
            except (ValueError, SystemExit) as error:
                text = f"{error} {said.getvalue()}"
                assert action.option_strings[0] in text, (name, action.option_strings, value, text)
                ends.append(False)
    assert ends.count(True) > 5 and ends.count(False) > 5
