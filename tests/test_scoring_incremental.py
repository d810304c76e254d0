"""Hypotheses that grow word by word have the scores of whole sentences."""

import pickle
import random
from functools import partial

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from scoring_models import BOS, CAUSAL, DYNAMIC
from tools import modern, refusing

from fairseq_bnce import losses
from fairseq_bnce.scoring import ScoringError
from fairseq_bnce.scoring.incremental import State


def grow(scorer, lines):
    """Log-probabilities of all lines, in one state that those that have ended leave."""
    ids = [[*scorer.ids(line.split()), scorer.dictionary.eos()] for line in lines]
    scores = [[] for _ in lines]
    alive, state = list(range(len(lines))), scorer.start(len(lines))
    for position in range(max(map(len, ids))):
        going_on = [n for n, line in enumerate(alive) if position < len(ids[line])]
        random.Random(position).shuffle(going_on)
        state, alive = state.select(going_on), [alive[n] for n in going_on]
        state, found = scorer.extend(state, [ids[line][position] for line in alive])
        for line, score in zip(alive, found):
            scores[line].append(score)
    return scores


@pytest.mark.parametrize("name", [*CAUSAL, *BOS, *modern(DYNAMIC)])
def test_words_have_the_scores_of_whole_sentences(name, made):
    """One of the lines is longer than the 13 words that the models with positions read at once.

    The cells of an lstm_lm read few hypotheses, its fused layers many.
    """
    lines = [*zipf_lines(20, seed=11), " ".join(zipf_lines(7, seed=12)), "w1 unheard w2", ""]
    scorer = made(name)
    for kind in (scorer, scorer.with_exact(True)):
        for got, want in zip(grow(kind, lines), kind.score_words(lines)):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_hypotheses_of_several_lengths_in_one_state(name, made):
    """As in a lattice: they meet, are extended together, and change places.

    Models with positions come to read them together: a long one's block is cut down to 6 words, and
    the others have as many by then.
    """
    scorer = made(name)
    word, *next_words = scorer.ids([f"w{number}" for number in range(20)])
    long = scorer.start()
    for _ in range(7):
        long, _ = scorer.extend(long, [word])
    alone = [long, scorer.start(), scorer.start()]
    together = State.concatenate(alone).select([1, 0, 2, 2])
    alone = [alone[row] for row in (1, 0, 2, 2)]
    for step, _ in enumerate(next_words):
        words = [next_words[step - row] for row in range(4)]
        together, found = scorer.extend(together, words)
        pairs = [scorer.extend(state, [w]) for state, w in zip(alone, words)]
        alone = [state for state, _ in pairs]
        np.testing.assert_allclose(found, [score[0] for _, score in pairs], rtol=0, atol=1e-5)
        together, alone = together.select([3, 2, 0, 1]), [alone[row] for row in (3, 2, 0, 1)]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_stays_what_it_is(name, made):
    """Two hypotheses branch off from it; neither knows of the other."""
    scorer = made(name)
    first, second, third = scorer.ids(["w1", "w2", "w3"])
    state, _ = scorer.extend(scorer.start(2), [first, second])
    before = scorer.extend(state, [second, third])
    scorer.extend(state, [third, first])
    again = scorer.extend(state, [second, third])
    for a, b in ((before[1], again[1]), (before[0].features, again[0].features)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", ["transformer_lm", *modern("transformer_lm bands")])
def test_words_that_may_come_next(name, made):
    """Exact scores of all words sum to 1; others need not; the host has the same."""
    scorer = made(name, exact=True)
    state, _ = scorer.extend(scorer.start(2), scorer.ids(["w1", "w2"]))
    words = scorer.ids(["w3", "w4", "w5"])
    several = scorer.next_log_probs(state, [words, words[::-1]])
    assert several.shape == (2, 3)
    for column in range(3):
        ids = [words[column], words[2 - column]]
        np.testing.assert_allclose(several[:, column], scorer.extend(state, ids)[1], atol=1e-6)
        np.testing.assert_allclose(several[:, column], scorer.next_log_probs(state, ids), atol=1e-6)
    every = [list(range(len(scorer.dictionary)))] * 2
    for kind in (scorer, scorer.with_exact(False)):
        total = np.logaddexp.reduce(kind.next_log_probs(state, every), axis=1)
        assert (abs(total) < 1e-5).all() == kind.exact
        host = kind.next_words()(state)
        for row, want in enumerate(kind.next_log_probs(state, [words] * 2)):
            np.testing.assert_allclose(host.scores(row, words), want, atol=1e-4)
            np.testing.assert_allclose([host.score(row, w) for w in words], want, atol=1e-4)


def test_a_context_is_normalised_once_whatever_comes_next(made, monkeypatch):
    """The softmax's normaliser is work over the vocabulary, and the same for all K words."""
    scorer, contexts, log_partition = made("rnn_lm", exact=True), [], losses.log_partition

    def counting(features, *layer, **options):
        contexts.append(len(features))
        return log_partition(features, *layer, **options)

    monkeypatch.setattr(losses, "log_partition", counting)
    words = list(range(len(scorer.dictionary)))
    assert scorer.next_log_probs(scorer.start(2), [words, words]).shape == (2, len(words))
    assert contexts == [2]


def test_words_as_numbers_of_any_kind(made):
    scorer = made("rnn_lm")
    words = [5, 7]
    want = scorer.extend(scorer.start(2), words)[1]
    for kind in (np.uint8, np.int16, np.uint64):
        assert np.array_equal(scorer.extend(scorer.start(2), np.array(words, kind))[1], want)
    both = scorer.next_log_probs(scorer.start(2), torch.tensor([[5], [7]]))
    assert np.array_equal(both[:, 0], want)


def test_no_hypotheses(made):
    for name in ("lstm_lm", "transformer_lm", "ffnn_lm"):
        scorer = made(name)
        for state in (scorer.start(3).select([]), scorer.start(0)):
            assert len(state) == 0
            state, found = scorer.extend(state, [])
            assert len(state) == 0 and found.shape == (0,)
            assert len(State.concatenate([state, scorer.start(2)])) == 2


def test_what_is_asked_wrongly(made):
    scorer = made("rnn_lm")
    state = scorer.start(2)
    types = len(scorer.dictionary)
    for words in ((1,), (1.0, 2.0), (1, types), (-1, 1), ("w1", "w2"), torch.ones(2)):
        for extend in (scorer.extend, scorer.next_log_probs):
            with refusing("word_ids"):
                extend(state, words)
    calls = [made("lbl_lm both sides").start, partial(state.select, [2])]
    calls += [partial(State.concatenate, some) for some in ([], [state, made("rnn_lm").start()])]
    for call in calls:
        with pytest.raises(ScoringError):
            call()


@pytest.mark.parametrize("name", ["rnn_lm", "transformer_lm"])
def test_a_state_of_another_scorer_is_refused(name, made):
    """A state of the same sizes would give scores that mix two models."""
    scorer, state = made("rnn_lm"), made(name).start()
    methods = (scorer.next_log_probs, scorer.read_on, scorer.extend)
    calls = [scorer.normalisers, *(partial(method, word_ids=[5]) for method in methods)]
    for call in calls:
        for wrong in (state, pickle.loads(pickle.dumps(state)), None):
            with refusing("state"):
                call(wrong)
        call(scorer.with_exact(True).start())  # of the same model
