"""What scoring by fairseq-eval-lm allocates."""

import torch
from dispatch import Largest
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.lstm_lm import LSTMLanguageModel
from fairseq.sequence_scorer import SequenceScorer
from test_models import words

from fairseq_bnce.scoring import eval_lm
from fairseq_bnce.state import ScoringState


def language_model(types, size=8):
    sizes = (size, size, size)
    decoder = LSTMDecoder(words(types), *sizes, attention=False, encoder_output_units=0)
    return LSTMLanguageModel(decoder).eval()


def batch(sentences, length, types):
    tokens = torch.randint(4, types, (sentences, length + 1), generator=torch.manual_seed(1))
    net_input = {"src_tokens": tokens[:, :-1], "src_lengths": torch.full((sentences,), length)}
    return {"net_input": net_input, "target": tokens[:, 1:].contiguous()}


def scores(model, sample):
    """(N,) of all words."""
    scorer = SequenceScorer(model.decoder.dictionary)
    return torch.cat([h[0]["positional_scores"] for h in scorer.generate([model], sample)])


def unnormalised(model, log_z=0.5):
    eval_lm.score_unnormalized([model], ScoringState({"log_z": log_z}), "none")


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
