"""Scoring text with a trained language model: see :class:`Scorer`.

``texts`` cuts texts into what a model reads at once, ``readers`` read them, ``incremental`` goes
on word by word; ``diagnosis`` and ``pictures`` say how well a model normalises itself; ``eval_lm``
is what fairseq-eval-lm scores by.
"""

from fairseq_bnce.errors import CheckpointError, ScoringError
from fairseq_bnce.registration import register
from fairseq_bnce.scoring.scorer import Scorer, SentenceScore

__all__ = ["CheckpointError", "Scorer", "ScoringError", "SentenceScore"]

register()  # checkpoints name tasks and models of this package
