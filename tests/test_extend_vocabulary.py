"""Words appended to a trained model: fairseq-bnce extend-vocabulary."""

import functools
import json
import random
import re

import numpy as np
import pytest
from conftest import zipf_lines
from scoring_models import FLAGS
from tools import call_command, modern, train, write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.cli import extend_vocabulary

_TIED_BANDS = "transformer_lm tied bands"
FLAGS[_TIED_BANDS] = [*FLAGS["transformer_lm bands"], "--adaptive-input", "--tie-adaptive-weights"]
_SQUASHED = "rnn_lm squashed"
FLAGS[_SQUASHED] = [*FLAGS["rnn_lm"], "--criterion", "self_norm_softmax", "--score-squashing"]
_SQUASHED_BANDS = "transformer_lm bands squashed"
FLAGS[_SQUASHED_BANDS] = [*FLAGS["transformer_lm bands"], *FLAGS[_SQUASHED][-3:]]
_TIED = "transformer_lm tied"
FLAGS[_TIED] = [*FLAGS["transformer_lm"], "--share-decoder-input-output-embed"]
_OTHERS = ["lstm_lm bottleneck tied", "transformer_lm", _TIED, "transformer_lm bands", _TIED_BANDS]
NAMES = ["rnn_lm", *modern(*_OTHERS, "lbl_lm both sides", _SQUASHED)]
_SHARES = ["rnn_lm", *modern("transformer_lm", _TIED, _SQUASHED, _SQUASHED_BANDS)]
OLD = [line.replace(" w3 ", " <unk> ") for line in zipf_lines(30, seed=8)]


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
    return write_lines(path, _with_new_words(zipf_lines(300, seed=7)))


def _hidden(text):
    return re.sub("new[ab]", "<unk>", text.read_text())


def _extend(path, out, *flags):
    """Extend a model: scorers, unnormalised and exact, before and afterwards."""
    assert call_command("extend-vocabulary", "--path", path, *flags, "--out", out) == 0
    paths = path, out / "checkpoint.pt"
    ways = ({"shift": "none"}, {"exact": True})
    return [[Scorer.from_checkpoint(one, **way) for way in ways] for one in paths]


def _scores(scorer, lines=OLD):
    """Of all words but <unk>."""
    return np.concatenate([one.log_probs[~one.is_oov] for one in scorer.score_stream(lines)])


def _log_z(raw, exact, lines):
    """log Z_c - log Z of each context."""
    return np.concatenate(raw.score_words(lines)) - np.concatenate(exact.score_words(lines))


@pytest.mark.parametrize("name", NAMES)
def test_old_words_keep_their_scores(name, language_model, text, tmp_path, capsys):
    """And new ones get some."""
    path, out = language_model(name), tmp_path / "out"
    before, after = _extend(path, out, "--text", text)
    report = json.loads(capsys.readouterr().out)["growth_of_log_z"]
    np.testing.assert_allclose(_scores(after[0]), _scores(before[0]), rtol=1e-5, atol=1e-5)
    growth = np.subtract(*(_log_z(*one, _hidden(text).splitlines()) for one in (after, before)))
    assert report["mean"] == pytest.approx(growth.mean(), abs=1e-4)
    assert report["largest"] == pytest.approx(growth.max(), abs=1e-4)
    lines = text.read_text().splitlines()
    # With the new words' own embeddings.
    grown = np.subtract(*(_log_z(*one, lines).mean() for one in (after, before)))
    shifts = [Scorer.from_checkpoint(one).shift for one in (out / "checkpoint.pt", path)]
    assert np.subtract(*shifts) == pytest.approx(grown, abs=1e-4)
    assert after[1].dictionary.symbols[:-2] == before[1].dictionary.symbols
    other = {"newa": "newb", "newb": "newa"}
    swapped = [" ".join(other.get(word, word) for word in line.split()) for line in lines]
    assert after[1].score(lines).sum() > after[1].score(swapped).sum()


