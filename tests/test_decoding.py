"""Adapters for decoders: the scores of whole sentences, in any order and batching; and refusals."""

import copy
import math
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from flashlight.lib.text.decoder import LMState
from ngrams import write_arpa
from pyctcdecode.language_model import LanguageModel
from scoring_models import CAUSAL, FEW_TARGETS
from test_copies import pickled
from tools import LSTM, build, refusing, slow

from fairseq_bnce.decoding import FlashlightLM, KenlmModel, PyctcdecodeLM, SpeechbrainRescorer
from fairseq_bnce.decoding import kenlm as kenlm_look_alike
from fairseq_bnce.output_layer.layer import OutputLayer, squash
from fairseq_bnce.scoring import Mixture, NGramModel, ScoringError
from fairseq_bnce.scoring.host import HostScores

WORDS = ["<unk>", *(f"w{number}" for number in range(60)), "unheard", "only"]
LN_10 = math.log(10)


def sentences(count, seed):
    """Many begin alike, some hold a word that the model lacks, one is empty, one long."""
    rng = random.Random(seed)
    lines = zipf_lines(count - 3, seed=seed)
    lines = [f"w1 w2 {line}" if rng.random() < 0.5 else line for line in lines]
    return [*lines, "w1 unheard w2", "", " ".join(zipf_lines(5, seed=seed + 1))]


class Search:
    """Sentences that grow a word at a time, whichever comes next being chosen by chance.

    Other words are scored on the way, whose states nobody goes on with.
    """

    def __init__(self, lines, seed):
        self.rng = random.Random(seed)
        self.left = {number: line.split() for number, line in enumerate(lines)}
        self.words = sorted({word for line in lines for word in line.split()})

    def sums(self, start, score, finish):
        """Of each sentence, from ``score(state, word)`` -> (state, score)."""
        reached = {number: (start(), 0.0) for number in self.left}
        alive = [number for number in self.left for _ in range(len(self.left[number]) + 1)]
        self.rng.shuffle(alive)
        for number in alive:
            state, total = reached[number]
            if self.rng.random() < 0.3:
                score(state, self.rng.choice(self.words))
            if self.left[number]:
                state, found = score(state, self.left[number].pop(0))
            else:
                state, found = None, finish(state)
            reached[number] = (state, total + found)
        return [reached[number][1] for number in sorted(reached)]


def steps(lm):
    """What :meth:`Search.sums` calls of an adapter."""

    def base_score(state, word):
        after = kenlm_look_alike.State()
        return after, lm.BaseScore(state, word, after)

    def begin():
        state = kenlm_look_alike.State()
        lm.BeginSentenceWrite(state)
        return state

    if isinstance(lm, KenlmModel):
        return begin, base_score, lambda state: base_score(state, "</s>")[1]
    if isinstance(lm, PyctcdecodeLM):
        score, end = lambda *given: lm.score(*given)[::-1], lambda s: lm.score(s, "", True)[0]
        return lm.get_start_state, score, end
    start, end = partial(lm.start, False), lambda state: lm.finish(state)[1]
    return start, lambda state, word: lm.score(state, WORDS.index(word)), end


def assert_sums(lm, lines, want, seed=5):
    """The adapter's scores add up to the sentences', in whatever order they come."""
    got = Search(lines, seed).sums(*steps(lm))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("count", [40, *slow(300)])
def test_sums_are_the_sentences_scores(name, count, made):
    """Whatever the order, and whatever is read along."""
    scorer = made(name)
    for exact, first in ((False, 0), (True, -20)):
        scorer, lines = scorer.with_exact(exact), sentences(count, seed=21)[first:]
        assert_sums(FlashlightLM(scorer, WORDS, searches=count), lines, scorer.score(lines))


@pytest.mark.parametrize("name", ["lstm_lm", "transformer_lm"])
@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
def test_sums_however_little_is_kept(name, seed, made):
    scorer, fuzz = made(name), random.Random(seed)
    lines = sentences(15, seed=22 + seed)
    options = {"cached": fuzz.randint(1, 20), "read_ahead": fuzz.randint(0, 5)}
    assert_sums(FlashlightLM(scorer, WORDS, **options), lines, scorer.score(lines), seed)


