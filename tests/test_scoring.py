"""Scorer, apart from fairseq's commands: running texts, long lines, threads, precision, errors."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from tools import modern, refusing

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.scoring import ScoringError

LINES = ["w1 w2 w3", "", "w0", "w7 unheard of w3 w9 w1", "  w5\tw6 \r"]
CARRIED = ["lstm_lm", *modern("lstm_lm bottleneck tied"), "rnn_lm", *modern("rnn_lm gru tied")]
CARRIED += ["ffnn_lm bigram", "lbl_lm"]


def reference(checkpoint, words, first="</s>"):
    """log_softmax of the model itself on one text after its first word."""
    trained = checkpoints.load(str(checkpoint))
    ids = [trained.source.index(word) for word in words]
    with torch.no_grad():
        logits = trained.model(torch.tensor([[trained.source.index(first), *ids[:-1]]]))[0][0]
    return logits.log_softmax(dim=-1)[torch.arange(len(ids)), torch.tensor(ids)].numpy()


def test_what_is_known_of_a_line(made):
    scorer = made("lstm_lm", exact=True)
    found = list(scorer.score_stream(LINES))
    assert [score.words for score in found] == [[*line.split(), "</s>"] for line in LINES]
    assert [score.oov for score in found] == [0, 0, 0, 2, 0]
    assert found[3].is_oov.tolist() == [False, True, True, False, False, False, False]
    assert [score.total for score in found] == list(scorer.score(LINES))
    for score, log_probs in zip(found, scorer.score_words(LINES)):
        assert np.array_equal(score.log_probs, log_probs)
        assert log_probs.dtype == np.float64 and score.total == log_probs.sum()
    assert scorer.score(LINES).shape == (5,) and scorer.score([]).shape == (0,)
    # </s> after </s>, and nothing else.
    (want,) = scorer.next_log_probs(scorer.start(), [scorer.dictionary.eos()])
    assert found[1].total == pytest.approx(want, abs=1e-5)


def test_exact_scores_are_never_above_0(made):
    """log Z_c is summed in another order than the score of a word that is nearly sure."""
    scorer = made("rnn_lm", exact=True)
    scorer._reader.layer.bias[scorer.dictionary.eos()] += 30
    ends = [scores[-1] for scores in scorer.score_words(zipf_lines(100, seed=3))]
    assert min(ends) > -1e-4 and max(ends) <= 0


@pytest.mark.parametrize("name", CARRIED)
def test_long_lines_and_documents_of_models_without_positions(name, made, language_model):
    """Read in parts of 1024, or the lines of a document for themselves: as if at once."""
    lines = zipf_lines(400, seed=6)
    words = " ".join(lines).split()
    assert len(words) > 2048
    scorer = made(name, exact=True, batch_tokens=100)
    reader, sizes = scorer._reader, []
    for way, place in (("read", 0), ("read_on", 1)):
        setattr(reader, way, noting_sizes(getattr(reader, way), place, sizes))
    (found,) = scorer.score_stream([" ".join(words)])
    got = found.log_probs
    assert not found.in_blocks and len(sizes) > 1 and max(sizes) <= 1024
    np.testing.assert_allclose(got, reference(language_model(name), [*words, "</s>"]), atol=2e-5)
    with_ends = " </s> ".join(lines).split() + ["</s>"]
    parts = made(name, exact=True, batch_tokens=200).score_stream(lines, document=True)
    got = np.concatenate([part.log_probs for part in parts])
    np.testing.assert_allclose(got, reference(language_model(name), with_ends), atol=2e-5)


def noting_sizes(read, place, sizes):
    """The same, which adds how many words are read at once."""
    return lambda *given: sizes.append(given[place].numel()) or read(*given)


@pytest.mark.parametrize("name", ["transformer_lm", "lstm_lm", "lbl_lm"])
def test_a_document_does_not_depend_on_when_its_lines_come(name, made):
    lines = zipf_lines(20, seed=8)
    scorer = made(name)
    at_once = list(scorer.score_stream(lines, document=True))
    one_by_one = list(scorer.score_stream(lines, document=True, is_ready=lambda: False))
    assert len(at_once) == len(one_by_one) == len(lines)
    for a, b in zip(at_once, one_by_one):
        np.testing.assert_allclose(a.log_probs, b.log_probs, rtol=0, atol=1e-5)
    alone = scorer.score(lines[1:])
    assert abs(alone - [score.total for score in at_once[1:]]).max() > 0.01


@pytest.mark.parametrize("name", ["rnn_lm", *modern("transformer_lm", "lbl_lm")])
def test_halves(name, made):
    lines = zipf_lines(20, seed=10)
    full, half = made(name, exact=True), made(name, exact=True, dtype=torch.bfloat16)
    got, want = half.score(lines), full.score(lines)
    np.testing.assert_allclose(got, want, rtol=0.02)
    assert not np.array_equal(got, want)
    # In bfloat16 a total would be a multiple of 1/8 or more.
    assert (got * 8 % 1).any()


def test_the_word_pad_is_no_padding(made):
    for name in ("transformer_lm", "lbl_lm"):
        scorer = made(name)
        found = list(scorer.score_stream(["w1 <pad> w2", "w1 <unk> w2"]))
        assert [score.oov for score in found] == [1, 1]
        np.testing.assert_array_equal(found[0].log_probs, found[1].log_probs)


@pytest.mark.parametrize("name", ["rnn_lm", "transformer_lm"])
def test_numbers_that_overflow(name, made):
    """However a text is read: line by line, carried on, in parts, by a decoder."""
    scorer = made(name, batch_tokens=8)
    with torch.no_grad():
        scorer._reader.layer.full()[0].fill_(math.inf)
    for lines, document in (["w1 w2"], False), (["w1 w2"], True), (["w1 w2 " * 60], False):
        with refusing("scores"):
            list(scorer.score_stream(lines, document=document))
    with refusing("scores"):
        scorer.extend(scorer.start(), [5])


NO_STRINGS = [("score", "w1 w2"), ("score", [b"w1 w2"]), ("score", [["w1"]]), ("ids", "w1 w2")]


@pytest.mark.parametrize("method, lines", NO_STRINGS)
def test_lines_and_words_that_are_no_strings(method, lines, made):
    """A file that was opened for bytes: each of its words would be one that the model lacks."""
    with pytest.raises(ScoringError):
        getattr(made("rnn_lm"), method)(lines)


def test_a_carried_text_has_the_start_that_bos_adds(language_model):
    def score(**options):
        trained = checkpoints.load(str(language_model("rnn_lm")))
        return Scorer(trained._replace(bos=trained.source.bos()), **options).score(["w1 w2 w3"])

    np.testing.assert_allclose(score(batch_tokens=1), score(), rtol=0, atol=1e-5)


def test_what_a_model_prints_is_no_score(language_model, monkeypatch, capsys):
    """As fairseq's lightconv does on a machine with a GPU."""
    checkpoint = language_model("lightconv_lm")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    Scorer.from_checkpoint(checkpoint, device="cpu")
    printed = capsys.readouterr()
    assert "lightconv_cuda" in printed.err and not printed.out


@pytest.mark.parametrize("name", ["fconv_lm", "transformer_lm", "lstm_lm"])
def test_threads_share_a_scorer(name, made):
    """Last in this file, as a fork after it may wait for MKL: models are trained in forks."""
    lines = zipf_lines(60, seed=9)
    scorer = made(name)
    scorers = [scorer, scorer.with_exact(True)] * 2
    want = [each.score(lines) for each in scorers]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda each: [each.score(lines) for _ in range(3)], scorers):
            assert np.array_equal(found, [want.pop(0)] * 3)
