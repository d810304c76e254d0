"""fairseq_bnce.rescoring.language_model: the same scores, with less work."""

import random

import numpy as np
import pytest
from scoring_models import FEW_TARGETS

from fairseq_bnce import Scorer
from fairseq_bnce.rescoring import language_model as prefixes


def similar(seed=1, lists=3, size=25):
    """Lists of sentences that differ in a few words; some are the beginning of another."""
    rng = random.Random(seed)
    found = {"": None, "w1": None}
    for _ in range(lists):
        base = [f"w{rng.randrange(60)}" for _ in range(rng.randint(5, 14))]
        for _ in range(size):
            words = list(base)
            words[rng.randrange(len(words))] = rng.choice(["w1", "w2", "unheard"])
            found[" ".join(words[: rng.randint(3, len(words))])] = None
    return list(found)


@pytest.mark.parametrize("name", ["transformer_lm", "lstm_lm", FEW_TARGETS])
def test_scores_are_those_of_whole_sentences(language_model, name, monkeypatch):
    scorer = Scorer.from_checkpoint(language_model(name), exact=True)
    scorer.batch_tokens = 100  # in several groups
    texts = similar()
    whole = list(scorer.score_stream(texts))
    monkeypatch.setattr(scorer, "score_stream", None)
    found = prefixes.totals(scorer, texts)
    np.testing.assert_allclose(found, [one.total for one in whole], atol=1e-5)
    assert max(one.oov for one in whole) > 0


def test_no_prefix_is_read_twice(language_model):
    scorer = Scorer.from_checkpoint(language_model("rnn_lm"), exact=True)
    read = []

    class Spy:
        def __getattr__(self, name):
            return getattr(scorer, name)

        def read_on(self, state, word_ids):
            read.append(len(word_ids))
            return scorer.read_on(state, word_ids)

    texts = similar()
    prefixes.totals_by_prefixes(Spy(), [scorer.ids(text.split()) for text in texts])
    ids = [tuple(scorer.ids(text.split())) for text in texts]
    assert sum(read) == len({some[:n] for some in ids for n in range(1, len(some) + 1)})


WHOLE = [
    ("lbl_lm both sides", similar()),
    # Longer than the model reads.
    ("transformer_lm", [f"{'w1 w2 w3 ' * 30}{end}" for end in ("w4", "w5 w6", "", "w7")]),
]


@pytest.mark.parametrize(("name", "texts"), WHOLE)
def test_what_cannot_be_scored_by_prefixes(name, texts, language_model):
    scorer = Scorer.from_checkpoint(language_model(name), exact=True)
    found = prefixes.totals(scorer, texts)
    assert prefixes.share_prefixes(texts)
    np.testing.assert_allclose(found, scorer.score(texts), atol=1e-4)
