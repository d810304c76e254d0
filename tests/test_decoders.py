"""Real beam searches on made emissions, of which the language model decides."""

import itertools

import numpy as np
import pytest
from flashlight.lib.text.decoder import (
    CriterionType,
    LexiconDecoder,
    LexiconDecoderOptions,
    SmearingMode,
    Trie,
)
from pyctcdecode import build_ctcdecoder
from pyctcdecode.alphabet import Alphabet
from pyctcdecode.decoder import BeamSearchDecoderCTC

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


def lexicon_decoder(lm, smearing=SmearingMode.MAX, more=()):
    """Of WORDS, which are spelled as they are written, and of more words by their spellings."""
    trie = Trie(len(TOKENS), TOKENS.index("|"))
    spellings = [*(f"{word}|" for word in WORDS), *more]
    for index, (spelling, score) in enumerate(zip(spellings, lm.unigram_scores().tolist())):
        if index:
            trie.insert([TOKENS.index(c) for c in spelling], index, score)
    trie.smear(smearing)
    options = LexiconDecoderOptions(
        200, len(TOKENS), 50.0, 1.0, 0.0, -np.inf, 0.0, False, CriterionType.CTC
    )
    return LexiconDecoder(options, trie, lm, TOKENS.index("|"), 0, 0, [], False)


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
    decoder = lexicon_decoder(lm, SmearingMode.LOGADD, more=[f"{sentence.split()[0]}|", "w1"])
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
