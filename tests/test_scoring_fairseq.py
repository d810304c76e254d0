"""Scores of text are those of fairseq-eval-lm on the same text, binarised."""

import numpy as np
import pytest
from scoring_models import EACH, FEW_TARGETS
from tools import LSTM, evaluate, modern, train, word_scores

from fairseq_bnce import Scorer
from fairseq_bnce.scoring import ScoringError

SENTENCES = ["--sample-break-mode", "eos", "--output-word-probs"]
# The first word after <s> </s>; words outside of the output dictionary are <unk>.
OPTIONS = {"transformer_lm bos": ["--add-bos-token"]}
OPTIONS[FEW_TARGETS] = ["--output-dictionary-size", "12"]
EXACT = {True: [], False: ["--unnormalized"]}


def text(corpus, split="valid"):
    return (corpus.parent / f"{split}.txt").read_text(encoding="utf-8").splitlines()


def eval_lm(corpus, checkpoint, *flags):
    """Words and their scores, of the whole validation data in its order."""
    words, scores = zip(*word_scores(evaluate(corpus, checkpoint, *flags)))
    return list(words), np.array(scores)


@pytest.mark.parametrize("name", [*EACH, *OPTIONS])
def test_words_have_the_scores_of_eval_lm(name, corpus, language_model):
    exact = name not in ("rnn_lm", "transformer_lm bands", "fconv_lm")
    checkpoint = language_model(name)
    flags = [*SENTENCES, *EXACT[exact], *OPTIONS.get(name, [])]
    words, want = eval_lm(corpus, checkpoint, *flags)
    scorer = Scorer.from_checkpoint(checkpoint, exact=exact, batch_tokens=50)
    found = list(scorer.score_stream(text(corpus)))
    unk = scorer.dictionary.unk_word
    written = [unk if oov else w for s in found for w, oov in zip(s.words, s.is_oov)]
    assert written == words
    got = np.concatenate([score.log_probs for score in found])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    assert got.std() > 0.1


def document(corpus, checkpoint, exact=True, **options):
    found = Scorer.from_checkpoint(checkpoint, exact=exact, batch_tokens=60).score_stream(
        text(corpus), document=True, **options
    )
    return np.concatenate([score.log_probs for score in found])


@pytest.mark.parametrize("window, exact", [(0, True), (5, False), *modern((14, True))])
@pytest.mark.parametrize("name", ["transformer_lm", "lightconv_lm", "fconv_lm"])
def test_a_document_is_a_running_text_in_blocks(name, window, exact, corpus, language_model):
    """As many words a block as in training, 13, of which `window` come from before.

    A larger window asks for all of the model's positions, 16.
    """
    checkpoint = language_model(name)
    flags = ["--sample-break-mode", "none", "--output-word-probs", "--context-window", window]
    flags += ["--tokens-per-sample", "13" if window < 13 else "16"]
    if name == "fconv_lm":  # it takes any number, and so do its blocks here; eval-lm's are of 16
        flags += ["--tokens-per-sample", "4000"]
    _, want = eval_lm(corpus, checkpoint, *flags, *EXACT[exact])
    got = document(corpus, checkpoint, exact, context_window=window)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.modern  # torch 1.13 computes nothing in halves on a CPU
def test_a_half_model_has_unnormalised_scores_in_float32(corpus, language_model):
    """Off by their features' rounding, not by their own: halves near 20 are 0.016 apart."""
    flags = [*SENTENCES, "--unnormalized", "--log-z-shift", "-20"]
    _, want = eval_lm(corpus, language_model("transformer_lm"), *flags)
    _, got = eval_lm(corpus, language_model("transformer_lm"), *flags, "--fp16")
    np.testing.assert_allclose(got, want, rtol=0, atol=0.01)
    assert len(set(got.tolist())) > 0.9 * len(set(want.tolist()))


def test_a_document_carries_the_recurrent_state_over(corpus, language_model):
    checkpoint = language_model("rnn_lm")
    flags = ["--sample-break-mode", "none", "--stateful", "--batch-size", "1"]
    _, want = eval_lm(corpus, checkpoint, *flags, "--output-word-probs")
    np.testing.assert_allclose(document(corpus, checkpoint), want, rtol=0, atol=1e-5)


def test_a_block_has_the_start_that_bos_adds(corpus, language_model):
    """eval-lm's longest blocks are a word shorter then: 15 words and <s>."""
    flags = ["--sample-break-mode", "none", "--output-word-probs", "--add-bos-token"]
    checkpoint = language_model("transformer_lm bos")
    _, want = eval_lm(corpus, checkpoint, *flags, "--tokens-per-sample", "16")
    _, shorter = eval_lm(corpus, checkpoint, *flags, "--tokens-per-sample", "15")
    np.testing.assert_array_equal(want, shorter)


def test_a_context_window_leaves_room_for_a_word(corpus, language_model):
    flags = ["--context-window", "16", "--tokens-per-sample", "1024"]
    output = evaluate(corpus, language_model("transformer_lm"), *flags, check=False)
    assert "--context-window: required" in output


def test_a_checkpoint_of_fairseqs_own_training(corpus, tmp_path):
    """Without log Z: exact scores, or a shift that the user knows."""
    train(corpus, tmp_path, *LSTM, "--criterion", "cross_entropy", plugin=False)
    checkpoint = tmp_path / "checkpoint_last.pt"
    with pytest.raises(ScoringError):
        Scorer.from_checkpoint(checkpoint)
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    _, want = eval_lm(corpus, checkpoint, *SENTENCES)
    np.testing.assert_allclose(np.concatenate(scorer.score_words(text(corpus))), want, atol=1e-5)
    flags = ["--unnormalized", "--log-z-shift", "2"]
    _, want = eval_lm(corpus, checkpoint, *SENTENCES, *flags)
    got = Scorer.from_checkpoint(checkpoint, shift=2.0).score_words(text(corpus))
    np.testing.assert_allclose(np.concatenate(got), want, rtol=0, atol=1e-5)