@pytest.mark.parametrize("name", ["lstm_lm", "transformer_lm"])
def test_pyctcdecode_and_kenlm_score_as_the_scorer(name, made, language_model):
    scorer = made(name)
    lines = sentences(40, seed=31)
    lm = PyctcdecodeLM(scorer, alpha=1.0, beta=0.0, unk_score_offset=0.0, read_ahead=3)
    assert_sums(lm, lines, scorer.score(lines))
    model, want = KenlmModel(str(language_model(name))), scorer.score(lines) / LN_10
    assert_sums(model, lines, want)
    np.testing.assert_allclose([model.score(line) for line in lines], want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("other", [FEW_TARGETS, "n-grams"])
def test_adapters_take_a_mixture(other, made, tmp_path):
    """Of two networks, or with n-grams that know a word more; its scores are in test_mixture.py."""
    if other == "n-grams":
        pytest.importorskip("kenlm")
        model = NGramModel(str(write_arpa(tmp_path / "lm.arpa", ["only", "w1", "w2"])))
    else:
        model = made(other, exact=True)
    mixture = Mixture([made("lstm_lm", exact=True), model])
    flashlight, kenlm = FlashlightLM(mixture, WORDS), KenlmModel(mixture)
    if other == "n-grams":  # fairseq's dictionary of few targets can't be pickled
        kenlm = pickled(kenlm)
    ctc = PyctcdecodeLM(mixture, alpha=1.0, beta=0.0, unk_score_offset=0.0)
    assert np.isfinite(flashlight.unigram_scores()).all() and ctc.score_partial_token("w5") == 0
    assert ("only" in kenlm) == (other == "n-grams")
    assert "w50" in kenlm and "unheard" not in kenlm
    lines = [*sentences(12, seed=52), "w7 only unheard w50 w1"]
    for lm in (flashlight, ctc, kenlm):
        want = mixture.score(lines) / (LN_10 if lm is kenlm else 1)
        assert_sums(lm, lines, want)
    assert [kenlm.score(line) for line in lines] == pytest.approx(want, abs=1e-4)


def test_speechbrain_scores_as_the_scorer(made):
    scorer = made("rnn_lm")
    lists = [["W1 W2", "W3"], ["W4 W5 W6", "W1"]]
    rescorer = SpeechbrainRescorer(scorer, str.lower)
    found = rescorer.rescore_hyps(lists)
    np.testing.assert_allclose(found, scorer.score(["w1 w2", "w3", "w4 w5 w6", "w1"]), atol=1e-6)
    # SpeechBrain 1.1.2's builder makes keys of names so, and refuses those it has no class of.
    key = type(rescorer).__name__.lower().split("rescorer")[0]
    assert key in ("rnnlm", "transformerlm", "huggingfacelm")


def test_a_beam_is_read_in_one_batch(made):
    lm = FlashlightLM(made("lstm_lm"), WORDS, read_ahead=0, searches=30)
    beam = [lm.score(lm.start(False), index)[0] for index in range(1, 31)]
    assert lm.histories.counts[1] == 0  # nothing is read before it is asked for
    lm.updateCache(beam)
    assert lm.histories.counts[1:] == [30, 1]
    for state in beam:
        lm.score(state, 3)
    assert lm.histories.counts[2] == 1


def test_the_cache_is_bounded_and_nothing_is_of_the_vocabularys_size(made):
    lm = FlashlightLM(made("lstm_lm", exact=True), WORDS, cached=20, read_ahead=0)
    state = lm.start(False)
    for index in [*range(1, 40)] * 2:
        state, _ = lm.score(state, index)
    kept = list(lm.histories._batches)
    assert 10 < sum(len(batch.state) for batch in kept) <= 20
    assert all(batch.inputs.shape == (1, 16) for batch in kept)


def test_the_look_ahead_is_the_unigram_distribution(made):
    """<unk> itself is not counted in the corpus's dictionary."""
    scorer = made("ffnn_lm")
    lm = FlashlightLM(scorer, WORDS, unk_score_offset=-3.0)
    found = dict(zip(WORDS, lm.unigram_scores().tolist()))
    counts = [count + 1 for count in scorer.dictionary.count]
    assert counts[scorer.dictionary.index("w1")] > 10
    for word in ("w1", "w30"):
        share = counts[scorer.dictionary.index(word)] / sum(counts)
        assert found[word] == pytest.approx(np.log(share))
    unk = scorer.score_words(["unheard"])[0][0]
    assert found["unheard"] == pytest.approx(unk - 3, abs=1e-5)


@pytest.mark.parametrize("offset", [-3.0, -math.inf])
def test_words_out_of_the_vocabulary(offset, made, language_model):
    """They score as <unk> plus the offset, in each decoder's unit, or are ruled out."""
    scorer = made("lstm_lm")
    flashlight = FlashlightLM(scorer, WORDS, unk_score_offset=offset)
    assert np.isfinite(flashlight.unigram_scores()).all()
    lm = PyctcdecodeLM(scorer, WORDS[1:30], unk_score_offset=offset)
    model = KenlmModel(str(language_model("lstm_lm")), unk_score_offset=offset)
    begin, after = kenlm_look_alike.State(), kenlm_look_alike.State()
    model.BeginSentenceWrite(begin)
    for word, off in (("unheard", offset), ("w1", 0.0)):
        nats = scorer.score_words([word])[0][0]
        _, found = flashlight.score(flashlight.start(False), WORDS.index(word))
        assert found == pytest.approx(nats + max(off, -1e10))
        want = 0.5 * (nats + off * LN_10) + 1.5
        assert lm.score(lm.get_start_state(), word)[0] == pytest.approx(want, abs=1e-6)
        want = pytest.approx(nats / LN_10 + off)
        assert model.BaseScore(begin, word, after) == want == next(model.full_scores(word))[0]
    # In the model, and none of the unigrams:
    want = 0.5 * (scorer.score_words(["w31"])[0][0] + offset * LN_10) + 1.5
    assert lm.score(lm.get_start_state(), "w31")[0] == pytest.approx(want)
    lm.reset_params(alpha=0.0)  # 0 times infinity is no number
    assert lm.score(lm.get_start_state(), "unheard")[0] == 1.5


def test_partial_words_as_the_n_gram_class_has_them(made):
    words = [f"w{number}" for number in range(0, 60, 3)]
    ours = PyctcdecodeLM(made("lstm_lm"), words, unk_score_offset=-7.0)
    theirs = LanguageModel(KenlmModel(made("lstm_lm")), words, unk_score_offset=-7.0)
    for beginning in ("w", "w1", "w12", "w13", "x", "w123456789", "wwwwwwwwwww"):
        assert ours.score_partial_token(beginning) == theirs.score_partial_token(beginning)
    without_unigrams = PyctcdecodeLM(made("lstm_lm"))
    assert without_unigrams.score_partial_token("w1") == 0
    assert without_unigrams.score_partial_token("<s") < 0  # no word of a text begins so


def test_parameters_of_the_n_gram_class(made):
    lm = PyctcdecodeLM(made("lstm_lm"))
    state = lm.get_start_state()
    with_end, _ = lm.score(state, "w1", is_last_word=True)
    without, after = lm.score(state, "w1")
    assert with_end == pytest.approx(without + 0.5 * lm.histories.end(after))
    lm.reset_params(score_boundary=False, alpha=None, beta=2.5)
    assert lm.score(state, "w1", is_last_word=True)[0] == pytest.approx(without + 1)


def test_order(made, language_model):
    """What decoders prune hypotheses by that differ in earlier words alone."""
    assert PyctcdecodeLM(made("ffnn_lm")).order == 4
    assert KenlmModel(str(language_model("ffnn_lm bigram"))).order == 2
    scored = KenlmModel(str(language_model("ffnn_lm"))).full_scores("w1 unheard w2 w3 w4")
    assert [length for _, length, _ in scored] == [2, 3, 4, 4, 4, 4]
    assert PyctcdecodeLM(made("lstm_lm")).order > 1e9


def test_what_code_for_kenlm_does(language_model):
    path = str(language_model("lstm_lm"))
    model = kenlm_look_alike.Model(path)
    assert model.path.decode() == path and repr(model) == "<Model from checkpoint_last.pt>"
    assert b"w2" in model and "<unk>" not in model
    assert model.score(b"w1 w2") == pytest.approx(model.score("w1 w2 </s>", eos=False), abs=1e-6)
    config = kenlm_look_alike.Config()
    config.load_method = kenlm_look_alike.LoadMethod.LAZY
    config.arpa_complain = kenlm_look_alike.ARPALoadComplain.NONE
    unlikely = KenlmModel(path, config, unk_score_offset=-1000.0)
    assert unlikely.perplexity("unheard") == math.inf


def test_threads_share_an_adapter(made):
    """All search among the same few states, which are forgotten and read again all the time."""
    scorer = made("lstm_lm")
    lm = PyctcdecodeLM(scorer, alpha=1.0, beta=0.0, cached=8, read_ahead=4)
    lines = sentences(12, seed=51)
    want = scorer.score(lines)
    want[lines.index("w1 unheard w2")] -= 10 * LN_10
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(assert_sums, lm, lines, want), range(4)))


