"""Scores of text are those of fairseq-eval-lm on the same text, binarised.

Also of models that fairseq published, and of those with room for more positions than they were
trained on, which read no more than in training.
"""

import logging
import math
import re

import numpy as np
import pytest
import torch
from checkpoint_edits import edited
from conftest import zipf_lines
from scoring_models import BANDS, DYNAMIC, EACH, FEW_TARGETS
from test_bands import INPUT, SMALL
from test_scoring import reference
from tools import TIED_TRANSFORMER, TRANSFORMER, evaluate, loss_bits, modern, slow, word_scores

from fairseq_bnce import Scorer

SENTENCES = ["--sample-break-mode", "eos"]
# The first word after <s> </s>; words outside of the output dictionary are <unk>.
OPTIONS = {"transformer_lm bos": ["--add-bos-token"]}
OPTIONS[FEW_TARGETS] = ["--output-dictionary-size", "12"]
EXACT = {True: [], False: ["--unnormalized"]}


def text(corpus, split="valid"):
    return (corpus.parent / f"{split}.txt").read_text(encoding="utf-8").splitlines()


def eval_lm(corpus, checkpoint, *flags, **options):
    """What it prints, and words and scores in it, of the whole validation data in its order."""
    output = evaluate(corpus, checkpoint, *flags, "--output-word-probs", **options)
    words, scores = zip(*word_scores(output))
    return output, list(words), np.array(scores)


@pytest.mark.parametrize("name", [*EACH, *OPTIONS])
def test_words_have_the_scores_of_eval_lm(name, corpus, language_model):
    exact = name not in ("rnn_lm", "transformer_lm bands", "fconv_lm")
    checkpoint = language_model(name)
    flags = [*SENTENCES, *EXACT[exact], *OPTIONS.get(name, [])]
    _, words, want = eval_lm(corpus, checkpoint, *flags)
    scorer = Scorer.from_checkpoint(checkpoint, exact=exact, batch_tokens=50)
    found = list(scorer.score_stream(text(corpus)))
    unk = scorer.dictionary.unk_word
    written = [unk if oov else w for s in found for w, oov in zip(s.words, s.is_oov)]
    assert written == words
    got = np.concatenate([score.log_probs for score in found])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    assert got.std() > 0.1


def document(corpus, checkpoint, exact=True, **options):
    scorer = Scorer.from_checkpoint(checkpoint, exact=exact, batch_tokens=60)
    found = scorer.score_stream(text(corpus), document=True, **options)
    return np.concatenate([score.log_probs for score in found])


NAMES = ["transformer_lm", "lightconv_lm", "fconv_lm"]
BLOCKS = [(name, *how) for name in NAMES for how in ((0, True), (5, False))]
BLOCKS += modern(*((name, 14, True) for name in NAMES), (DYNAMIC, 0, True), (DYNAMIC, 5, False))


@pytest.mark.parametrize("name, window, exact", BLOCKS)
def test_a_document_is_a_running_text_in_blocks(name, window, exact, corpus, language_model):
    """As many words a block as in training, 13, of which `window` come from before.

    A larger window asks for all of the model's positions, 16.
    """
    checkpoint = language_model(name)
    flags = ["--sample-break-mode", "none", "--context-window", window]
    flags += ["--tokens-per-sample", "13" if window < 13 else "16"]
    if name == "fconv_lm":  # it takes any number, and so do its blocks here; eval-lm's are of 16
        flags += ["--tokens-per-sample", "4000"]
    *_, want = eval_lm(corpus, checkpoint, *flags, *EXACT[exact])
    got = document(corpus, checkpoint, exact, context_window=window)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.modern  # torch 1.13 computes nothing in halves on a CPU
def test_a_half_model_has_unnormalised_scores_in_float32(corpus, language_model):
    """Off by their features' rounding, not by their own: halves near 20 are 0.016 apart."""
    flags = [*SENTENCES, "--unnormalized", "--log-z-shift", "-20"]
    *_, want = eval_lm(corpus, language_model("transformer_lm"), *flags)
    *_, got = eval_lm(corpus, language_model("transformer_lm"), *flags, "--fp16")
    np.testing.assert_allclose(got, want, rtol=0, atol=0.01)
    assert len(set(got.tolist())) > 0.9 * len(set(want.tolist()))


def test_a_document_carries_the_recurrent_state_over(corpus, language_model):
    checkpoint = language_model("rnn_lm")
    flags = ["--sample-break-mode", "none", "--stateful", "--batch-size", "1"]
    *_, want = eval_lm(corpus, checkpoint, *flags)
    np.testing.assert_allclose(document(corpus, checkpoint), want, rtol=0, atol=1e-5)


def test_a_block_has_the_start_that_bos_adds(corpus, language_model):
    """eval-lm's longest blocks are a word shorter then: 15 words and <s>."""
    flags = ["--sample-break-mode", "none", "--add-bos-token"]
    checkpoint = language_model("transformer_lm bos")
    *_, want = eval_lm(corpus, checkpoint, *flags, "--tokens-per-sample", "16")
    *_, shorter = eval_lm(corpus, checkpoint, *flags, "--tokens-per-sample", "15")
    np.testing.assert_array_equal(want, shorter)


def test_a_context_window_leaves_room_for_a_word(corpus, language_model):
    flags = ["--context-window", "16", "--tokens-per-sample", "1024"]
    output = evaluate(corpus, language_model("transformer_lm"), *flags, check=False)
    assert "--context-window: required" in output


