"""What scoring allocates, and that its numbers are those of the full softmax."""

import sys

import forks
import pytest
import torch
from dispatch import Largest
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.lstm_lm import LSTMLanguageModel
from fairseq.sequence_scorer import SequenceScorer
from memory import memory

from fairseq_bnce.scoring import eval_lm
from fairseq_bnce.state import ScoringState


def language_model(types, size=8):
    dictionary = Dictionary()
    for word in range(types - len(dictionary)):
        dictionary.add_symbol(str(word))
    decoder = LSTMDecoder(dictionary, size, size, size, attention=False, encoder_output_units=0)
    return LSTMLanguageModel(decoder).eval()


def batch(sentences, length, types):
    tokens = torch.randint(4, types, (sentences, length + 1), generator=torch.manual_seed(1))
    lengths = torch.full((sentences,), length)
    return {
        "net_input": {"src_tokens": tokens[:, :-1], "src_lengths": lengths},
        "target": tokens[:, 1:].contiguous(),
    }


def scores(model, sample, **options):
    """(N,) of all words."""
    scorer = SequenceScorer(model.decoder.dictionary, **options)
    return torch.cat([h[0]["positional_scores"] for h in scorer.generate([model], sample)])


def unnormalised(model, log_z=0.5):
    eval_lm.score_unnormalized([model], ScoringState({"log_z": log_z}), "none")


@torch.no_grad()
@pytest.mark.parametrize("softmax_batch", [None, 7])
def test_scores_are_those_of_the_full_softmax(softmax_batch):
    """Also with --softmax-batch, which hands the targets over in parts."""
    model, sample = language_model(50), batch(3, 6, 50)
    sample["target"][1, 4:] = 1  # padding, which SequenceScorer strips
    logits = model(**sample["net_input"])[0]
    target, words = sample["target"].unsqueeze(-1), sample["target"].ne(1)
    for prepare, want in (
        (eval_lm.make_exact, logits.log_softmax(dim=-1)),
        (unnormalised, logits - 0.5),
    ):
        prepare(model)
        got = scores(model, sample, softmax_batch=softmax_batch)
        torch.testing.assert_close(got, want.gather(2, target)[..., 0][words])


def largest_made(prepare, types, sentences, length):
    """Numbers of the largest tensor that scoring makes."""
    model = language_model(types)
    prepare(model)
    sample = batch(sentences, length, types)
    with Largest() as largest:
        scores(model, sample)
    return largest.numbers


def test_unnormalised_scoring_allocates_nothing_that_grows_with_the_vocabulary():
    small, large = (largest_made(unnormalised, types, 8, 10) for types in (1000, 100_000))
    assert small == large < 25_000
    # The measure itself sees what the plain model does: 80 tokens x 100,000 types.
    assert largest_made(lambda m: None, 100_000, 8, 10) >= 80 * 100_000


def test_exact_scoring_stays_in_bounded_memory():
    assert largest_made(eval_lm.make_exact, 100_000, 20, 10) <= 2**22 < 200 * 100_000


@pytest.mark.slow
def test_exact_evaluation_of_the_largest_default_batch():
    """36,000 tokens x 267,744 types (fairseq-eval-lm's default on WikiText-103): 38.6 GB of logits.

    Some 100 MiB are taken, machines and allocators differing; docs/losses.md promises 1 % of the
    logits. A minute and a half on one core. In a fork, whose peak is not that of the tests before.
    """
    done = forks.run([sys.executable], main=lambda: print(growth_of_the_largest_batch()))
    assert done.returncode == 0, done.stdout.decode()
    logits = 36_000 * 267_744 * 4
    assert 0 < float(done.stdout.split()[-1]) < logits / 100


def growth_of_the_largest_batch():
    """Bytes."""
    model, sample = language_model(267_744, size=32), batch(1800, 20, 267_744)
    eval_lm.make_exact(model)
    before = memory()
    assert torch.isfinite(scores(model, sample)).all()
    return memory() - before
