"""Adapters in libraries that .venv lacks: ESPnet and SpeechBrain.

pip install espnet speechbrain && pytest -m decoders
"""

import importlib
import sys
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from test_decoding_espnet import END, TOKENS

from fairseq_bnce import decoding
from fairseq_bnce.decoding import SpeechbrainRescorer

pytestmark = [pytest.mark.decoders, pytest.mark.filterwarnings("ignore")]  # the libraries' own


@pytest.fixture
def espnet_scorer(monkeypatch):
    """The adapter over the library."""
    monkeypatch.delitem(sys.modules, "fairseq_bnce.decoding.espnet", raising=False)
    return decoding.EspnetScorer


@pytest.mark.parametrize("search", ["beam_search.BeamSearch", "batch_beam_search.BatchBeamSearch"])
def test_espnets_beam_searches_score_as_the_scorer(search, made, espnet_scorer):
    scorer, (module, name) = made("rnn_lm"), search.split(".")
    make = getattr(importlib.import_module(f"espnet.nets.{module}"), name)
    parts = {"scorers": {"lm": espnet_scorer(scorer, TOKENS)}, "weights": {"lm": 1.0}}
    sizes = {"beam_size": 5, "vocab_size": len(TOKENS), "sos": END, "eos": END}
    found = make(**parts, **sizes, token_list=TOKENS)(torch.zeros(8, 1))
    # At the length of x, 8 frames, the search ends hypotheses without a score.
    found = [one for one in found if len(one.yseq) <= 8]
    texts = [" ".join(TOKENS[token] for token in one.yseq[1:-1]) for one in found]
    assert len(set(texts)) > 3
    got = [float(one.score) for one in found]
    np.testing.assert_allclose(got, scorer.score(texts), rtol=0, atol=1e-4)


@pytest.fixture
def rescorer_builder(monkeypatch):
    """SpeechBrain's, without torchaudio, whose compiled parts need a torch of its version."""
    for name in ("", ".transforms", ".functional", ".compliance", ".compliance.kaldi"):
        module = MagicMock(__path__=[], __version__="2.11.0")
        module.__spec__ = importlib.machinery.ModuleSpec(f"torchaudio{name}", None)
        monkeypatch.setitem(sys.modules, f"torchaudio{name}", module)
    return importlib.import_module("speechbrain.decoders.scorer").RescorerBuilder


def test_speechbrains_builder_adds_its_scores(made, rescorer_builder):
    scorer = made("rnn_lm")
    rescorer = SpeechbrainRescorer(scorer, str.lower)
    builder = rescorer_builder(weights={"rnnlm": 0.5}, rescorers=[rescorer])
    builder.move_rescorers_to_device("cpu")
    lists, before = [["W1 W2", "W1 W3"], ["W4 W5", "W6"]], [[-1.0, -1.5], [-2.0, -9.0]]
    texts, scores = builder.rescore(lists, [list(row) for row in before])
    nats = scorer.score([text.lower() for row in lists for text in row]).reshape(2, 2)
    want = np.array(before) + 0.5 * nats
    for row, order in enumerate(np.argsort(-want, axis=1)):
        assert texts[row] == [lists[row][n] for n in order]
        np.testing.assert_allclose(scores[row], want[row][order], rtol=0, atol=1e-4)