ROOM = [*TRANSFORMER, "--max-target-positions", "64", "--tokens-per-sample", "10"]
LONGEST = {"none": 10, "eos": 13}  # the corpus's sentences have up to 12 words and </s>
LINE = " ".join(zipf_lines(8, seed=1)).split()[:40]


@pytest.fixture
def trained(training):
    """Train a model with 64 positions, by --sample-break-mode."""

    def make(mode):
        return training(*ROOM, "--sample-break-mode", mode, "--criterion", "bnce")[0]

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


def test_the_default_of_eval_lm(corpus, trained):
    """1,024 is fairseq's default; who asks for 1,024 gets all positions."""
    checkpoint = trained("none")
    wanted = {block: eval_lm(corpus, checkpoint, block=block)[-1] for block in ["10", "64", "1024"]}
    output, _, found = eval_lm(corpus, checkpoint, block=None)
    np.testing.assert_array_equal(wanted["1024"], wanted["64"])
    np.testing.assert_array_equal(found, wanted["10"])
    assert abs(wanted["64"] - wanted["10"]).max() > 1e-3
    assert sum("trained on" in line for line in output.splitlines()) == 1
    *_, found = eval_lm(corpus, checkpoint, "--context-window", "5", block=None)
    scorer = Scorer.from_checkpoint(checkpoint, exact=True)
    want = [score.log_probs for score in scorer.score_stream(text(corpus), document=True)]
    np.testing.assert_allclose(found, np.concatenate(want), rtol=0, atol=1e-5)
    *_, found = eval_lm(corpus, checkpoint, "--context-window", "10", block=None)
    *_, want = eval_lm(corpus, checkpoint, "--context-window", "10", block="64")
    np.testing.assert_array_equal(found, want)


def test_a_checkpoint_of_fairseqs_own(corpus, training, tmp_path):
    """It names its blocks; without them, or with sentences for blocks, it reads all positions."""
    checkpoint, _ = training(*ROOM, "--criterion", "cross_entropy", plugin=False)
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
    *_, found = eval_lm(corpus, checkpoint, block=None)
    *_, want = eval_lm(corpus, checkpoint, block="64")
    np.testing.assert_array_equal(found, want)


SOFTMAX = ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp", "--optimizer", "sgd"]
PROJECTIONS = [*INPUT, "--tie-adaptive-proj", "--no-decoder-final-norm"]
# transformer_lm.gbw.adaptive_huge, transformer_lm.wiki103.adaptive, transformer_lm.wmt19.*, the
# word transformer of LibriSpeech (adaptive inputs, not tied).
PUBLISHED = {
    "gbw": [*SMALL, *PROJECTIONS, *SOFTMAX],
    "wiki103": [*BANDS, *SOFTMAX],
    "wmt19": [*TIED_TRANSFORMER, "--criterion", "cross_entropy", "--add-bos-token"],
    "librispeech": [*SMALL, "--adaptive-input", "--no-decoder-final-norm", *SOFTMAX],
}
# Options of later years.
LATER = r"quant_noise.*|base_.*|scale_.*|decoder_layerdrop|decoder_layers_to_keep|.*activations|"
LATER += r"layernorm_embedding|.*xformers.*|min_params_to_wrap|no_scale_embedding|log_z_shift|"
LATER += r"unnormalized|stateful|state_reset_rate|matmul_precision|tpu|.*bf16.*|amp.*|ema.*|"
LATER += r"heartbeat_timeout"


def as_of_2018(content):
    """Old names of options and parameters, one Namespace of all options, no state of a task."""
    content.pop("task_state", None)
    model = vars(content["cfg"]["model"]) if hasattr(content["cfg"]["model"], "__dict__") else None
    options = content["cfg"]["model"] if model is None else model
    for name in [name for name in options if re.fullmatch(LATER, name)]:
        del options[name]
    if options.get("adaptive_input"):
        options["no_tie_adaptive_proj"] = not options.pop("tie_adaptive_proj")
        options.pop("no_decoder_final_norm")  # which the one before stands for
    parameters = content["model"]
    for prefix in {name.rpartition("q_proj.")[0] for name in parameters if "q_proj.weight" in name}:
        for kind in ("weight", "bias"):
            parts = [parameters.pop(f"{prefix}{part}_proj.{kind}") for part in "qkv"]
            parameters[f"{prefix}in_proj_{kind}"] = torch.cat(parts)


@pytest.mark.parametrize("name", [*slow("gbw"), "wiki103", "wmt19", "librispeech"])
def test_published_models_are_scored(name, corpus, training, tmp_path):
    """As fairseq itself scores the original: by eval-lm and Scorer."""
    made, _ = training(*PUBLISHED[name], plugin=False)
    want = loss_bits(evaluate(corpus, made, plugin=False))
    model = edited(made, tmp_path / "model.pt", as_of_2018, container="Namespace")
    assert loss_bits(evaluate(corpus, model)) == pytest.approx(want, abs=1e-4)
    flags = ["--sample-break-mode", "eos", *set(PUBLISHED[name]) & {"--add-bos-token"}]
    want = loss_bits(evaluate(corpus, model, *flags))
    scorer = Scorer.from_checkpoint(model, str(corpus), exact=True)
    assert math.log2(scorer.perplexity(text(corpus))) == pytest.approx(want, abs=1e-3)
