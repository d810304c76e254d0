"""fairseq-bnce rescore: lists in and out, weights tuned and applied, and all that is refused."""

import contextlib
import json
import random
import re
import sys

import numpy as np
import pytest
import sacrebleu
from tools import write_lines

from fairseq_bnce.rescoring.measures import Bleu, compare

LIST = [
    "0 ||| w1 w2 w3 ||| TM= -1 ||| -1",
    "0 ||| w1 oov w3 ||| TM= -2 ||| -2",
    "1 |||  ||| TM= -3 ||| -3 ||| 0-0",
]


@pytest.fixture
def rescore(command):
    """Run the command in this process: (exit status, lines of its output, its errors)."""

    def call(*arguments, **model):
        status, output, errors = command("rescore", *arguments, **model)
        return status, output.split("\n")[:-1], errors

    return call


@pytest.fixture
def stdin(monkeypatch):
    """Let a file be standard input."""
    with contextlib.ExitStack() as stack:
        yield lambda path: monkeypatch.setattr(sys, "stdin", stack.enter_context(open(path)))


@pytest.fixture
def nbest(tmp_path):
    return write_lines(tmp_path / "nbest", LIST)


class Trial:
    """Lists whose best hypotheses are found by features that are told apart by noise alone."""

    def __init__(self, folder, seed=1):
        rng = random.Random(seed)
        self.nbest, self.reference = folder / f"nbest{seed}", folder / f"reference{seed}"
        self.references, lines = [], []
        for number in range(30):
            words = [f"w{rng.randrange(9)}" for _ in range(rng.randint(4, 9))]
            self.references.append(" ".join(words))
            for _ in range(8):
                wrong = rng.randint(0, 4)
                text = [f"w{rng.randrange(9)}" for _ in words[:wrong]] + words[wrong:]
                a, b = (-wrong + rng.gauss(0, 1) for _ in "AB")
                lines.append(f"{number} ||| {' '.join(text)} ||| A= {a:.4f} B= {b:.4f} ||| {a:.4f}")
        write_lines(self.nbest, lines)
        write_lines(self.reference, self.references)

    def bleu(self, texts):
        references = [self.references]
        return sacrebleu.corpus_bleu(texts, references, tokenize="none", force=True).score


def words(line):
    return line.split("|||")[1].strip()


def scores(lines, name="BNCE"):
    return [float(re.search(rf" {name}= (\S+)", line).group(1)) for line in lines]


# ---------------------------------------------------------------- scores alone


@pytest.mark.parametrize("exact", [False, True])
def test_the_score_is_that_of_the_scorer(exact, rescore, nbest, made):
    status, lines, errors = rescore(nbest, *["--exact"] * exact)
    assert (status, errors) == (0, "")
    want = made("rnn_lm").with_exact(exact).score(map(words, LIST))
    np.testing.assert_allclose(scores(lines), want, atol=2e-6)
    assert [re.sub(r" BNCE= \S+", "", line) for line in lines] == LIST
    _, both, _ = rescore(nbest, "--both", "--count-words", "--count-oov", "--feature", "X")
    assert scores(both, "X" + "Exact" * exact) == scores(lines)
    assert (scores(both, "XWords"), scores(both, "XOOV")) == ([3, 3, 0], [0, 1, 0])


def test_bytes_that_are_no_utf8_stay(rescore, nbest, tmp_path):
    content = b"0 ||| w1 \xff ||| TM= 1 ||| 2 ||| \xfe \xe2\x80\xa8\r\n"
    nbest.write_bytes(content)
    status, _, errors = rescore(nbest, "--out", tmp_path / "out")
    assert status == 0 and f"{nbest}: 1 line(s) were not UTF-8" in errors
    assert re.sub(rb" BNCE= \S+", b"", (tmp_path / "out").read_bytes()) == content


def test_standard_input(rescore, nbest, stdin):
    _, want, _ = rescore(nbest)
    stdin(nbest)
    assert rescore() == (0, want, "")


def test_no_lists_at_all(rescore, nbest):
    nbest.write_bytes(b"")
    assert rescore(nbest) == (0, [], "")


