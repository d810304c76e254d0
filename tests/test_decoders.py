"""Real beam searches on made emissions, of which the language model decides.

Then every example of docs/decoding.md, as it stands there, in a folder that has what it reads;
test_docs.py runs the rest of the page.
"""

import importlib.util
import itertools
import re
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from flashlight.lib.text import decoder as flashlight
from pyctcdecode import build_ctcdecoder
from pyctcdecode.alphabet import Alphabet
from pyctcdecode.decoder import BeamSearchDecoderCTC
from tools import write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.decoding import FlashlightLM, PyctcdecodeLM

WORDS = ["<unk>", *(f"w{number}" for number in range(10, 60))]
TOKENS = ["-", "|", "w", *"0123456789"]  # blank, the end of a word, characters
UNITS = ["257", "018", "346", "179"]  # of each word, all as likely
TENS = "2134"
SENTENCES = [
    " ".join(f"w{ten}{unit}" for ten, unit in zip(TENS, units))
    for units in itertools.product(*UNITS)
]


def emissions():
    """(T, tokens) float32 log-probabilities; a blank after each character."""
    frames = []
    for ten, units in zip(TENS, UNITS):
        for characters in ("w", "-", ten, "-", units, "-", "|", "-"):
            frame = np.full(len(TOKENS), 1e-5)
            frame[[TOKENS.index(character) for character in characters]] = 1 / len(characters)
            frames.append(np.log(frame / frame.sum()))
    return np.array(frames, dtype=np.float32)


def best(scorer, count=1):
    """The likeliest of all sentences that the emissions leave open."""
    order = np.argsort(-scorer.score(SENTENCES))
    return [SENTENCES[number] for number in order[:count]]


def lexicon_decoder(lm, smearing=flashlight.SmearingMode.MAX, more=()):
    """Of WORDS, which are spelled as they are written, and of more words by their spellings."""
    trie = flashlight.Trie(len(TOKENS), TOKENS.index("|"))
    spellings = [*(f"{word}|" for word in WORDS), *more]
    for index, (spelling, score) in enumerate(zip(spellings, lm.unigram_scores().tolist())):
        if index:
            trie.insert([TOKENS.index(c) for c in spelling], index, score)
    trie.smear(smearing)
    options = flashlight.LexiconDecoderOptions(
        200, len(TOKENS), 50.0, 1.0, 0.0, -np.inf, 0.0, False, flashlight.CriterionType.CTC
    )
    return flashlight.LexiconDecoder(options, trie, lm, TOKENS.index("|"), 0, 0, [], False)


@pytest.mark.parametrize(("name", "exact"), [("lstm_lm", True), ("transformer_lm", False)])
def test_flashlight_finds_the_likeliest_sentences(name, exact, made):
    scorer = made(name, exact=exact)
    lm = FlashlightLM(scorer, WORDS)
    decoder, frames = lexicon_decoder(lm), emissions()
    for _ in range(2):  # the second utterance as the first
        found = decoder.decode(frames.ctypes.data, *frames.shape)[:5]
        texts = [" ".join(WORDS[w] for w in result.words if w >= 0) for result in found]
        assert texts == best(scorer, 5)
        got = [result.lmScore for result in found]
        np.testing.assert_allclose(got, scorer.score(texts), rtol=0, atol=1e-3)


def test_words_that_are_ruled_out_leave_the_others_alone(made):
    """One is spelled as a known word is, the other as some begin."""
    scorer, frames = made("lstm_lm"), emissions()
    sentence = best(scorer)[0]
    words = [*WORDS, "unheard", "unknown"]
    lm = FlashlightLM(scorer, words, unk_score_offset=-np.inf)
    more = [f"{sentence.split()[0]}|", "w1"]
    decoder = lexicon_decoder(lm, flashlight.SmearingMode.LOGADD, more)
    (result, *_) = decoder.decode(frames.ctypes.data, *frames.shape)
    assert " ".join(words[w] for w in result.words if w >= 0) == sentence


