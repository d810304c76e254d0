"""Decoders' adapters are copied and pickled."""

import copy

import pytest
import torch
from test_copies import pickled

from fairseq_bnce import decoding
from fairseq_bnce.decoding import FlashlightLM, PyctcdecodeLM, SpeechbrainRescorer
from fairseq_bnce.decoding import kenlm as kenlm_look_alike
from fairseq_bnce.scoring import ScoringError

WORDS = ["<unk>", *(f"w{number}" for number in range(60))]


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_adapters(copied, made, language_model, espnet_scorer):
    scorer = made("transformer_lm")
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
    kept = {"exact": True, "unk_score_offset": -1.0, "cached": 3, "read_ahead": 2}
    model = decoding.KenlmModel(str(language_model("transformer_lm")), **kept)
    assert copied(model).score("unheard") == model.score("unheard")
    assert (copied(model).histories.cached, copied(model).histories.read_ahead) == (3, 2)
    begun = kenlm_look_alike.State()
    model.BeginSentenceWrite(begun)
    after = kenlm_look_alike.State()
    want = model.BaseScore(begun, "w1", after)
    assert model.BaseScore(copied(begun), "w1", copied(after)) == want
    assert copied(after) == after and hash(copied(after)) == hash(after)
    assert model.BaseScore(copied(after), "w2", begun) < 0


def test_pyctcdecode_does_not_save_what_it_cannot_load(made, tmp_path):
    with pytest.raises(ScoringError):
        PyctcdecodeLM(made("rnn_lm")).save_to_dir(str(tmp_path))
