"""fairseq-bnce score: scores of whole words, and of two models whose probabilities mix."""

import json

import numpy as np
import pytest
from conftest import zipf_lines
from scoring_models import FEW_TARGETS
from tools import write_lines

LINES = ["w1 w2 w3", "", "w7 unheard of w40", "w0"]
# Marks, a line of pieces, and its words with how many pieces each has.
PIECES = [
    ("@@", "w1@@ w2@@ w3 w4 un@@", {"w1w2w3": 3, "w4": 1, "un@@": 1, "</s>": 1}),
    ("sentencepiece", "w0 \u2581un w2 w3 \u2581", {"w0": 1, "unw2w3": 3, "\u2581": 1, "</s>": 1}),
]


@pytest.fixture
def score(command):
    """Run the command: (exit status, JSON of standard output, its errors)."""

    def call(*arguments, model="lstm_lm"):
        flags = [] if "--summary" in arguments else ["--per-word"]
        status, output, errors = command("score", "--json", *flags, *arguments, model=model)
        return status, [json.loads(line) for line in output.splitlines()], errors

    return call


def joined(values, sizes, how):
    ends = np.cumsum(sizes)
    return [how(values[end - size : end]) for size, end in zip(sizes, ends)]


@pytest.mark.parametrize("marks, line, sizes", PIECES)
@pytest.mark.parametrize("flags", [[], ["--given", "--exact"], ["--no-eos", "--document"]])
def test_scores_of_whole_words_are_sums_over_pieces(marks, line, sizes, flags, score, tmp_path):
    context = "w5 w6\t" if "--given" in flags else ""
    write_lines(tmp_path / "text", [context + line, context])
    flags = [*flags, tmp_path / "text"]
    pieces = score(*flags)[1]
    words = score(*flags, "--join-subwords", marks)[1]
    want = dict(list(sizes.items())[: -1 if "--no-eos" in flags else None])
    counts = list(want.values())
    assert words[0]["words"] == list(want)
    sums = joined(pieces[0]["log_probs"], counts, sum)
    assert words[0]["log_probs"] == pytest.approx(sums, abs=1e-5)
    assert words[0]["is_oov"] == joined(pieces[0]["is_oov"], counts, any)
    for name in ("tokens", "oov", "log_prob"):
        assert words[0][name] == pieces[0][name]
    assert words[1] == pieces[1]  # an empty line
    found = score(*flags, "--join-subwords", marks, "--summary")[1][0]
    log_probs = np.array([value for one in words for value in one["log_probs"]])
    is_oov = np.array([value for one in words for value in one["is_oov"]])
    assert (found["word_tokens"], found["word_oov"]) == (len(log_probs), is_oov.sum())
    perplexities = found["word_ppl_with_oov"], found["word_ppl_without_oov"]
    each = np.exp(-log_probs.mean()), np.exp(-log_probs[~is_oov].mean())
    assert perplexities == pytest.approx(each, rel=1e-4)
    plain = score(*flags, "--summary")[1][0]
    assert plain.items() <= found.items()


def test_the_summary_of_whole_words_as_text(command, tmp_path):
    write_lines(tmp_path / "text", LINES)
    output = command("score", "--summary", "--join-subwords", "@@", tmp_path / "text")[1]
    kinds = [f"{unit} {which}cluding OOVs" for unit in ("", " per word") for which in ("in", "ex")]
    want = [f"Perplexity{kind}" for kind in kinds]
    want = [*want[:2], "OOVs", "Tokens", *want[2:], "OOV words", "Words"]
    assert [line.split(":")[0] for line in output.splitlines()] == want


@pytest.mark.parametrize("flags", [[], ["--document", "--exact"]])
@pytest.mark.parametrize("other", ["transformer_lm", FEW_TARGETS])
def test_mixed_probabilities(other, flags, score, tmp_path, language_model):
    """Of the words that only one model knows, the other's probability is 0."""
    lines = [*LINES, *zipf_lines(300, seed=5), "w3 " * 30]
    write_lines(tmp_path / "text", lines)
    flags = [*flags, tmp_path / "text", "--batch-tokens", "50"]
    ours, theirs = score(*flags)[1], score(*flags, model=other)[1]
    mixed = score(*flags, "--mix-with", language_model(other), "--mix-weight", "0.3")[1]
    assert len(mixed) == len(lines)
    for a, b, found in zip(ours, theirs, mixed):
        oov = np.array([a["is_oov"], b["is_oov"]])
        assert found["is_oov"] == oov.all(0).tolist() and found["words"] == a["words"]
        logs = np.where(oov & ~oov.all(0), -np.inf, [a["log_probs"], b["log_probs"]])
        want = np.log(0.3 * np.exp(logs[0]) + 0.7 * np.exp(logs[1]))
        assert found["log_probs"] == pytest.approx(want, abs=2e-5)