def test_pyctcdecode_finds_the_likeliest_sentences(made):
    scorer = made("lstm_lm")
    labels = ["", " ", *TOKENS[2:]]
    lm = PyctcdecodeLM(scorer, WORDS[1:], alpha=1.0, beta=0.0)
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), lm)
    frames = emissions()[:-2]  # no space at the end
    found = decoder.decode_beams(frames, beam_width=300, beam_prune_logp=-60, token_min_logp=-20)
    assert [text for text, *_ in found[:5]] == best(scorer, 5)
    without = build_ctcdecoder(labels).decode_beams(frames, beam_width=300)
    acoustic = {text: score for text, _, _, score, _ in without}
    for text, state, _, logits, combined in found[:5]:
        assert combined - logits == pytest.approx(scorer.score([text])[0], abs=1e-3)
        assert logits == pytest.approx(acoustic[text], abs=1e-3)
        assert scorer.dictionary.string(list(state.words())) == text


def test_what_ends_with_a_space_scores_as_without(made):
    """The library scores an empty last word then, which is none."""
    scorer = made("lstm_lm")
    lm = PyctcdecodeLM(scorer, WORDS[1:], alpha=1.0, beta=0.0)
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(["", " ", *TOKENS[2:]]), lm)
    found = decoder.decode_beams(emissions(), beam_width=300, beam_prune_logp=-60)
    text, _, _, logits, combined = found[0]
    assert text == best(scorer)[0]
    assert combined - logits == pytest.approx(scorer.score([text])[0], abs=1e-3)


PAGE = (Path(__file__).parents[1] / "docs" / "decoding.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
EXAMPLES = {
    section.splitlines()[0]: code
    for section in SECTIONS
    for code in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def folder(tmp_path, monkeypatch, language_model, corpus):
    shutil.copy(language_model("lstm_lm"), tmp_path / "checkpoint_best.pt")
    shutil.copy(corpus / "dict.txt", tmp_path)
    write_lines(tmp_path / "lexicon.txt", [f"{w} {' '.join(w)} |" for w in WORDS[1:]])
    np.save(tmp_path / "emissions.npy", emissions())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scorer(folder):
    return Scorer.from_checkpoint("checkpoint_best.pt")


def printed(name, capsys):
    exec(compile(EXAMPLES[name], name, "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_every_example_is_run_here():
    names = "ESPnet, KenLM's interface, SpeechBrain, flashlight, pyctcdecode, torchaudio"
    assert ", ".join(sorted(EXAMPLES)) == names


@pytest.mark.parametrize("name", ["flashlight", "pyctcdecode"])
def test_beam_searches(name, scorer, capsys):
    assert printed(name, capsys) == best(scorer)


def test_torchaudio(scorer, capsys, monkeypatch):
    """Its Python, without its compiled parts, which need a torch of torchaudio's version."""
    package = Path(importlib.util.find_spec("torchaudio").origin).parent
    stand_ins = ["torchaudio", "torchaudio.utils", "torchaudio.models"]
    for module in stand_ins:
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    sys.modules["torchaudio.utils"]._download_asset = None
    path = package / "models" / "decoder" / "_ctc_decoder.py"
    spec = importlib.util.spec_from_file_location("torchaudio.models.decoder", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torchaudio.models.decoder", module)
    spec.loader.exec_module(module)
    assert printed("torchaudio", capsys) == best(scorer)


def test_kenlm(scorer, capsys):
    first, second = printed("KenLM's interface", capsys)
    score, perplexity, is_known = first.split()
    want = scorer.score(["w1 w2 w3"])[0]
    assert float(score) == pytest.approx(want / np.log(10), abs=1e-4) == float(second)
    assert float(perplexity) == pytest.approx(np.exp(-want / 4), abs=0.01) and is_known == "True"


@pytest.mark.decoders
def test_espnet(scorer, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "fairseq_bnce.decoding.espnet", raising=False)
    (text,) = printed("ESPnet", capsys)
    assert scorer.score([text])[0] >= scorer.score(["w10", "w11 w12"]).max()


def test_speechbrain(scorer, capsys):
    (index,) = printed("SpeechBrain", capsys)
    assert int(index) == scorer.score(["w1 w2", "w1 w3"]).argmax()