def test_a_model_that_does_not_normalise_itself(made):
    scorer = made("lstm_lm")
    scorer.is_self_normalised = False
    flashlight = partial(FlashlightLM, words=WORDS)
    for adapter in (flashlight, PyctcdecodeLM, SpeechbrainRescorer, KenlmModel):
        adapter(scorer.with_exact(True))
        with refusing("exact"):
            adapter(scorer)


def test_words_that_the_model_lacks(made, caplog):
    scorer = made("lstm_lm")
    lacking = ["<unk>", "w1", "w2", "w3", "un", "heard"]
    FlashlightLM(scorer, lacking)
    assert "2 of 6 (33.3%): 'un', 'heard', ..." in caplog.text
    for adapter in (FlashlightLM, PyctcdecodeLM):
        with refusing("words"):
            adapter(scorer, lacking, max_oov=0.3)


def test_states_that_an_adapter_does_not_have(made, language_model):
    """Of another one, of a search before the last two, after the end of a sentence, or none."""
    scorer = made("lstm_lm")
    lm, other = (FlashlightLM(scorer, WORDS, searches=2) for _ in range(2))
    foreign, forgotten = other.start(False), lm.start(False)
    lm.start(False)
    lm.score(forgotten, 1)
    ended, _ = lm.finish(lm.start(False))
    wrong = [LMState(), foreign, forgotten, ended]
    calls = [*(partial(lm.score, state, 1) for state in wrong), partial(lm.finish, ended)]
    ours, theirs = PyctcdecodeLM(scorer), PyctcdecodeLM(scorer)
    calls += [partial(ours.score, state, "w1") for state in (theirs.get_start_state(), None)]
    model, another = (KenlmModel(str(language_model("lstm_lm"))) for _ in range(2))
    begun, unset, after = (kenlm_look_alike.State() for _ in range(3))
    another.BeginSentenceWrite(begun)
    calls += [partial(model.BaseScore, state, "w1", after) for state in (begun, unset)]
    for call in calls:
        with refusing("state"):
            call()
    with pytest.raises(ScoringError):
        lm.score(lm.start(False), -1)  # it would be another word