def test_lists_of_nematus(rescore, nbest, made):
    """Without features, with a score or several, which may be costs; they get Moses' fields."""
    write_lines(nbest, ["0 ||| w1 w2 ||| 0.5", "0 ||| w3 ||| 0.25", "1 |||  ||| -3 2"])
    status, lines, _ = rescore(nbest)
    assert status == 0
    want = ["0 ||| w1 w2 ||| ||| 0.5", "0 ||| w3 ||| ||| 0.25", "1 |||  ||| ||| -3 2"]
    assert [re.sub(r"BNCE= \S+ ", "", line) for line in lines] == want
    np.testing.assert_allclose(scores(lines), made("rnn_lm").score(["w1 w2", "w3", ""]), atol=2e-6)
    for written in (want[:2], lines[:2]):
        write_lines(nbest, written)
        status, ranked, _ = rescore(nbest, "--weights", "score=-1", model=None)
        found = [(words(line), float(line.split("|||")[3])) for line in ranked]
        assert (status, found) == (0, [("w3", -0.25), ("w1 w2", -0.5)])


def test_kaldi_costs(rescore, tmp_path, made):
    """The vectors that the command writes are costs: a weight for each of their numbers."""
    write_lines(tmp_path / "words", ["u-1 w1 w2", "u-2 w1", "u-3", "v-1 w3"])
    write_lines(tmp_path / "text", ["u w1", "v w3"])
    kaldi = ["--format", "kaldi", tmp_path / "words"]
    keys, costs = zip(*(line.split(" ") for line in rescore(*kaldi)[1]))
    want = -made("rnn_lm").score(["w1 w2", "w1", "", "w3"])
    assert keys == ("u-1", "u-2", "u-3", "v-1")
    assert [*map(float, costs)] == pytest.approx(want.tolist(), abs=2e-6)
    write_lines(tmp_path / "vectors", rescore(*kaldi, "--both", "--count-words")[1])
    lines = (tmp_path / "vectors").read_text().splitlines()
    assert [line.split()[2:5:2] for line in lines] == [[c, n] for c, n in zip(costs, "2101")]
    totals = [0.5 * float(v[2]) + float(v[3]) - 9 * float(v[4]) for v in map(str.split, lines)]
    kaldi += ["--cost", f"lm={tmp_path / 'vectors'}"]
    status, ranked, _ = rescore(*kaldi, "--weights", "lm=0.5 1 -9", model=None)
    assert status == 0
    order = [f"u-{1 + place}" for place in np.argsort(totals[:3])]
    assert [line.split()[0] for line in ranked] == [*order, "v-1"]
    pytest.importorskip("jiwer")
    write_lines(tmp_path / "x", [f"{line.split()[0]} 1" for line in lines])
    kaldi += ["--cost", f"x={tmp_path / 'x'}"]
    assert rescore(*kaldi, "--tune", tmp_path / "text", model=None)[0] == 0


GENERATED = """2026-01-01 | INFO | fairseq_cli.generate | loading model(s)
S-7\tein Satz
T-7\tW1 w2
H-7\t-0.5\tw1 w@@ 2
D-7\t-0.5\tW1  oov
P-7\t-0.25 -0.75
H-7\t-0.75\tw1 w2
D-7\t-0.75\tW1 w2
P-7\t-0.5 -1.0
2026-01-01 | INFO | fairseq_cli.generate | Translated
S-0\t
H-0\t-2.0\t
P-0\t-2.0
Generate test with beam=2: BLEU4 = 9
"""


@pytest.fixture
def generated(tmp_path):
    (tmp_path / "generated").write_text(GENERATED)
    return ["--format", "fairseq", tmp_path / "generated"]


def test_fairseqs_lists_get_a_line_for_each_hypothesis(rescore, generated, tmp_path, made):
    """Its D- line is scored, or the H- line if there is none; all but the log stays as it was."""
    out = tmp_path / "out"
    assert rescore(*generated, "--lowercase", "--out", out)[0] == 0
    found = out.read_text().splitlines()
    added = [line.split("\t") for line in found if line.startswith("F-")]
    assert [one for one, _ in added] == ["F-7", "F-7", "F-0"]
    want = made("rnn_lm").score(["w1 oov", "w1 w2", ""])
    np.testing.assert_allclose([float(text.split()[1]) for _, text in added], want, atol=2e-6)
    kept = [line for line in found if not line.startswith("F-")]
    assert kept == [line for line in GENERATED.splitlines() if line[1] == "-"]
    # The scores that were written are features, as those of a model are.
    weights = ["--weights", "BNCE=1"]
    again = rescore("--format", "fairseq", out, *weights, model=None)
    assert again[:2] == rescore(*generated, "--lowercase", *weights)[:2]


