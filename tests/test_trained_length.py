"""Models with room for more positions than they were trained on read no more than in training."""

import logging

import numpy as np
import pytest
from checkpoint_edits import edited
from conftest import zipf_lines
from test_scoring import reference
from tools import TRANSFORMER, evaluate, train, word_scores

from fairseq_bnce import Scorer

ROOM = [*TRANSFORMER, "--max-target-positions", "64"]
LONGEST = {"none": 10, "eos": 13}  # the corpus's sentences have up to 12 words and </s>
LINE = " ".join(zipf_lines(8, seed=1)).split()[:40]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """Train a model with 64 positions, by --sample-break-mode; "fairseq": without the plugin."""
    done = {}

    def make(mode):
        if mode not in done:
            folder = tmp_path_factory.mktemp("trained")
            block = ["--tokens-per-sample", "10"]
            flags = ["--sample-break-mode", mode, "--criterion", "bnce"]
            if mode == "fairseq":
                flags = ["--criterion", "cross_entropy"]
            train(corpus, folder, *ROOM, *block, *flags, plugin=mode != "fairseq")
            done[mode] = folder / "checkpoint_last.pt"
        return done[mode]

    return make


def in_blocks(checkpoint, longest, context, words):
    """Exact log-probabilities of words in blocks that see words of the block before."""
    found = [reference(checkpoint, words[:longest])]
    for start in range(longest, len(words), longest - context):
        scored = words[start : start + longest - context]
        before = words[start - context - 1 : start]  # the first of them in the place of </s>
        found.append(reference(checkpoint, [*before[1:], *scored], before[0])[-len(scored) :])
    return np.concatenate(found)


def grown(scorer, words):
    state, scores = scorer.start(), []
    for word in [*scorer.ids(words), scorer.dictionary.eos()]:
        state, found = scorer.extend(state, [word])
        scores.append(found[0])
    return np.array(scores)


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_texts_are_read_in_blocks_of_what_training_had(mode, trained, caplog):
    checkpoint, longest = trained(mode), LONGEST[mode]
    words = [*LINE, "</s>"]
    want = in_blocks(checkpoint, longest, longest // 2, words)
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    with caplog.at_level(logging.WARNING, "fairseq_bnce.scoring"):
        assert not next(scorer.score_stream([" ".join(LINE[: longest - 1])])).in_blocks
        grown(scorer, LINE[: longest - 2])
    assert not caplog.records  # nothing was cut
    short, found, empty = scorer.score_stream(["w1 w2", " ".join(LINE), ""])
    np.testing.assert_allclose(found.log_probs, want, rtol=0, atol=1e-5)
    assert (short.in_blocks, found.in_blocks, empty.in_blocks) == (False, True, False)
    np.testing.assert_allclose(grown(scorer, LINE), want, rtol=0, atol=1e-5)
    assert len(caplog.records) == 1 and f"{longest} words" in caplog.text
    at_once = reference(checkpoint, words)
    assert abs(at_once - want).max() > 1e-3
    (found,) = scorer.score_stream([" ".join(LINE)], context_window=longest)
    np.testing.assert_allclose(found.log_probs, at_once, rtol=0, atol=1e-5)
    (document,) = scorer.score_stream([" ".join(LINE)], document=True, context_window=1)
    assert abs(document.log_probs - want).max() > 1e-3


def eval_lm(corpus, checkpoint, *flags, block=None, **options):
    options.update(block=block)
    output = evaluate(corpus, checkpoint, "--output-word-probs", *flags, **options)
    return output, np.array([score for _, score in word_scores(output)])


def test_the_default_of_eval_lm(corpus, trained):
    """1,024 is fairseq's default; who asks for 1,024 gets all positions."""
    checkpoint = trained("none")
    wanted = {block: eval_lm(corpus, checkpoint, block=block)[1] for block in ["10", "64", "1024"]}
    output, found = eval_lm(corpus, checkpoint)
    np.testing.assert_array_equal(wanted["1024"], wanted["64"])
    np.testing.assert_array_equal(found, wanted["10"])
    assert abs(wanted["64"] - wanted["10"]).max() > 1e-3
    assert sum("trained on" in line for line in output.splitlines()) == 1
    _, found = eval_lm(corpus, checkpoint, "--context-window", "5")
    lines = (corpus.parent / "valid.txt").read_text(encoding="utf-8").splitlines()
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    want = [score.log_probs for score in scorer.score_stream(lines, document=True)]
    np.testing.assert_allclose(found, np.concatenate(want), rtol=0, atol=1e-5)
    _, found = eval_lm(corpus, checkpoint, "--context-window", "10")
    _, want = eval_lm(corpus, checkpoint, "--context-window", "10", block="64")
    np.testing.assert_array_equal(found, want)


def test_a_checkpoint_of_fairseqs_own(corpus, trained, tmp_path):
    """It names its blocks; without them, or with sentences for blocks, it reads all positions."""
    checkpoint = trained("fairseq")
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    want = in_blocks(checkpoint, 10, 5, [*LINE, "</s>"])
    np.testing.assert_allclose(scorer.score_words([" ".join(LINE)])[0], want, atol=1e-5)
    for edit in (
        lambda content: content["cfg"]["task"].update(sample_break_mode="eos"),
        lambda content: content["cfg"]["task"].pop("tokens_per_sample"),
    ):
        path = edited(checkpoint, tmp_path / "edited.pt", edit)
        scorer = Scorer.from_checkpoint(path, corpus, exact=True)
        (found,) = scorer.score_words([" ".join(LINE)])
        np.testing.assert_allclose(found, reference(checkpoint, [*LINE, "</s>"]), atol=1e-5)
    _, found = eval_lm(corpus, checkpoint)
    _, want = eval_lm(corpus, checkpoint, block="64")
    np.testing.assert_array_equal(found, want)
