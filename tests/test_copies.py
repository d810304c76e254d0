"""Scorers, states and adapters are copied, pickled, and sent to other processes."""

import copy
import multiprocessing
import os
import pickle
import sys

import espnet_interface
import numpy as np
import pytest
import torch
from conftest import zipf_lines
from pyctcdecode.alphabet import Alphabet
from pyctcdecode.decoder import BeamSearchDecoderCTC
from scoring_models import EACH
from tools import slow

from fairseq_bnce import decoding
from fairseq_bnce.decoding import FlashlightLM, PyctcdecodeLM, SpeechbrainRescorer
from fairseq_bnce.decoding import kenlm as kenlm_look_alike
from fairseq_bnce.decoding.histories import Histories
from fairseq_bnce.scoring import ScoringError

LINES = zipf_lines(4, seed=3)
WORDS = ["<unk>", *(f"w{number}" for number in range(60))]


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("name", EACH)
def test_a_copied_scorer_scores_the_same(name, made):
    """And takes the states of the original, as it does those of the copy."""
    scorer = made(name)
    want = scorer.score(LINES)
    exact = scorer.with_exact(True)
    np.testing.assert_array_equal(pickled(exact).score(LINES), exact.score(LINES))
    for copied in (pickled(scorer), copy.deepcopy(scorer), copy.copy(scorer)):
        np.testing.assert_array_equal(copied.score(LINES), want)
        if not scorer.is_causal:
            continue
        word = [scorer.ids(["w1"])[0]] * 2
        state, _ = scorer.extend(scorer.start(2), word)
        then = scorer.extend(state, word)[1]
        for other in (state, pickled(state), copy.deepcopy(state), copy.copy(state)):
            for reads in (scorer, copied):
                np.testing.assert_array_equal(reads.extend(other.select([1, 0]), word)[1], then)
        assert len(type(state).concatenate([pickled(state), state])) == 4
        assert len(pickle.dumps(state)) < len(pickle.dumps(scorer)) / 2  # no model


def test_a_state_without_its_scorer_is_still_its_own(made):
    scorer, other = made("rnn_lm"), made("rnn_lm")
    with pytest.raises(ScoringError, match="^state: "):
        other.extend(pickled(scorer.start()), [5])


def _scored(scorer):
    return scorer.score(LINES), scorer.extend(scorer.start(), [5])[0]


@pytest.mark.parametrize("method", ["spawn", *slow("fork", "forkserver")])
def test_workers_of_a_pool(method, made):
    scorer = made("transformer_lm")
    with multiprocessing.get_context(method).Pool(1) as pool:
        found, state = pool.apply_async(_scored, (scorer,)).get(timeout=100)
    np.testing.assert_array_equal(found, scorer.score(LINES))
    want = scorer.extend(scorer.start(), [5])[0]
    np.testing.assert_array_equal(*(scorer.normalisers(each) for each in (state, want)))


@pytest.mark.slow
def test_workers_of_joblib(made):
    import joblib

    scorer = made("transformer_lm")
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(scorer.score)([line]) for line in LINES)
    np.testing.assert_allclose(np.concatenate(found), scorer.score(LINES), atol=1e-5)


@pytest.fixture
def espnet_scorer(monkeypatch):
    monkeypatch.setitem(sys.modules, "espnet.nets.scorer_interface", espnet_interface)
    monkeypatch.delitem(sys.modules, "fairseq_bnce.decoding.espnet", raising=False)
    yield decoding.EspnetScorer
    sys.modules.pop("fairseq_bnce.decoding.espnet")


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
@pytest.mark.parametrize("name", ["transformer_lm", "lstm_lm"])
def test_adapters(name, copied, made, language_model, espnet_scorer):
    scorer = made(name)
    lm = FlashlightLM(scorer, WORDS, unk_score_offset=-2.0, searches=3)
    again = copied(lm)
    lm.start(False)  # as of a search that goes on
    for index in (0, 5):
        assert again.score(again.start(False), index)[1] == lm.score(lm.start(False), index)[1]
    lm = PyctcdecodeLM(scorer, WORDS[:30], alpha=0.7)
    _, state = lm.score(lm.get_start_state(), "w1")
    again = copied(lm)
    for history in (state, copied(state), again.score(again.get_start_state(), "w1")[1]):
        for each in (lm, again):
            assert each.score(history, "w2")[0] == pytest.approx(lm.score(state, "w2")[0], abs=1e-5)
    lines = [["w1 w2"], ["w3"]]
    rescorer = SpeechbrainRescorer(scorer, str.lower)
    assert copied(rescorer).rescore_hyps(lines).tolist() == rescorer.rescore_hyps(lines).tolist()
    tokens = [*WORDS, "<sos/eos>"]
    lm = espnet_scorer(scorer, tokens)
    calls = [torch.tensor([len(WORDS)]), torch.tensor([3]), None, None]
    assert copied(lm).score_partial(*calls)[0] == lm.score_partial(*calls)[0]
    model = decoding.KenlmModel(str(language_model(name)))
    assert copied(model).score("w1") == model.score("w1")
    begun = kenlm_look_alike.State()
    model.BeginSentenceWrite(begun)
    after = kenlm_look_alike.State()
    want = model.BaseScore(begun, "w1", after)
    assert model.BaseScore(copied(begun), "w1", copied(after)) == want
    assert copied(after) == after and model.BaseScore(copied(after), "w2", begun) < 0


def test_a_pickled_history_is_read_again(made):
    histories = Histories(made("rnn_lm"))
    start = pickled(histories.start())
    history, score = histories.extend(start, 5)
    assert score == histories.score(histories.start(), 5)
    long = history
    for _ in range(3000):  # deeper than Python's recursion
        long = histories.after(long, 6)
    assert pickled(long).words() == long.words()
    assert histories.score(pickled(history), 6) == histories.score(history, 6)


def test_pyctcdecode_saves_nothing_of_what_it_cannot_load(made, tmp_path):
    alphabet = Alphabet.build_alphabet(["", " ", "w", *"0123456789"])
    with pytest.raises(ScoringError, match="^save_to_dir: .*PyctcdecodeLM"):
        BeamSearchDecoderCTC(alphabet, PyctcdecodeLM(made("rnn_lm"))).save_to_dir(str(tmp_path))
    assert not os.listdir(tmp_path)
    BeamSearchDecoderCTC(alphabet).save_to_dir(str(tmp_path))
    assert os.listdir(tmp_path)