def test_fairseqs_lists_are_sorted_with_their_lines(rescore, generated, tmp_path):
    best, references = tmp_path / "best", ["--ref", generated[-1]]
    flags = [*generated, "--weights", "score=-2", "--best", best]
    status, lines, _ = rescore(*flags, model=None)
    want = ["S-7\tein Satz", "T-7\tW1 w2", "H-7\t1.5\tw1 w2", "D-7\t1.5\tW1 w2", "P-7\t-0.5 -1.0"]
    want += ["H-7\t1\tw1 w@@ 2", "D-7\t1\tW1  oov", "P-7\t-0.25 -0.75"]
    assert status == 0 and lines == [*want, "S-0\t", "H-0\t4\t", "P-0\t-2.0"]
    assert best.read_text() == "D-7\t1.5\tW1 w2\nH-0\t4\t\n"
    assert rescore(*flags, *references, model=None)[0] == 2  # list 0 has no T- line
    pytest.importorskip("jiwer")
    generated[-1].write_text(GENERATED.replace("S-0\t\n", "T-0\t\n"))
    errors = rescore(*flags, *references, "--metric", "wer", model=None)[2]
    assert "before 50.00 [" in errors and "after 0.00 [" in errors


BEST = "w3 w4 w5 w6"


OTHERS = [("jsonl", "score", BEST), ("srilm", "ascore", f"u {BEST}")]


@pytest.mark.parametrize(("name", "score", "best"), OTHERS)
def test_other_formats(name, score, best, rescore, nbest, tmp_path, made):
    """They are scored, sorted and measured; what is written is in test_rescoring_lists.py."""
    texts, reference = ["w1 w2", BEST], tmp_path / "reference"
    write_lines(tmp_path / "u", [f"-{n} -1 1 <s> {text} </s>" for n, text in enumerate(texts)])
    each = [{"text": text, "score": -n} for n, text in enumerate(texts)]
    forms = {
        "jsonl": (json.dumps({"id": "u", "nbest": each}), json.dumps({"id": "u", "text": BEST})),
        "srilm": (f"{tmp_path}/u", f"u {BEST}"),
    }
    for path, line in zip((nbest, reference), forms[name]):
        write_lines(path, [line])
    flags = ["--format", name, nbest]
    status, lines, _ = rescore(*flags)
    found = [float(value) for value in re.findall(r"-\d+\.\d+", " ".join(lines))]
    assert status == 0 and found == pytest.approx(made("rnn_lm").score(texts), abs=2e-6)
    flags += ["--weights", f"{score}=-1", "--best", tmp_path / "best", "--ref", reference]
    status, _, errors = rescore(*flags, "--metric", "bleu", "--count-words")
    assert status == 0 and "after 100.00" in errors
    assert (tmp_path / "best").read_text() == f"{best}\n"


# ---------------------------------------------------------------- weights


def test_weights_sort_the_lists_and_replace_the_score(rescore, nbest, tmp_path):
    best = tmp_path / "best"
    weights = "score=-1,TM=0.5"
    status, lines, _ = rescore(nbest, "--weights", weights, "--best", best, model=None)
    assert status == 0
    assert lines == [
        "0 ||| w1 oov w3 ||| TM= -2 ||| 1",
        "0 ||| w1 w2 w3 ||| TM= -1 ||| 0.5",
        "1 |||  ||| TM= -3 ||| 1.5 ||| 0-0",
    ]
    assert best.read_text() == "w1 oov w3\n\n"


