"""For SpeechBrain's ``RescorerBuilder``, which needs methods and a class name, no base class."""

from typing import Callable, List, Sequence

import torch
from torch import Tensor

from fairseq_bnce.decoding.histories import check_scorer
from fairseq_bnce.scoring.language_model import LanguageModel


class RNNLMRescorer:
    """Scores the best hypotheses of a beam search, as SpeechBrain's class of this name does.

    ``RescorerBuilder(weights={"rnnlm": 0.5}, rescorers=[SpeechbrainRescorer(scorer)])``: the
    builder makes a rescorer's key of its class name, and accepts only keys of its own classes.

    Args:
        scorer: a :class:`Scorer` of a self-normalised model, or an exact one; or a
            :class:`Mixture`.
        normalize_text: returns the model's words of a hypothesis, separated by spaces.

    Raises:
        ScoringError: for a model that cannot be used.
    """

    def __init__(self, scorer: LanguageModel, normalize_text: Callable[[str], str] = str):
        check_scorer(scorer)
        self.scorer, self.normalize_text = scorer, normalize_text

    def preprocess_func(self, topk_hyps: Sequence[Sequence[str]]) -> List[str]:
        """Return all hypotheses in one list, as the model reads them."""
        return [self.normalize_text(hypothesis) for some in topk_hyps for hypothesis in some]

    def rescore_hyps(self, topk_hyps: Sequence[Sequence[str]]) -> Tensor:
        """Return log-probabilities (B * K,) of B lists of K hypotheses, in nats."""
        found = self.scorer.score(self.preprocess_func(topk_hyps), tokenized=True)
        return torch.from_numpy(found)

    def to_device(self, device: object = None) -> None:
        """Do nothing: a scorer stays on its device."""


SpeechbrainRescorer = RNNLMRescorer
