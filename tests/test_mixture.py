"""fairseq_bnce.scoring.Mixture: scorers and n-gram models of KenLM's whose probabilities mix."""

import copy
import gzip
import json
import sys
from functools import partial

import numpy as np
import pytest
import torch
from checkpoint_edits import edited, with_state
from conftest import zipf_lines
from ngrams import BINARIES, write_arpa, write_binary
from scoring_models import FEW_TARGETS
from test_copies import pickled
from tools import refusing, write_lines

from fairseq_bnce import Scorer, decoding
from fairseq_bnce.rescoring import language_model as prefixes
from fairseq_bnce.scoring import Mixture, NGramModel, ScoringError

kenlm = pytest.importorskip("kenlm")

WORDS = ["only", *(f"w{number}" for number in range(40))]  # w40 and more only a scorer knows
LINES = ["w1 w2 w3", "", "w7 only unheard w50 w1", "w0 <unk>"]
WEIGHT = 0.3  # of the scorer
LN_10 = np.log(10)


@pytest.fixture
def arpa(tmp_path):
    return write_arpa(tmp_path / "lm.arpa", WORDS)


@pytest.fixture
def ngram(arpa):
    return NGramModel(str(arpa))


@pytest.fixture
def mixture(made, ngram):
    return Mixture([made("lstm_lm", exact=True), ngram], [WEIGHT, 1 - WEIGHT])


@pytest.fixture
def command(command):
    return partial(command, model="lstm_lm")


@pytest.fixture
def by_hand(arpa, command, tmp_path):
    """Mixed log-probabilities of words, of what each program prints of its own model."""
    write_lines(tmp_path / "lines", LINES)
    printed = command("score", "--exact", "--per-word", "--json", tmp_path / "lines")[1]
    found = []
    for line, ours in zip(LINES, map(json.loads, printed.splitlines())):
        theirs = list(kenlm.Model(str(arpa)).full_scores(line))
        oov = np.array([ours["is_oov"], [is_oov for _, _, is_oov in theirs]])
        logs = np.array([ours["log_probs"], [log_10 * LN_10 for log_10, _, _ in theirs]])
        shares = np.array([[WEIGHT], [1 - WEIGHT]]) * np.exp(logs)
        found.append(np.log(np.where(oov & ~oov.all(0), 0, shares).sum(0)))
    assert [len(log_probs) for log_probs in found] == [len(line.split()) + 1 for line in LINES]
    return found


def test_commands_mix_as_by_hand(arpa, by_hand, command, tmp_path):
    totals = [log_probs.sum() for log_probs in by_hand]
    mix = ["--exact", "--mix-with", arpa, "--mix-weight", WEIGHT]
    for flags in ([], ["--document"]):  # n-grams end with their sentence
        rows = command("score", "--per-word", "--json", *mix, *flags, tmp_path / "lines")[1]
        found = list(map(json.loads, rows.splitlines()))
        assert [one["oov"] for one in found] == [0, 0, 1, 1]
        for one, want in zip(found, by_hand if not flags else ()):
            assert one["log_probs"] == pytest.approx(want, abs=1.5e-6)
    write_lines(tmp_path / "nbest", [f"0 ||| {line} ||| LM= 1 ||| 0" for line in LINES])
    rows = command("rescore", *mix, tmp_path / "nbest")[1].splitlines()
    found = [float(row.split("BNCE=")[1].split("|")[0]) for row in rows]
    assert found == pytest.approx(totals, abs=1e-5)
    table = ["id,question,a),b)", f"1,_____,{LINES[0]},{LINES[2]}"]
    write_lines(tmp_path / "questions", table)
    row = command("complete", *mix, "--tokenize", "none", tmp_path / "questions")[1].splitlines()[1]
    found = [float(cell) for cell in row.split(",")[-2:]]
    assert found == pytest.approx([totals[0], totals[2]], abs=1e-5)


def espnet(mixture, lines):
    tokens = ["<unk>", *WORDS, "w50", "unheard", "<sos/eos>"]
    lm = decoding.EspnetScorer(mixture, tokens)
    for line in lines:
        state, total, y = None, 0.0, [len(tokens) - 1]
        for word in [*line.split(), "<sos/eos>"]:
            scores, (state,) = lm.batch_score_partial(torch.tensor([y]), None, [state], None)
            y.append(tokens.index(word))
            total += scores[0, y[-1]].item()
        yield total


def speechbrain(mixture, lines):
    return decoding.SpeechbrainRescorer(mixture).rescore_hyps([lines]).tolist()


def by_prefixes(mixture, lines):
    lines = [*lines, *(f"{line} w2" for line in lines), *(f"{line} w3" for line in lines)]
    return prefixes.totals(mixture, lines)[: len(LINES)].tolist()


def word_by_word(mixture, lines):
    for line in lines:
        state, total = mixture.start(3).select([1]), 0.0
        for word in mixture.ids([*line.split(), "</s>"]):
            want = mixture.next_log_probs(state, [[word, 5]])[0, 0]
            state, log_probs = mixture.extend(state, [word])
            assert log_probs.tolist() == [pytest.approx(want, abs=1e-6)]
            total += log_probs[0]
        yield total


