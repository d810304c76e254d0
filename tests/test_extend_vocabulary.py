"""Words appended to a trained model: fairseq-bnce extend-vocabulary."""

import json
import random
import re

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from scoring_models import ADAPTIVE, FEW_TARGETS, FLAGS
from tools import call_command, modern, train, write_lines

from fairseq_bnce import Scorer

_TIED_BANDS = "transformer_lm tied bands"
FLAGS[_TIED_BANDS] = [*FLAGS["transformer_lm bands"], "--adaptive-input", "--tie-adaptive-weights"]
_SQUASHED = "rnn_lm squashed"
FLAGS[_SQUASHED] = [*FLAGS["rnn_lm"], "--criterion", "self_norm_softmax", "--score-squashing"]
_OTHERS = ["lstm_lm bottleneck tied", "transformer_lm", "transformer_lm bands", _TIED_BANDS]
NAMES = ["rnn_lm", *modern(*_OTHERS, "lbl_lm both sides", _SQUASHED)]
OLD = zipf_lines(30, seed=8)


def _with_new_words(lines):
    """After w3 often comes newa; newb comes anywhere."""
    draw = random.Random(1)
    replaced = []
    for line in lines:
        words = line.split()
        for place, before in enumerate(words[:-1]):
            if before == "w3" or draw.random() < 0.05:
                words[place + 1] = "newa" if before == "w3" else "newb"
        replaced.append(" ".join(words))
    return replaced


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    write_lines(path, _with_new_words(zipf_lines(300, seed=7)))
    return path


def _extend(path, out, *flags):
    """Extend a model: scorers, unnormalised and exact, before and afterwards."""
    assert call_command("extend-vocabulary", "--path", path, *flags, "--out", out) == 0
    paths = path, out / "checkpoint.pt"
    ways = ({"shift": "none"}, {"exact": True})
    return [[Scorer.from_checkpoint(one, **way) for way in ways] for one in paths]


def _scores(scorer, lines=OLD):
    return np.concatenate(scorer.score_words(lines))


@pytest.mark.parametrize("name", NAMES)
def test_old_words_keep_their_scores_and_new_words_get_some(
    name, language_model, text, tmp_path, capsys
):
    path, out = language_model(name), tmp_path / "out"
    (raw, exact), (raw_after, exact_after) = _extend(path, out, "--text", text)
    report = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(_scores(raw_after), _scores(raw), rtol=1e-5, atol=1e-5)
    fall = _scores(exact) - _scores(exact_after)
    assert fall.mean() == pytest.approx(report["growth_of_log_z"]["mean"], abs=0.1)
    assert exact_after.dictionary.symbols[:-2] == exact.dictionary.symbols
    lines = text.read_text().splitlines()
    other = {"newa": "newb", "newb": "newa"}
    swapped = [" ".join(other.get(word, word) for word in line.split()) for line in lines]
    assert exact_after.score(lines).sum() > exact_after.score(swapped).sum()


@pytest.fixture(scope="module")
def with_unk(text, tmp_path_factory):
    """A model whose training text has <unk> for the new words."""
    folder = tmp_path_factory.mktemp("unk")
    hidden = re.sub("new[ab]", "<unk>", text.read_text())
    (folder / "text.txt").write_text(hidden)
    flags = ["--train", folder / "text.txt", "--valid", folder / "text.txt", "--tokenized"]
    assert call_command("prepare-text", *flags, "--out", folder / "data") == 0
    train(folder / "data/bin", folder, *FLAGS["rnn_lm"], "--max-epoch", "3")
    return folder / "checkpoint_last.pt"


def test_without_a_text_new_words_share_the_probability_of_unk(with_unk, tmp_path):
    write_lines(tmp_path / "words", ["newa", "newb", "w1"])
    (_, before), (_, after) = _extend(with_unk, tmp_path / "out", "--words", tmp_path / "words")
    np.testing.assert_allclose(_scores(after), _scores(before), atol=1e-4)
    old, new = (
        np.exp(one.next_log_probs(one.start(len(one.dictionary)), range(len(one.dictionary))))
        for one in (before, after)
    )
    unk = after.dictionary.unk()
    assert new[[unk, -1, -2]] == pytest.approx(old[unk] * np.array([0.5, 0.25, 0.25]), rel=1e-3)


def test_training_goes_on_with_the_new_words(with_unk, text, tmp_path):
    out = tmp_path / "out"
    (_, _), (_, added) = _extend(with_unk, out, "--text", text)
    data = ["--train", text, "--valid", text, "--tokenized", "--dict", out / "dict.txt"]
    assert call_command("prepare-text", *data, "--out", tmp_path / "data") == 0
    start = ["--finetune-from-model", str(out / "checkpoint.pt")]
    train(tmp_path / "data/bin", tmp_path / "run", *FLAGS["rnn_lm"], *start)
    further = Scorer.from_checkpoint(tmp_path / "run/checkpoint_last.pt", exact=True)
    lines = text.read_text().splitlines()
    assert _scores(further, lines).mean() > _scores(added, lines).mean()


@pytest.mark.parametrize(
    ("name", "words", "flag"),
    [
        ("rnn_lm", ["w1"], "--words"),
        ("rnn_lm", ["two words"], "--words"),
        *modern((FEW_TARGETS, ["new"], "--path"), (ADAPTIVE, ["new"], "--path")),
    ],
)
def test_refused(name, words, flag, language_model, tmp_path, capsys):
    write_lines(tmp_path / "words", words)
    flags = ["--path", language_model(name), "--words", tmp_path / "words"]
    assert call_command("extend-vocabulary", *flags, "--out", tmp_path / "out") == 2
    assert flag in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced(with_unk, text, capsys):
    flags = ["--path", with_unk, "--text", text, "--out", with_unk.parent]
    assert call_command("extend-vocabulary", *flags) == 2
    assert "--out" in capsys.readouterr().err


def test_of_two_commands_at_once_one_fails(language_model, tmp_path, monkeypatch):
    write_lines(tmp_path / "words", ["new"])
    flags = ["--path", language_model("rnn_lm"), "--words", tmp_path / "words"]
    flags += ["--out", tmp_path / "out"]
    save, statuses = torch.save, []

    def save_after_another(content, path):
        monkeypatch.setattr(torch, "save", save)
        statuses.append(call_command("extend-vocabulary", *flags))
        save(content, path)

    monkeypatch.setattr(torch, "save", save_after_another)
    statuses.append(call_command("extend-vocabulary", *flags))
    assert statuses == [0, 2]