@pytest.fixture(scope="module")
def unk_model(text, tmp_path_factory):
    """Models by their names, of a training text that has <unk> for the new words."""
    folder = tmp_path_factory.mktemp("unk")
    (folder / "text.txt").write_text(_hidden(text))
    flags = ["--train", folder / "text.txt", "--valid", folder / "text.txt", "--tokenized"]
    assert call_command("prepare-text", *flags, "--out", folder / "data") == 0

    @functools.lru_cache(maxsize=None)
    def make(name):
        train(folder / "data/bin", folder / name, *FLAGS[name], "--max-epoch", "3")
        return folder / name / "checkpoint_last.pt"

    return make


def test_of_a_long_text_a_part_is_read(unk_model, text, tmp_path, capsys, monkeypatch):
    """Its growth is that of the text."""
    others = [line for line in zipf_lines(900, seed=9) if "w3" not in line.split()]
    path = tmp_path / "text"
    write_lines(path, text.read_text().splitlines()[:40] + others)
    monkeypatch.setattr(extend_vocabulary, "_TOKENS", 400)
    before, after = _extend(unk_model("rnn_lm"), tmp_path / "out", "--text", path)
    report = json.loads(capsys.readouterr().out)
    growth = np.subtract(*(_log_z(*one, _hidden(path).splitlines()) for one in (after, before)))
    assert report["contexts"] < 0.3 * len(growth)
    assert report["growth_of_log_z"]["mean"] == pytest.approx(growth.mean(), abs=0.002)


def _probabilities(scorer):
    """Mean probabilities of all words after three words of OLD's lines."""
    ids = np.array([scorer.ids(line.split()[:3]) for line in OLD if len(line.split()) > 3])
    state = scorer.start(len(ids))
    for column in ids.T:
        state = scorer.read_on(state, column)
    every = np.tile(np.arange(len(scorer.dictionary)), (len(ids), 1))
    return np.exp(scorer.next_log_probs(state, every)).mean(0)


@pytest.mark.parametrize("name", _SHARES)
def test_without_a_text_new_words_share_half_the_probability_of_unk(name, unk_model, tmp_path):
    write_lines(tmp_path / "words", ["NewA", "newa", "newb", "W1"])
    flags = ["--words", tmp_path / "words", "--lowercase"]
    (raw, before), (raw_after, after) = _extend(unk_model(name), tmp_path / "out", *flags)
    assert after.dictionary.symbols == [*before.dictionary.symbols, "newa", "newb"]
    np.testing.assert_allclose(_scores(raw_after), _scores(raw), atol=1e-4)
    old, new = map(_probabilities, (before, after))
    unk = after.dictionary.unk()
    kept = 1 if name == _TIED else 0.5  # its row is an embedding, too
    near = pytest.approx(old[unk] * np.array([kept, 0.25, 0.25]), rel=0.15)
    assert new[[unk, -1, -2]] == near


@pytest.mark.modern
def test_shares_below_the_least_squashed_score_are_reported(unk_model, tmp_path, capsys):
    write_lines(tmp_path / "words", [f"new{number}" for number in range(5000)])
    _extend(unk_model(_SQUASHED), tmp_path / "out", "--words", tmp_path / "words")
    assert "--score-squashing" in capsys.readouterr().err


def test_training_goes_on_with_the_new_words(unk_model, text, tmp_path):
    out = tmp_path / "out"
    (_, _), (_, added) = _extend(unk_model("rnn_lm"), out, "--text", text)
    data = ["--train", text, "--valid", text, "--tokenized", "--dict", out / "dict.txt"]
    assert call_command("prepare-text", *data, "--out", tmp_path / "data") == 0
    start = ["--finetune-from-model", str(out / "checkpoint.pt")]
    train(tmp_path / "data/bin", tmp_path / "run", *FLAGS["rnn_lm"], *start)
    further = Scorer.from_checkpoint(tmp_path / "run/checkpoint_last.pt", exact=True)
    lines = text.read_text().splitlines()
    assert _scores(further, lines).mean() > _scores(added, lines).mean()
