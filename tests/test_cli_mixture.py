"""fairseq-bnce score: scores of whole words, and of two models whose probabilities mix."""

import json

import numpy as np
import pytest
from checkpoint_edits import edited
from conftest import zipf_lines
from scoring_models import FEW_TARGETS
from test_cli_score import COMMAND
from tools import call_command, write_lines

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


@pytest.fixture
def file(tmp_path):
    write_lines(tmp_path / "text", LINES)
    return tmp_path / "text"


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


def test_the_summary_of_whole_words_as_text(file, language_model, capfd):
    flags = ["--path", language_model("lstm_lm"), "--summary", "--join-subwords", "@@", file]
    assert call_command("score", *flags) == 0
    names = [line.split(":")[0] for line in capfd.readouterr().out.splitlines()]
    kinds = ("including OOVs", "excluding OOVs")
    want = [*(f"Perplexity {kind}" for kind in kinds), "OOVs", "Tokens"]
    assert names == [
        *want,
        *(f"Perplexity per word {kind}" for kind in kinds),
        "OOV words",
        "Words",
    ]


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


def test_the_weight_is_fitted_to_a_text(score, file, tmp_path, language_model):
    tune = tmp_path / "tune"
    write_lines(tune, zipf_lines(60, seed=6))
    mix = ["--mix-with", language_model("rnn_lm")]

    def total(*flags):
        status, found, errors = score("--summary", "--exact", *mix, *flags)
        return found[0]["log_prob"], errors

    best, errors = total("--mix-tune", tune, tune)
    assert "--mix-weight" in errors and str(tune) in errors
    fixed = [total("--mix-weight", weight, tune)[0] for weight in ("0.1", "0.5", "0.9")]
    assert best >= max(fixed) - 1e-6 and best > min(fixed)
    assert total(tune)[0] == fixed[1]
    tab = tmp_path / "tab"
    write_lines(tab, ["w1\tw2"])
    assert score("--given", *mix, "--mix-tune", tune, tab)[0] == 0


def test_errors_of_another_model_name_its_flag(score, file, language_model, tmp_path):
    """Whichever argument of the Scorer they are of: here the path, the dictionary and the shift."""
    (tmp_path / "archive").write_bytes(b"PK no archive")
    edits = {"words": {"dictionary_sha256": "0" * 64}, "constant": {"log_z": None, "mu_z": None}}
    for name, changed in edits.items():
        edit = lambda content: content["task_state"].update(changed)  # noqa: B023, E731
        edited(language_model("rnn_lm"), tmp_path / name, edit)
    for other in map(tmp_path.joinpath, ("archive", *edits)):
        status, _, errors = score(file, "--mix-with", other)
        assert status == 2 and f": --mix-with {other}: required " in errors, errors


def test_text_is_cut_for_the_first_model_that_says_how(score, tmp_path, language_model):
    cut = {"tokenizer": "sacremoses", "language": "en"}
    other = edited(
        language_model("rnn_lm"),
        tmp_path / "cut.pt",
        lambda content: content["task_state"].update(training_text=cut),
    )
    write_lines(tmp_path / "raw", ["w1 w2", "w1, w2's"])
    for how, words in ((), ["w1", ",", "w2", "'s"]), (("--tokenize", "none"), ["w1,", "w2's"]):
        status, found, _ = score("--mix-with", other, *how, tmp_path / "raw")
        assert status == 0 and found[1]["words"] == [*words, "</s>"]


def test_a_mixture_in_a_pipe(start_process, language_model):
    """Each line gets its score before the next line is written."""
    paths = [language_model("lstm_lm"), "--mix-with", language_model("rnn_lm")]
    process = start_process([*COMMAND, "--path", *paths])
    for word in ("w1", "w2", "w3"):
        process.stdin.write(f"{word}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\t2\t0\n")
    process.communicate()
    assert process.returncode == 0
