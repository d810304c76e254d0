"""Scorers, states and histories are copied, pickled, and sent to other processes."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import zipf_lines
from scoring_models import EACH, FEW_TARGETS
from tools import slow

from fairseq_bnce.decoding.histories import Histories

LINES = zipf_lines(4, seed=3)


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("name", [*EACH, FEW_TARGETS])
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


def _scored(scorer):
    return scorer.score(LINES), scorer.extend(scorer.start(), [5])[0]


@pytest.mark.parametrize("method", ["fork", *slow("spawn", "forkserver")])
def test_workers_of_a_pool(method, made):
    scorer = made("transformer_lm")
    with multiprocessing.get_context(method).Pool(1) as pool:
        found, state = pool.apply_async(_scored, (scorer,)).get(timeout=100)
    np.testing.assert_array_equal(found, scorer.score(LINES))
    want = scorer.extend(scorer.start(), [5])[0]
    np.testing.assert_array_equal(*(scorer.normalisers(each) for each in (state, want)))


FORKS = """
import os, signal, sys, torch
from fairseq_bnce import Scorer
torch.set_num_threads(2)
scorer = Scorer.from_checkpoint(sys.argv[1])
ones = torch.ones(600, 600)
ones @ ones  # makes the threads
waits = [lambda: scorer.score(["w1 w2"]), lambda: Scorer.from_checkpoint(sys.argv[1])]
waits += [lambda: scorer.extend(scorer.start(), [5]), lambda: None]
for use in waits:
    if os.fork() == 0:
        signal.alarm(20)
        use()
        if torch.get_num_threads() == 1:
            ones @ ones
        os._exit(torch.get_num_threads())
print([os.waitstatus_to_exitcode(os.wait()[1]) for _ in waits])
"""


@pytest.mark.slow
def test_a_fork_that_scores_does_not_wait_for_threads_that_it_has_none_of(language_model):
    """And one that does not score keeps the number of its threads."""
    command = [sys.executable, "-c", FORKS, language_model("rnn_lm")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert sorted(json.loads(done.stdout)) == [1, 1, 1, 2]


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