def test_tuning_reports_what_sacrebleu_says(rescore, tmp_path):
    trial, weights, out = Trial(tmp_path), tmp_path / "weights", tmp_path / "out"
    flags = ["--tune", trial.reference, "--tune-features", "score,A,B", "--weights-out", weights]
    flags += ["--out", out, "--best", tmp_path / "best"]
    status, lines, errors = rescore(trial.nbest, *flags, model=None)
    assert (status, lines) == (0, [])
    first = [words(line) for line in trial.nbest.read_text().splitlines()[::8]]
    both = first, (tmp_path / "best").read_text().splitlines()
    before, after = map(trial.bleu, both)
    assert after > before + 5
    assert f"before {before:.2f} [" in errors and f"after {after:.2f} [" in errors
    sums = []
    for texts in both:
        pairs = zip(texts, trial.references)
        sums.append(np.concatenate([Bleu().counts([text], [ref]) for text, ref in pairs]))
    _, low, high = compare(*sums, Bleu())[2]
    assert f"difference {after - before:+.2f} [{low:+.2f}, {high:+.2f}] (95" in errors
    assert "1,000 resamples of 30 sentences, seed 1" in errors
    # The weights that were written do the same again, without and with references.
    again = [trial.nbest, "--weights", weights]
    assert rescore(*again, model=None) == (0, out.read_text().splitlines(), "")
    report = [line for line in errors.splitlines() if "difference" in line]
    assert report == rescore(*again, "--ref", trial.reference, model=None)[2].splitlines() != []


def test_tuning_with_the_model_is_tuning_on_what_it_wrote(rescore, tmp_path):
    """And the same seed gives the same."""
    trial, names = Trial(tmp_path), ["--tune-features", "score,B,BNCE"]
    with_model = rescore(trial.nbest, "--tune", trial.reference, *names)
    assert with_model == rescore(trial.nbest, "--tune", trial.reference, *names)
    write_lines(tmp_path / "scored", rescore(trial.nbest)[1])
    assert with_model == rescore(tmp_path / "scored", "--tune", trial.reference, *names, model=None)


def test_default_features_of_tuning(rescore, tmp_path):
    """The list's score, what is added, and what --weights names."""
    trial = Trial(tmp_path)
    flags = [trial.nbest, "--tune", trial.reference, "--restarts", "0", "--count-words"]
    weights = re.compile("weights: (.*)")
    found = weights.search(rescore(*flags)[2]).group(1)
    assert re.findall("([A-Za-z]+)= ", found) == ["score", "BNCE", "BNCEWords"]
    found = weights.search(rescore(*flags, "--weights", "B=1")[2]).group(1)
    assert re.findall("([A-Za-z]+)= ", found) == ["score", "BNCE", "BNCEWords", "B"]


def test_several_references_and_another_tokeniser(rescore, tmp_path):
    trial, other = Trial(tmp_path), Trial(tmp_path, seed=2)
    apply = [trial.nbest, "--weights", "A=1", "--best", tmp_path / "best"]
    both = ["--ref", trial.reference, "--ref", other.reference]
    _, _, errors = rescore(*apply, *both, "--bleu-tokenize", "13a", model=None)
    texts = (tmp_path / "best").read_text().splitlines()
    references = [trial.references, other.references]
    want = sacrebleu.corpus_bleu(texts, references, tokenize="13a", force=True).score
    assert "tokenize 13a" in errors and f"after {want:.2f} [" in errors


def test_word_error_rate_of_kaldi_lists(rescore, tmp_path):
    """Costs in, the best hypotheses out: only acoustic and language costs together are right."""
    jiwer = pytest.importorskip("jiwer")
    write_lines(tmp_path / "words", ["u-1 a x", "u-2 a b", "u-3 y b", "v-1 c", "v-2"])
    write_lines(tmp_path / "ac", ["u-1 1", "u-2 2", "u-3 4", "v-1 1", "v-2 1.5"])
    write_lines(tmp_path / "lm", ["u-1 4", "u-2 2", "u-3 1", "v-1 1", "v-2 1.5"])
    write_lines(tmp_path / "text", ["v c", "u a b", "w d"])
    costs = [f"--cost={name}={tmp_path / name}" for name in ("ac", "lm")]
    kaldi = ["--format", "kaldi", tmp_path / "words", *costs]
    flags = ["--weights", "ac=1,lm=1", "--ref", tmp_path / "text", "--best", tmp_path / "best"]
    status, lines, errors = rescore(*kaldi, *flags, model=None)
    assert status == 0
    assert lines == ["u-2 a b", "u-1 a x", "u-3 y b", "v-1 c", "v-2"]
    assert (tmp_path / "best").read_text().splitlines() == ["u a b", "v c"]
    before = 100 * jiwer.wer(["a b", "c"], ["a x", "c"])
    assert f"word error rate (jiwer), per cent: before {before:.2f} [" in errors
    assert "after 0.00 [0.00, 0.00]" in errors
    assert "2 of 3 references have a list" in errors
    assert rescore(*kaldi, "--tune", tmp_path / "text", model=None)[:2] == (0, lines)
    kaldi += ["--weights", "ac=1", "--ref", tmp_path / "text"]
    assert "BLEU (sacrebleu" in rescore(*kaldi, "--metric", "bleu", model=None)[2]


