"""Beam searches of two libraries, from emissions to words, with a language model."""

import functools
from pathlib import Path
from typing import Any, Callable, List, Mapping, NamedTuple, Sequence

import numpy as np
from decoders import SILENCE

from . import acoustics

BEAM = 50  # hypotheses, in both libraries


class Search(NamedTuple):
    """A decoder with its language model.

    Attributes:
        decode: returns the words of emissions (T, tokens).
        weigh: sets the weight of the language model's nats, and the score of each word.
    """

    decode: Callable[[np.ndarray], str]
    weigh: Callable[[float, float], Any] = lambda lm_weight, word_score: None


def flashlight(model: str, checkpoint: Path, ngrams: Path, counts: Mapping[str, int]) -> Search:
    """Return a search by ``LexiconDecoder``, which knows the counted words only."""
    from decoders import search

    words = list(counts)
    system = search.make_system(model, checkpoint, words, ngrams)
    spellings = [acoustics.spell(word) for word in words]
    trie = search.smeared_trie(spellings, [*counts.values()], len(acoustics.TOKENS), system)
    make = functools.partial(search.decoder, trie, system, BEAM)
    decoders: List[Any] = [make()]

    def weigh(lm_weight: float, word_score: float) -> None:
        decoders[:] = [make(lm_weight, word_score)]

    def decode(emissions: np.ndarray) -> str:
        found = decoders[0].decode(emissions.ctypes.data, *emissions.shape)
        return " ".join(words[word] for word in found[0].words if word >= 0)

    return Search(decode, weigh)


def pyctcdecode(model: str, checkpoint: Path, ngrams: Path, counts: Mapping[str, int]) -> Search:
    """Return a search by ``BeamSearchDecoderCTC``: any letters make a word."""
    from pyctcdecode import BeamSearchDecoderCTC
    from pyctcdecode.alphabet import Alphabet

    labels = ["", " ", *acoustics.TOKENS[SILENCE + 1 :]]
    lm = _language_model(model, checkpoint, ngrams, list(counts))
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), lm)

    def weigh(lm_weight: float, word_score: float) -> None:
        if lm is not None:
            lm.reset_params(alpha=lm_weight, beta=word_score)

    def decode(emissions: np.ndarray) -> str:
        return " ".join(decoder.decode(emissions, beam_width=BEAM).split())

    return Search(decode, weigh)


def _language_model(model: str, checkpoint: Path, ngrams: Path, words: Sequence[str]) -> Any:
    """Return pyctcdecode's language model: ours, or n-grams by KenLM; None for "none"."""
    if model == "none":
        return None
    if model != "kenlm":
        from decoders.search import make_scorer

        from fairseq_bnce.decoding import PyctcdecodeLM

        return PyctcdecodeLM(make_scorer(model, checkpoint, ngrams), words)
    import kenlm
    from pyctcdecode.language_model import LanguageModel

    class Ngrams(LanguageModel):
        """Scores nothing after a last space; the library's own class scores an unknown word."""

        def score(self, prev_state: Any, word: str, is_last_word: bool = False) -> Any:
            if word or not is_last_word:
                return super().score(prev_state, word, is_last_word)
            end = self.alpha * self._get_raw_end_score(prev_state) * np.log(10)
            return end, prev_state

    return Ngrams(kenlm.Model(str(ngrams)), words)