# Others are in test_decoding.py, against the mixture's own scores.
@pytest.mark.parametrize("door", [espnet, speechbrain, by_prefixes, word_by_word])
def test_each_door_mixes_as_by_hand(door, by_hand, mixture, espnet_scorer):
    found = list(door(mixture, LINES))
    assert found == pytest.approx([log_probs.sum() for log_probs in by_hand], abs=1e-5)


@pytest.mark.parametrize("names", [["lstm_lm"], [FEW_TARGETS], [FEW_TARGETS, "transformer_lm"]])
def test_probabilities_sum_to_one(names, made, ngram, tmp_path):
    """Over the words of all models, and <unk> once."""
    other = NGramModel(str(write_arpa(tmp_path / "other.arpa", ["w3", "rare"], has_unk=False)))
    scorers = [made(name, exact=True) for name in names]
    for models in ([*scorers, ngram], [ngram, *scorers, other]):
        mixture = Mixture(models)
        ids = np.arange(len(mixture.dictionary))
        ids = [*ids[~mixture.is_oov(ids)], mixture.dictionary.unk()]
        state = mixture.start(4)
        for words in (["w1", "only", "rare", "w50"], ["unheard", "w2", "</s>", "<s>"]):
            assert np.exp(mixture.next_log_probs(state, [ids] * 4)).sum(1) == pytest.approx(1, 1e-5)
            state = mixture.read_on(state, mixture.ids(words))
        assert np.exp(mixture.next_log_probs(state, [ids] * 4)).sum(1) == pytest.approx(1, 1e-5)


def test_weights_are_fitted_and_kept(arpa, command, mixture, tmp_path):
    tune, text, kept = (tmp_path / name for name in ("tune", "text", "w.json"))
    lines = zipf_lines(60, seed=6)
    write_lines(tune, lines)
    write_lines(text, ["w1 w2\tw3"])
    mix = ["--exact", "--given", "--mix-with", arpa, text]
    _, fitted, errors = command("score", *mix, "--mix-tune", tune, "--mix-weights-out", kept)
    assert "--mix-weight" in errors and str(tune) in errors
    assert command("score", *mix, "--mix-weight", kept)[1] == fitted
    decoder, begin, after = decoding.KenlmModel(mixture), *(decoding.kenlm.State() for _ in "12")
    decoder.BeginSentenceWrite(begin)
    mixture.fit(lines)
    (want,) = mixture.next_log_probs(mixture.start(), mixture.ids(["w1"]))
    assert decoder.BaseScore(begin, "w1", after) * LN_10 == pytest.approx(want, abs=1e-5)
    best = mixture.perplexity(lines)
    others = [Mixture(mixture.models, [w, 1 - w]).perplexity(lines) for w in (0.1, 0.5, 0.9)]
    assert best <= min(others) + 1e-6 and best < max(others)
    again = Mixture(mixture.models, str(kept))
    assert again.weights == pytest.approx(mixture.weights, abs=1e-4)
    mixture.save(str(kept))
    assert json.loads(kept.read_text())["weights"] == mixture.weights.tolist()
    mixture.fit([])
    assert mixture.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("flags", [[], ["--document", "--exact"]])
@pytest.mark.parametrize("other", ["transformer_lm", FEW_TARGETS])
def test_two_networks(other, flags, command, tmp_path, language_model):
    """Of the words that only one model knows, the other's probability is 0."""
    lines = [*LINES, *zipf_lines(300, seed=5), "w3 " * 30]
    write_lines(tmp_path / "text", lines)
    flags = ["score", "--json", "--per-word", *flags, tmp_path / "text", "--batch-tokens", "50"]
    mix = ["--mix-with", language_model(other), "--mix-weight", "0.3"]
    printed = command(*flags), command(*flags, model=other), command(*flags, *mix)
    ours, theirs, mixed = ([*map(json.loads, output.splitlines())] for _, output, _ in printed)
    assert len(mixed) == len(lines)
    for a, b, found in zip(ours, theirs, mixed):
        oov = np.array([a["is_oov"], b["is_oov"]])
        assert found["is_oov"] == oov.all(0).tolist() and found["words"] == a["words"]
        logs = np.where(oov & ~oov.all(0), -np.inf, [a["log_probs"], b["log_probs"]])
        want = np.log(0.3 * np.exp(logs[0]) + 0.7 * np.exp(logs[1]))
        assert found["log_probs"] == pytest.approx(want, abs=2e-5)


