"""A neural model where code expects KenLM: ``from fairseq_bnce.decoding import kenlm``.

``kenlm.Model`` and ``kenlm.State`` have the methods of the Python module of that name. Scores are
log10, as KenLM's are.
"""

import enum
import functools
import math
import os
import sys
from typing import Any, Iterator, NamedTuple, Optional, Tuple, Union

import numpy as np

from fairseq_bnce.decoding.histories import Histories, History
from fairseq_bnce.scoring import Scorer, language_model

Text = Union[str, bytes]
_LOG_10 = math.log(10)


class State:
    """The words that a model has read; empty until a model writes it.

    States with equal words are equal.
    """

    def __init__(self) -> None:
        self.history: Optional[History] = None

    def words(self) -> Tuple[int, ...]:
        """Return the ids of the words."""
        return () if self.history is None else self.history.words()

    def __eq__(self, other: object) -> bool:
        return self.words() == other.words() if isinstance(other, State) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.words())


class FullScoreReturn(NamedTuple):
    """The score of a word.

    Attributes:
        log_prob: log10 of its probability.
        ngram_length: the number of words that the score depends on, itself and ``<s>`` included.
        oov: whether it was scored as ``<unk>``.
    """

    log_prob: float
    ngram_length: int
    oov: bool


class Config:
    """KenLM's options of loading a file; unused."""


# KenLM's values of Config.load_method and Config.arpa_complain.
LoadMethod = enum.IntEnum(
    "LoadMethod", "LAZY POPULATE_OR_LAZY POPULATE_OR_READ READ PARALLEL_READ", start=0
)
ARPALoadComplain = enum.IntEnum("ARPALoadComplain", ["ALL", "EXPENSIVE", "NONE"], start=0)


class KenlmModel:
    """A checkpoint as a ``kenlm.Model``.

    Args:
        path: of the checkpoint; or a :class:`Scorer` or :class:`Mixture`.
        config: KenLM's options of loading a file; unused.
        unk_score_offset: log10, added to the score of words that are scored as ``<unk>``.
        cached, read_ahead: of :class:`Histories`.
        **options: of :meth:`Scorer.from_checkpoint`: data, device, dtype, exact, ...

    Attributes:
        path: of the checkpoint, absolute, bytes; a model's class if a model was given.
        scorer: of the checkpoint, or the model.

    Raises:
        ScoringError: for a model that cannot be used.
    """

    def __init__(
        self,
        path: Union[Text, language_model.LanguageModel],
        config: object = None,
        *,
        unk_score_offset: float = 0.0,
        cached: int = 2048,
        read_ahead: int = 15,
        **options: Any,
    ):
        self._offset = unk_score_offset
        kept = {"unk_score_offset": unk_score_offset, "cached": cached, "read_ahead": read_ahead}
        self._copy = functools.partial(type(self), **{**kept, **options}), (path,)
        if isinstance(path, language_model.LanguageModel):
            self.path, self.scorer = type(path).__name__.encode(), path
        else:
            self.path = os.path.abspath(os.fsencode(path))
            self.scorer = Scorer.from_checkpoint(os.fsdecode(path), **options)
        self.histories = Histories(self.scorer, cached=cached, read_ahead=read_ahead)

    @property
    def order(self) -> int:
        """Return the number of words that a score depends on; huge if unlimited."""
        return self.scorer.order or sys.maxsize

    def score(self, sentence: Text, bos: bool = True, eos: bool = True) -> float:
        """Return log10 of a sentence's probability, with ``</s>`` unless ``eos`` is False.

        ``bos=False`` changes nothing: a neural model always starts at a sentence's beginning.
        """
        return float(sum(score for score, _, _ in self.full_scores(sentence, bos, eos)))

    def perplexity(self, sentence: Text) -> float:
        """Return a sentence's perplexity, ``</s>`` included; infinite if it is too large."""
        log_10 = -self.score(sentence) / (len(_text(sentence).split()) + 1)
        return 10.0**log_10 if log_10 < sys.float_info.max_10_exp else math.inf

    def full_scores(
        self, sentence: Text, bos: bool = True, eos: bool = True
    ) -> Iterator[Tuple[float, int, bool]]:
        """Yield (log10, n-gram length, whether it is out of the vocabulary) of each word."""
        (found,) = self.scorer.score_stream([_text(sentence)], tokenized=True)
        scores = found.log_probs / _LOG_10 + np.where(found.is_oov, self._offset, 0.0)
        end = len(scores) if eos else len(scores) - 1
        for place, (score, is_oov) in enumerate(zip(scores[:end].tolist(), found.is_oov.tolist())):
            yield score, min(place + 2, self.order), is_oov

    def BeginSentenceWrite(self, state: State) -> None:  # noqa: N802 - KenLM's name
        """Set ``state`` to a sentence's beginning."""
        state.history = self.histories.start()

    NullContextWrite = BeginSentenceWrite  # a neural model always starts at a beginning

    def BaseScore(self, in_state: State, word: Text, out_state: State) -> float:  # noqa: N802
        """Return log10 of the word's probability, and set ``out_state`` to the state after it.

        Raises:
            ScoringError: for a state that no model or another model wrote.
        """
        return self.BaseFullScore(in_state, word, out_state).log_prob

    def BaseFullScore(  # noqa: N802 - KenLM's name
        self, in_state: State, word: Text, out_state: State
    ) -> FullScoreReturn:
        """Do the same as :meth:`BaseScore`, and return more about the word."""
        history = self.histories.check(in_state.history)
        ids = self.scorer.ids([_text(word)])
        is_oov = bool(self.scorer.is_oov(ids)[0])
        out_state.history, nats = self.histories.extend(history, ids[0])
        score = nats / _LOG_10 + (self._offset if is_oov else 0.0)
        return FullScoreReturn(score, min(history.length + 2, self.order), is_oov)

    def __contains__(self, word: Text) -> bool:
        return not self.scorer.is_oov(self.scorer.ids([_text(word)]))[0]

    def __repr__(self) -> str:
        return f"<Model from {os.path.basename(os.fsdecode(self.path))}>"

    def __reduce__(self) -> Tuple:
        return self._copy


Model = LanguageModel = KenlmModel  # as KenLM calls it


def _text(text: Text) -> str:
    return text.decode("utf-8") if isinstance(text, bytes) else text