# ---------------------------------------------------------------- refusals


def test_a_feature_with_a_weight_is_in_some_list(rescore, nbest):
    """In the first or another: lists in another order are ranked alike."""
    lines = ["0 ||| a ||| TM= -1 ||| -1", "0 ||| b ||| TM= -2 ||| -2", "1 ||| c ||| LM= 3 4 ||| 0"]
    for order in (lines, [*lines[2:], *lines[:2]]):
        write_lines(nbest, order)
        status, found, _ = rescore(nbest, "--weights", "TM=1,LM=2 0.5", model=None)
        assert status == 0 and sorted(line.split(" ||| ")[3] for line in found) == ["-1", "-2", "8"]


def test_a_malformed_line_is_named_and_what_was_before_it_is_kept(rescore, nbest, tmp_path):
    write_lines(nbest, [*LIST, "2 ||| w1 ||| TM= 1"])
    flags = [nbest, "--weights", "TM=1"]
    status, lines, errors = rescore(*flags, model=None)
    assert status == 2 and errors.startswith(f"fairseq-bnce: error: {nbest}, line 4: ")
    assert [words(line) for line in lines] == ["w1 w2 w3", "w1 oov w3"]
    out = tmp_path / "out"
    assert f"{out}.part" in rescore(*flags, "--out", out, model=None)[2]
    assert not out.exists()
    assert (tmp_path / "out.part").read_text().splitlines() == lines


# ---------------------------------------------------------------- bad input


WEIGHTED = ["--weights", "score=1"]


def test_a_list_that_comes_back_is_refused_with_both_lines(rescore, nbest, tmp_path):
    """Sorted and measured by itself, the rest of list 0 would be a sentence of its own."""
    write_lines(nbest, [LIST[0], LIST[2], LIST[1]])
    write_lines(tmp_path / "reference", ["w1", "w2"])
    for flags in (WEIGHTED, ["--tune", tmp_path / "reference", "--tune-features", "score,TM"]):
        status, _, errors = rescore(nbest, *flags, model=None)
        assert status == 2 and f"{nbest}, line 3: required" in errors and "line 1" in errors
    # Scores alone are a hypothesis' own, wherever it stands.
    status, lines, _ = rescore(nbest)
    assert status == 0 and len(set(scores(lines))) == 3


def test_several_weights_after_one_flag(rescore, nbest, tmp_path, monkeypatch, stdin):
    """The list may come behind them, before them, or from standard input."""
    want = rescore(nbest, "--weights", "score=-1,TM=0.5", model=None)
    assert want[0] == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=1").write_bytes(nbest.read_bytes())
    weights = ["--weights", "score=-1", "TM=0.5"]
    again = ["--weights", "score=-1", "--weights", "TM=0.5", "a=1"]
    comma = ["--weights", "score=-1,", "TM=0.5", nbest]
    for flags in ([*weights, "a=1"], [nbest, *weights], comma, again):
        assert rescore(*flags, model=None) == want
    stdin(nbest)
    assert rescore(*weights, "-", model=None) == want
    write_lines(nbest, ["0 ||| w1 ||| TM= 1 2 ||| 0"])
    status, (line,), _ = rescore("--weights", "TM=0.5", "-2", "score=1", nbest, model=None)
    assert status == 0 and line.endswith("||| -3.5")
