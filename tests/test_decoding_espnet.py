"""ESPnet's beam searches with a partial scorer of ours."""

import random

import numpy as np
import pytest
import torch
from espnet.nets.batch_beam_search import BatchBeamSearch
from espnet.nets.beam_search import BeamSearch

from fairseq_bnce import Scorer
from fairseq_bnce.decoding import EspnetScorer
from fairseq_bnce.scoring import ScoringError

TOKENS = ["<blank>", "<unk>", *(f"w{number}" for number in range(60)), "<sos/eos>"]
END = len(TOKENS) - 1


@pytest.fixture
def made(language_model):
    return lambda name: Scorer.from_checkpoint(language_model(name))


@pytest.mark.parametrize("name", ["lstm_lm", "transformer_lm"])
def test_espnet_scores_as_the_scorer(name, made):
    """Ten hypotheses of a length, of which each step's are any of the last one's."""
    scorer = made(name)
    lm = EspnetScorer(scorer, TOKENS)
    rng = random.Random(3)
    ys, states, totals = [[END]] * 10, [lm.init_state(None)] * 10, [0.0] * 10
    for _ in range(6):
        picked = torch.tensor([rng.sample(range(2, END), 5) + [END] for _ in ys])
        scores, states = lm.batch_score_partial(torch.tensor(ys), picked, states, None)
        assert (scores[0, picked[0]] != 0).all() and scores[0].ne(0).sum() == 6
        one = rng.choice(range(10))
        alone, _ = lm.score_partial(
            torch.tensor(ys[one]),
            picked[one],
            None if len(ys[0]) == 1 else lm.select_state(states, one).parent,
            None,
        )
        np.testing.assert_allclose(alone, scores[one, picked[one]], atol=1e-5)
        chosen = [(h, picked[h, rng.randrange(5)].item()) for h in rng.choices(range(10), k=10)]
        totals = [totals[h] + scores[h, token].item() for h, token in chosen]
        states = [lm.select_state(states, h, token) for h, token in chosen]
        ys = [[*ys[h], token] for h, token in chosen]
    scores, _ = lm.batch_score_partial(torch.tensor(ys), None, states, None)
    totals = [total + scores[h, END].item() for h, total in enumerate(totals)]
    lines = [" ".join(TOKENS[t] for t in y[1:]) for y in ys]
    np.testing.assert_allclose(totals, scorer.score(lines), rtol=0, atol=1e-4)


@pytest.mark.parametrize("search", [BeamSearch, BatchBeamSearch])
def test_its_beam_searches_score_as_the_scorer(search, made):
    scorer = made("rnn_lm")
    found = search(
        scorers={"lm": EspnetScorer(scorer, TOKENS)},
        weights={"lm": 1.0},
        beam_size=5,
        vocab_size=len(TOKENS),
        sos=END,
        eos=END,
        token_list=TOKENS,
    )(torch.zeros(8, 1))
    # At the length of x, 8 frames, the search ends hypotheses without a score.
    found = [one for one in found if len(one.yseq) <= 8]
    texts = [" ".join(TOKENS[token] for token in one.yseq[1:-1]) for one in found]
    assert len(set(texts)) > 3
    got = [float(one.score) for one in found]
    np.testing.assert_allclose(got, scorer.score(texts), rtol=0, atol=1e-4)


def test_a_state_of_another_model(made):
    scorer = made("rnn_lm")
    ours, theirs = EspnetScorer(scorer, TOKENS), EspnetScorer(scorer, TOKENS)
    y, picked = torch.tensor([END]), torch.tensor([3])
    _, state = theirs.score_partial(y, picked, None, None)
    with pytest.raises(ScoringError, match="got another model's"):
        ours.score_partial(torch.tensor([END, 4]), picked, state, None)
