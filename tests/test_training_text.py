"""How the training text was made: written beside dict.txt, trained on, followed in scoring."""

import csv
import json
import math
import shutil
import subprocess
from pydoc_data.topics import topics

import embedded_corpus
import forks
import pytest
import torch
from checkpoint_edits import edited
from conftest import zipf_lines
from scoring_models import FLAGS
from tools import call_command, train, write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.decoding import kenlm
from fairseq_bnce.decoding.speechbrain import SpeechbrainRescorer
from fairseq_bnce.rescoring import language_model
from fairseq_bnce.text.training_text import TrainingText

PLAIN = {"tokenizer": "sacremoses", "language": "fr", "lowercase": True, "escape": False}
MADE = {**PLAIN, "normalize": "punctuation"}
RAW, CUT = "L'W1, w2 (w3) d'w4.", "l' w1 , w2 ( w3 ) d' w4 ."
CURLY = ["L\u2019W1, w2 (w3) d\u2019w4.", "l\u2019 w1 , w2 ( w3 ) d\u2019 w4 ."]


def french(line):
    """Words of the fixture corpus as a French sentence that has still to be cut."""
    first, *others = line.split()
    return f"L'{first}, {' '.join(others)}."


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """French text as prepare-text makes it."""
    folder = tmp_path_factory.mktemp("french")
    for split, count in (("train", 300), ("valid", 40)):
        lines = [french(line) for line in zipf_lines(count, seed=count)]
        write_lines(folder / split, [*lines, RAW])
    flags = ["--train", folder / "train", "--valid", folder / "valid", "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forks.Popen)
        flags += ["--language", "fr", "--lowercase", "--normalize", "punctuation"]
        flags += ["--out", folder / "data"]
        assert call_command("prepare-text", *flags) == 0
    return folder / "data" / "bin"


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    train(data, folder, *FLAGS["rnn_lm"])
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def unaware(model, tmp_path_factory):
    """A model as it was trained before its data said how they were made."""
    folder = tmp_path_factory.mktemp("unaware")
    edited(model, folder / "model.pt", lambda content: content["task_state"].pop("training_text"))
    shutil.copy(model.with_name("dict.txt"), folder)
    return folder / "model.pt"


@pytest.fixture
def score(command):
    """The log-probability of a line by a command, and what it says on standard error."""

    def call(name, path, line, folder, *flags):
        (folder / "in").write_text(INPUTS[name](line), encoding="utf-8")
        status, output, errors = command(name, "--path", path, *flags, folder / "in", model=None)
        assert status == 0
        return VALUES[name](output), errors

    return call


def _questions(line):
    gap = line.split()[1]
    return f'id,question,a,b,c,d,e\n1,"{line.replace(gap, "_____", 1)}",{gap},a,b,c,d\n'


INPUTS = {
    "score": lambda line: f"{line}\n",
    "rescore": lambda line: f"0 ||| {line} ||| TM= 1 ||| 1\n",
    "complete": _questions,
    "diagnose": lambda line: f"{line}\n",
}
VALUES = {
    "score": lambda output: float(output.split("\t")[0]),
    "rescore": lambda output: float(output.split("BNCE= ")[1].split()[0]),
    "complete": lambda output: float(next(csv.DictReader(output.splitlines()))["exact_a"]),
    "diagnose": lambda output: output,
}


def expected(path, words, exact=False):
    """The score of words that are cut already."""
    scorer = Scorer.from_checkpoint(path, exact=exact)
    return pytest.approx(scorer.score([words], tokenized=True)[0], abs=2e-6)


# ---------------------------------------------------------------- making


KINDS = [([], "sacremoses", "en"), (["--tokenized"], "none", None)]


@pytest.mark.parametrize("flags, tokenizer, language", KINDS)
def test_it_is_written_beside_the_dictionary(flags, tokenizer, language, tmp_path):
    write_lines(tmp_path / "a", [RAW])
    flags = [*flags, "--train", tmp_path / "a", "--text-only", "--out", tmp_path / "out"]
    assert call_command("prepare-text", *flags) == 0
    made = json.loads((tmp_path / "out" / "text" / "text.json").read_text(encoding="utf-8"))
    assert made == {**PLAIN, "tokenizer": tokenizer, "language": language, "lowercase": False}


def test_other_words_than_those_of_the_given_dictionary(data, tmp_path, capsys):
    write_lines(tmp_path / "a", [RAW])
    flags = ["--test", tmp_path / "a", "--dict", data / "dict.txt", "--text-only", "--overwrite"]
    flags += ["--out", tmp_path / "out"]
    same = ["--language", "fr", "--lowercase", "--normalize", "punctuation"]
    for given in (["--language", "en"], same, [*same[:-1], "nfc"]):
        assert call_command("prepare-text", *flags, *given) == 0
        has_warned = "warning" in capsys.readouterr().out
        assert has_warned == (given != same)


MOSES = ["It &apos;s he .", "He said &quot; no &quot; ."]
WRAPPED = "It was a bright cold day in April, and the clocks were striking the hour when Winston"


LOOKS = [
    (MOSES * 5, "&apos;"),
    ([WRAPPED[: 62 + i % 9] for i in range(20)], "60 to 80 characters"),
    ([f"{WRAPPED[:60]}."] * 9, None),  # sentences that happen to be as long
]


@pytest.mark.parametrize("lines, what", LOOKS)
def test_text_that_looks_escaped_or_wrapped_is_warned_of(lines, what, tmp_path, capsys):
    write_lines(tmp_path / "a", lines)
    out = ["--text-only", "--out", tmp_path / "out"]
    assert call_command("prepare-text", "--train", tmp_path / "a", *out) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(warnings) == (what is not None)
    assert what is None or what in warnings[0]


# ---------------------------------------------------------------- training


def test_a_checkpoint_carries_it(data, model):
    assert json.loads((data / "text.json").read_text(encoding="utf-8")) == MADE
    state = torch.load(model, weights_only=False)["task_state"]
    assert state["training_text"] == MADE
    assert Scorer.from_checkpoint(model).training_text._asdict() == MADE


def test_a_damaged_one_is_named(data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "text.json").write_text('{"tokenizer": "abacus"}')
    output = train(tmp_path / "data", tmp_path / "run", *FLAGS["rnn_lm"], check=False)
    assert str(tmp_path / "data" / "text.json") in output.splitlines()[-1]


# ---------------------------------------------------------------- cutting

TRICKY = ["It's 'tis \"so\", he said... Mr. Smith's (No. 5), e.g. U.S. law.", "No.", "the <unk>."]
CURLED = "It\u2019s \u201cso\u201d, he said\u2026 \u2013 (cafe\u0301) : \u00aba\u00a0\u00bb."


CUT_BY = [
    TrainingText("sacremoses", "en"),
    TrainingText("sacremoses", "fr", lowercase=True),
    TrainingText("penn", lowercase=True),
    *(TrainingText("sacremoses", "en", normalize=how) for how in ("nfc", "punctuation")),
]


@pytest.mark.parametrize("made", CUT_BY)
def test_lines_are_cut_once(made):
    """A line that is cut already, which most tokenisers would spoil, stays as it is."""
    prose = [line for line in embedded_corpus.corpus_lines(topics) if line]
    for line in [*TRICKY, CURLED, *prose[::40]]:
        words = made.words(line)
        assert made.new_words(line) == made.new_words(" ".join(words)) == words


# ---------------------------------------------------------------- scoring


@pytest.mark.parametrize("name", list(INPUTS))
def test_commands_cut_words_as_for_training(name, model, unaware, score, tmp_path):
    """Also of text that is cut already, which stays as it is."""
    found = score(name, model, RAW, tmp_path)[0]
    assert found == score(name, model, CUT, tmp_path)[0]
    assert found != score(name, unaware, RAW, tmp_path)[0]
    if name != "diagnose":
        assert found == expected(model, CUT, exact=name == "complete")


def test_a_scorer_cuts_text_as_the_command_does(model, unaware, score, tmp_path, caplog):
    scorer, words = Scorer.from_checkpoint(model), [*CUT.split(), "</s>"]
    want = pytest.approx(score("score", model, RAW, tmp_path)[0], abs=2e-6)
    caplog.clear()
    for line in (CUT, RAW, *CURLY, f"<s> {CUT} </s>", f"\ufeff<s> {CUT}", f"\ufeff{RAW}\r\n"):
        (found,) = scorer.score_stream([line])
        assert found.words == words and found.total == want
        assert scorer.score([line])[0] == scorer.score_words([line])[0].sum() == found.total
        perplexity = math.exp(-found.total / len(words))
        assert scorer.perplexity([line, line]) == pytest.approx(perplexity)
    assert caplog.text.count("tokenized=True") == 1  # of the first line that is cut
    (found,) = Scorer.from_checkpoint(unaware).score_stream([RAW])
    assert found.words == [*RAW.split(), "</s>"]
    assert math.isnan(scorer.perplexity([]))


def test_words_of_decoders_and_lists_are_not_cut(model):
    """Nor checked: the decoder knows why it has them."""
    scorer, line = Scorer.from_checkpoint(model), "d'w4 w1."
    (want,) = scorer.score([line], tokenized=True)
    assert want != pytest.approx(scorer.score([line])[0])
    assert kenlm.Model(str(model)).score(line) * math.log(10) == pytest.approx(want)
    assert SpeechbrainRescorer(scorer).rescore_hyps([[line]]).tolist() == [pytest.approx(want)]
    for one in (scorer, scorer.with_exact(True)):
        texts = [line] * (5 if one.exact else 1)  # by prefixes, or not
        (want,) = one.score([line], tokenized=True)
        assert language_model.totals(one, texts)[0] == pytest.approx(want, abs=1e-5)


def test_a_scorer_warns_once_of_many_unknown_words(model, caplog):
    scorer = Scorer.from_checkpoint(model)
    scorer.score([CUT] * 9)
    scorer.score(["x y z"], tokenized=True)
    assert caplog.text == ""
    for one in (scorer.with_exact(True), scorer):
        assert list(one.score_stream(["x y z w1"])) and "3 of 4 words" in caplog.text
    assert caplog.text.count("vocabulary") == 1


FLAGGED = [
    ([], RAW, CUT),
    *(([], line, CUT) for line in CURLY),  # the second is cut already
    (["--tokenize", "none", "--lowercase"], RAW, RAW.lower()),
    (["--tokenize", "fr"], RAW, "L' W1 , w2 ( w3 ) d' w4 ."),
    (["--lowercase"], RAW, CUT),
]
_FRENCH = ["--tokenize", "fr", "--lowercase"]
UNAWARE = [([], RAW, RAW), ([*_FRENCH, "--normalize", "punctuation"], CURLY[0], CUT)]


def test_flags_go_before_what_a_checkpoint_says(model, unaware, score, tmp_path):
    for path, rows in ((model, FLAGGED), (unaware, UNAWARE)):
        for flags, line, words in rows:
            assert score("score", path, line, tmp_path, *flags)[0] == expected(unaware, words)
    assert score("score", unaware, CURLY[0], tmp_path, *_FRENCH)[0] != expected(unaware, CUT)


def test_a_change_of_the_words_is_told_once(model, unaware, score, tmp_path):
    lines = f"{RAW}\n{RAW}"
    assert score("score", model, lines, tmp_path)[1].count("--tokenize none") == 1
    assert score("score", model, CUT, tmp_path)[1] == ""
    assert score("score", model, lines, tmp_path, "--tokenize", "fr", "--lowercase")[1] == ""


TOLD = [("score", ["--summary"]), ("rescore", []), ("complete", [])]


@pytest.mark.parametrize("name, flags", TOLD)
def test_mostly_unknown_words_are_told_of(name, flags, model, score, tmp_path, monkeypatch):
    """With their share, how they were cut, and the flag for it; no word where all are known."""
    monkeypatch.setitem(VALUES, "score", str)
    unknown = " ".join(["X1 w1"] * 5)
    _, errors = score(name, model, unknown, tmp_path, "--tokenize", "none", *flags)
    assert errors.count("--tokenize") == 1 and "%" in errors and "between spaces" in errors
    _, errors = score(name, model, unknown, tmp_path, *flags)
    assert errors.count("vocabulary") == 1 and "sacremoses" in errors and "'fr'" in errors
    if name != "complete":  # whose other choices are unknown
        _, errors = score(name, model, CUT, tmp_path, *flags)
        assert "vocabulary" not in errors