def test_several_models(arpa, command, language_model, made, ngram, tmp_path):
    write_lines(tmp_path / "text", LINES)
    mix = ["--mix-with", language_model("rnn_lm"), "--mix-with", arpa, tmp_path / "text"]
    found = command("score", *mix, "--mix-weight", "0.5,0.2", "--json")[1].splitlines()
    mixture = Mixture([made("lstm_lm"), made("rnn_lm"), ngram], [0.5, 0.2, 0.3])
    want = mixture.score(LINES)
    assert [json.loads(line)["log_prob"] for line in found] == pytest.approx(want, abs=1e-5)
    assert not mixture.exact and mixture.is_self_normalised
    exact = mixture.with_exact(True)
    assert exact.exact and abs(exact.score(LINES) - want).max() > 1e-4


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_take_each_others_states(copied, mixture):
    state = mixture.read_on(mixture.start(2), mixture.ids(["w1", "only"]))
    want = mixture.next_log_probs(state, mixture.ids(["w2", "</s>"]))
    again = copied(mixture)
    for each in (state, copied(state)):
        found = again.next_log_probs(each, again.ids(["w2", "</s>"]))
        assert found == pytest.approx(want, abs=1e-6)


def test_mixtures_that_are_refused(made, mixture, ngram, tmp_path):
    scorer, both_sides = made("lstm_lm"), made("lbl_lm both sides")
    for models in ([scorer], [both_sides, scorer], [ngram, both_sides]):
        with refusing("models"):
            Mixture(models)
    for wrong in ([-1], [len(mixture.dictionary)], [0.5], [3, 4]):
        with refusing("word_ids"):
            mixture.extend(mixture.start(1), wrong)
        with refusing("word_ids"):
            ngram.extend(ngram.start(1), wrong)
    other = NGramModel(str(write_arpa(tmp_path / "other.arpa", WORDS)))
    for one, another in ((ngram, other), (ngram, mixture), (mixture, ngram)):
        with refusing("state"):
            one.extend(another.start(), [3])


def test_models_of_other_words_are_reported(made, language_model, ngram, tmp_path, caplog):
    Mixture([made("lstm_lm"), ngram])
    assert "share" not in caplog.text
    upper = write_arpa(tmp_path / "upper.arpa", [word.upper() for word in WORDS])
    Mixture([made("lstm_lm"), NGramModel(str(upper))])
    assert "cased" in caplog.text
    models = []
    for text in ({"tokenizer": "sacremoses", "language": "en"}, {"tokenizer": "penn"}):
        edited(language_model("rnn_lm"), tmp_path / "edited.pt", with_state(training_text=text))
        models.append(Scorer.from_checkpoint(tmp_path / "edited.pt"))
    mixture = Mixture(models)
    assert "sacremoses" in caplog.text and "Penn" in caplog.text
    found = list(mixture.score_stream(["w1, w2"]))[0]
    assert found.words == ["w1", ",", "w2", "</s>"]


def test_special_words_of_an_n_gram_model(arpa, ngram, tmp_path):
    model = kenlm.Model(str(arpa))
    want = [log_10 * LN_10 for line in ("w1 w2", "w3") for log_10, _, _ in model.full_scores(line)]
    assert ngram.score_words(["w1 w2 </s> w3"])[0] == pytest.approx(want, abs=1e-6)
    unknown = ngram.score_words(["w1 unheard w3"])[0]
    for special in ("<unk>", "<s>", "<pad>"):
        (found,) = ngram.score_stream([f"w1 {special} w3"], tokenized=True)
        assert found.log_probs == pytest.approx(unknown) and found.oov == 1
    without = NGramModel(str(write_arpa(tmp_path / "without.arpa", WORDS, has_unk=False)))
    assert without.score_words(["unheard"])[0][0] == pytest.approx(-100 * LN_10, rel=0.01)


@pytest.mark.parametrize("kind", BINARIES)
def test_binary_files(kind, tmp_path):
    arpa = NGramModel(str(write_arpa(tmp_path / "lm.arpa", ["w1", "w2"])))
    model = NGramModel(str(write_binary(tmp_path / "lm", kind)))
    assert sorted(model.dictionary.symbols) == sorted(arpa.dictionary.symbols)
    lines = ["w1 w2", "w2 unheard", ""]
    assert model.score(lines) == pytest.approx(arpa.score(lines), abs=1e-5)
    content = (tmp_path / "lm").read_bytes()
    (tmp_path / "without").write_bytes(content[: content.rindex(b"<unk>\0")])
    with pytest.raises(ScoringError):
        NGramModel(str(tmp_path / "without"))


def test_files_of_n_gram_models(arpa, command, ngram, tmp_path, monkeypatch):
    text, zipped = tmp_path / "text", tmp_path / "lm.gz"
    write_lines(text, LINES)
    zipped.write_bytes(gzip.compress(arpa.read_bytes()))
    mixed = [command("score", "--mix-with", name, text)[1] for name in (arpa, zipped)]
    assert mixed[0] == mixed[1] != ""
    write_lines(tmp_path / "junk", LINES)
    (tmp_path / "damaged.pt").write_bytes(b"PK\3\4")
    for name in ("junk", "missing", "damaged.pt"):
        status, _, errors = command("score", "--mix-with", tmp_path / name, text)
        assert status == 2 and name in errors and "--path" not in errors
    monkeypatch.setitem(sys.modules, "kenlm", None)
    status, _, errors = command("score", "--mix-with", arpa, text)
    assert status == 2 and "fairseq-bnce[kenlm]" in errors
