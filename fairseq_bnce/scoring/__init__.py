"""Scoring text with a trained language model: see :class:`Scorer`.

``texts`` cuts texts into what a model reads at once, ``readers`` read them, ``incremental`` goes
on word by word, and ``normalisation`` makes log-probabilities of their scores; ``host`` has scores
of single words, ``eval_lm`` lets fairseq-eval-lm score by it. ``diagnosis`` and ``pictures`` say
how well a model normalises itself, and ``reduction`` fits what does so for models that do not.
"""

from fairseq_bnce.errors import CheckpointError, ScoringError
from fairseq_bnce.registration import register
from fairseq_bnce.scoring.scorer import Scorer, SentenceScore

__all__ = ["CheckpointError", "Scorer", "ScoringError", "SentenceScore"]

register()  # checkpoints name tasks and models of this package