def test_a_model_of_both_sides_words(made):
    with pytest.raises(ScoringError):
        PyctcdecodeLM(made("lbl_lm both sides"))


@torch.no_grad()
def test_words_scored_on_the_host_have_the_layers_scores(corpus):
    model = build(corpus, *LSTM)[2].eval()
    squash(model)
    layer = OutputLayer(model)
    for parameter in layer.parameters():
        parameter.mul_(20)
    features = torch.randn(1, 16, generator=torch.Generator().manual_seed(1))
    host, ids = HostScores(layer, 3, 201), [5, 9, 64, 200]  # the last are not predicted
    want = layer.target_scores(features, torch.tensor([[5, 9, 3, 3]]))[0].numpy()
    np.testing.assert_allclose(host.scores(features[0].numpy(), ids), want, rtol=1e-5)
    one_by_one = [host.score(features[0].numpy(), word) for word in ids]
    np.testing.assert_allclose(one_by_one, want, rtol=1e-5)
    with pytest.raises(ScoringError):  # it would be the last word
        host.score(features[0].numpy(), -1)
    of_all = host.scores(features[0].numpy(), np.arange(len(layer)))  # by another product
    np.testing.assert_allclose(of_all[ids[:2]], want[:2], rtol=1e-5)


def _code_for_kenlm(kenlm, path):
    """What users do with the module, checked by the ways that agree; the names that they have."""
    model = kenlm.Model(path)
    state, after = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(state)
    scores, lengths = [], []
    for word in ["w1", "w2", "unheard", "</s>"]:
        full = model.BaseFullScore(state, word, after)
        lengths.append(full.ngram_length)
        scores.append(model.BaseScore(state, word, after))
        assert full.log_prob == pytest.approx(scores[-1]) and full.oov == (word == "unheard")
        state, after = after, state
    sentence = "w1 w2 unheard"
    assert model.score(sentence) == pytest.approx(sum(scores), abs=1e-5)
    of_sentence, of_words, _ = zip(*model.full_scores(sentence))
    assert of_sentence == pytest.approx(scores, abs=1e-5) and list(of_words) == lengths
    assert model.score(sentence, bos=True, eos=False) == pytest.approx(sum(scores[:3]), abs=1e-5)
    assert model.perplexity(sentence) == pytest.approx(10 ** (-sum(scores) / 4), rel=1e-4)
    begin, null = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(begin)
    model.NullContextWrite(null)
    assert begin == begin and hash(begin) == hash(begin) and "w1" in model and "x" not in model
    lengths = [(length, is_oov) for _, length, is_oov in model.full_scores("w1 unheard")]
    assert all(type(length) is int and type(is_oov) is bool for length, is_oov in lengths)
    kinds = type(model.order), type(model.path), repr(model).split()[0]
    assert kinds == (int, bytes, "<Model")
    return {name for each in (model, state, full) for name in dir(each) if name[0] != "_"}


