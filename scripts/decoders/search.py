"""flashlight's beam search with words, and language models for it: ours, fairseq's way, KenLM's.

fairseq's own is in examples/speech_recognition. ``PrefixLM`` follows its description: it keeps the
words so far of every state. When a state is first asked for a word, it reads all words again, takes
the softmax over the vocabulary, and keeps the log-probabilities.
"""

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from flashlight.lib.text import decoder as flashlight
from flashlight.lib.text.decoder import LMState as State

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.decoding import FlashlightLM
from fairseq_bnce.scoring import Mixture, NGramModel
from fairseq_bnce.scoring.language_model import LanguageModel

from . import BLANK, SILENCE

TOKENS = 10  # that each hypothesis goes on with
THRESHOLD = 20.0  # nats below the best


class System(NamedTuple):
    """A language model for the decoder.

    Attributes:
        lm: flashlight's.
        end_utterance: to be called after each.
        lm_weight: what makes its scores nats.
    """

    lm: flashlight.LM
    end_utterance: Callable[[], None] = lambda: None
    lm_weight: float = 1.0


class PrefixLM(flashlight.LM):
    """Reads all words of a state again, and keeps the softmax's V log-probabilities."""

    def __init__(self, model: Any, ids: Sequence[int], eos: int):
        super().__init__()
        self.model, self.ids = model.eval(), [*ids, eos]
        self.forget()

    def forget(self) -> None:
        """Forget all states."""
        self.prefixes: Dict[Any, List[int]] = {}
        self.log_probs: Dict[Any, np.ndarray] = {}

    def start(self, start_with_nothing: bool) -> flashlight.LMState:
        state = flashlight.LMState()
        self.prefixes[state] = self.ids[-1:]
        return state

    def score(self, state: State, usr_token_idx: int) -> Tuple[State, float]:
        if state not in self.log_probs:
            self._read(state)
        after, word = state.child(usr_token_idx), self.ids[usr_token_idx]
        if after not in self.prefixes:
            self.prefixes[after] = [*self.prefixes[state], word]
        return after, float(self.log_probs[state][word])

    def finish(self, state: State) -> Tuple[State, float]:
        return self.score(state, -1)

    @torch.no_grad()
    def _read(self, state: flashlight.LMState) -> None:
        output = self.model(torch.tensor([self.prefixes[state]]))
        log_probs = self.model.get_normalized_probs(output, log_probs=True, sample=None)
        self.log_probs[state] = log_probs[0, -1].numpy().copy()


def make_scorer(name: str, checkpoint: Path, ngrams: Path) -> LanguageModel:
    """Return the scorer ``ours`` or ``ours exact``, or ``mixed``: with n-grams, equal weights."""
    scorer = Scorer.from_checkpoint(str(checkpoint), exact=name == "ours exact")
    return Mixture([scorer, NGramModel(str(ngrams))]) if name == "mixed" else scorer


def make_system(name: str, checkpoint: Path, words: Sequence[str], ngrams: Path) -> System:
    """Return a system: ``prefix``, ``kenlm``, ``none``, or one with a scorer of ours."""
    if name == "none":
        return System(flashlight.ZeroLM())
    if name == "kenlm":
        from flashlight.lib.text.decoder.kenlm import KenLM
        from flashlight.lib.text.dictionary import Dictionary

        lm = KenLM(str(ngrams), Dictionary(list(words)))
        return System(lm, lm_weight=float(np.log(10)))
    if name == "prefix":
        trained = checkpoints.load(str(checkpoint), None)
        ids = [trained.source.index(word) for word in words]
        prefix = PrefixLM(trained.model, ids, trained.source.eos())
        return System(prefix, prefix.forget)
    return System(FlashlightLM(make_scorer(name, checkpoint, ngrams), words))


def smeared_trie(
    spellings: Sequence[List[int]], counts: Sequence[float], tokens: int, system: System
) -> flashlight.Trie:
    """Return a trie of words, with the unigram distribution as look-ahead, for any system.

    Args:
        spellings: token ids of the words.
        counts: of each word; each is taken for one more.
        tokens: how many there are.
    """
    has_lm = not isinstance(system.lm, flashlight.ZeroLM)
    more = np.array(counts) + 1
    look_ahead = np.log(more / more.sum()) if has_lm else np.zeros(len(counts))
    trie = flashlight.Trie(tokens, SILENCE)
    for index, (spelling, score) in enumerate(zip(spellings, look_ahead / system.lm_weight)):
        trie.insert(spelling, index, score)
    trie.smear(flashlight.SmearingMode.MAX)
    return trie


def decoder(
    trie: Any, system: System, beam: int, lm_weight: float = 1.0, word_score: float = 0.0
) -> flashlight.LexiconDecoder:
    """Return a decoder that knows no words beside the trie's.

    Args:
        beam: hypotheses.
        lm_weight: of the system's log-probabilities, nats.
        word_score: added for every word.
    """
    options = flashlight.LexiconDecoderOptions(
        beam_size=beam,
        beam_size_token=TOKENS,
        beam_threshold=THRESHOLD,
        lm_weight=lm_weight * system.lm_weight,
        word_score=word_score,
        unk_score=-float("inf"),
        sil_score=0.0,
        log_add=False,
        criterion_type=flashlight.CriterionType.CTC,
    )
    return flashlight.LexiconDecoder(options, trie, system.lm, SILENCE, BLANK, -1, [], False)
