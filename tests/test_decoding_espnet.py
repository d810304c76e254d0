"""A partial scorer for ESPnet, by the calls of its beam searches.

ESPnet itself is not there: test_decoding_libraries.py runs its searches.
"""

import math
import random

import numpy as np
import pytest
import torch

from fairseq_bnce.scoring import ScoringError

TOKENS = ["<blank>", "<unk>", *(f"w{number}" for number in range(60)), "<sos/eos>"]
END = len(TOKENS) - 1


def test_tokens_that_the_model_lacks_may_be_ruled_out(made, espnet_scorer):
    tokens, found = torch.tensor([2, len(TOKENS)]), []
    for offset in (0.0, -3.0, -math.inf):
        lm = espnet_scorer(made("lstm_lm"), [*TOKENS, "unheard"], unk_score_offset=offset)
        found.append(lm.score_partial(torch.tensor([END]), tokens, None, None)[0].tolist())
        assert found[-1] == [found[0][0], pytest.approx(found[0][1] + offset, abs=1e-5)]


def test_the_end_of_sentence_is_among_the_tokens(made, espnet_scorer):
    """Else the end would be scored as <unk>."""
    scorer, end = made("lstm_lm"), torch.tensor([END])
    with pytest.raises(ScoringError):
        espnet_scorer(scorer, [*TOKENS[:-1], "<end>"])
    lm = espnet_scorer(scorer, [*TOKENS[:-1], "<eos>"])
    found, _ = lm.score_partial(end, end, None, None)
    assert found[0].item() == pytest.approx(scorer.score([""])[0], abs=1e-5)


def test_hypotheses_are_read_in_one_batch(made, espnet_scorer):
    lm = espnet_scorer(made("lstm_lm"), TOKENS, read_ahead=0)
    _, states = lm.batch_score_partial(torch.tensor([[END]] * 4), None, [None] * 4, None)
    ys = torch.tensor([[END, token] for token in (2, 3, 4, 5)])
    lm.batch_score_partial(ys, None, states, None)
    assert lm.histories.counts[1:] == [4, 1]


def test_a_token_that_was_not_picked_never_wins(made, espnet_scorer):
    """BatchBeamSearch adds up the scores of all tokens, and takes the largest sums."""
    lm, picked = espnet_scorer(made("lstm_lm"), TOKENS), torch.tensor([[3, 4], [5, 6]])
    scores, _ = lm.batch_score_partial(torch.tensor([[END]] * 2), picked, [None] * 2, None)
    others = torch.linspace(-50, 0, scores.numel()).view_as(scores)
    best = (0.1 * scores + others).topk(2, dim=-1)[1]
    assert [set(row) for row in best.tolist()] == [{3, 4}, {5, 6}]
    assert torch.isfinite(scores).all()


def test_espnet_scores_as_the_scorer(made, espnet_scorer):
    """Ten hypotheses of a length, of which each step's are any of the last one's."""
    scorer = made("transformer_lm")
    lm = espnet_scorer(scorer, TOKENS)
    rng = random.Random(3)
    ys, states, totals = [[END]] * 10, [lm.init_state(None)] * 10, [0.0] * 10
    for _ in range(6):
        picked = torch.tensor([rng.sample(range(2, END), 5) + [END] for _ in ys])
        scores, states = lm.batch_score_partial(torch.tensor(ys), picked, states, None)
        assert (scores[0] > -1e9).nonzero().flatten().tolist() == sorted(picked[0].tolist())
        one = rng.choice(range(10))
        before = None if len(ys[0]) == 1 else lm.select_state(states, one).parent
        alone, _ = lm.score_partial(torch.tensor(ys[one]), picked[one], before, None)
        np.testing.assert_allclose(alone, scores[one, picked[one]], atol=1e-5)
        chosen = [(h, picked[h, rng.randrange(5)].item()) for h in rng.choices(range(10), k=10)]
        totals = [totals[h] + scores[h, token].item() for h, token in chosen]
        states = [lm.select_state(states, h, token) for h, token in chosen]
        ys = [[*ys[h], token] for h, token in chosen]
    scores, _ = lm.batch_score_partial(torch.tensor(ys), None, states, None)
    totals = [total + scores[h, END].item() for h, total in enumerate(totals)]
    lines = [" ".join(TOKENS[t] for t in y[1:]) for y in ys]
    np.testing.assert_allclose(totals, scorer.score(lines), rtol=0, atol=1e-4)