def test_code_for_kenlm_takes_either(language_model, tmp_path):
    ours = _code_for_kenlm(kenlm_look_alike, str(language_model("lstm_lm")))
    kenlm = pytest.importorskip("kenlm")
    theirs = _code_for_kenlm(kenlm, str(write_arpa(tmp_path / "lm.arpa", ["w1", "w2"])))
    assert theirs <= ours
    assert theirs > {"BaseScore", "ngram_length"}


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_adapters_are_copied(copied, made, language_model, espnet_scorer):
    scorer, path = made("transformer_lm"), str(language_model("transformer_lm"))
    flashlight = FlashlightLM(scorer, WORDS, unk_score_offset=-2.0, searches=3)
    flashlight.start(False)  # as of a search that goes on
    ctc = PyctcdecodeLM(scorer, WORDS[:30], alpha=0.7)
    kept = {"exact": True, "unk_score_offset": -1.0, "cached": 3, "read_ahead": 2}
    kenlm = KenlmModel(path, **kept)
    for lm in (flashlight, ctc, kenlm):
        lines = ["w1 unheard", "w3", ""]
        assert_sums(copied(lm), lines, Search(lines, 5).sums(*steps(lm)))
    assert (copied(kenlm).histories.cached, copied(kenlm).histories.read_ahead) == (3, 2)
    begun, after = kenlm_look_alike.State(), kenlm_look_alike.State()
    kenlm.BeginSentenceWrite(begun)
    want = kenlm.BaseScore(begun, "w1", after)
    assert kenlm.BaseScore(copied(begun), "w1", copied(after)) == want
    rescorer, lists = SpeechbrainRescorer(scorer, str.lower), [["W1 w2"], ["w3"]]
    assert copied(rescorer).rescore_hyps(lists).tolist() == rescorer.rescore_hyps(lists).tolist()
    lm = espnet_scorer(scorer, [*WORDS, "<sos/eos>"])
    calls = [torch.tensor([len(WORDS)]), torch.tensor([3]), None, None]
    assert copied(lm).score_partial(*calls)[0] == lm.score_partial(*calls)[0]


def test_pyctcdecode_does_not_save_what_it_cannot_load(made, tmp_path):
    with pytest.raises(ScoringError):
        PyctcdecodeLM(made("rnn_lm")).save_to_dir(str(tmp_path))
