"""Scoring text with a trained language model: see :class:`Scorer`."""

from fairseq_bnce import register
from fairseq_bnce.scoring.errors import CheckpointError, ScoringError
from fairseq_bnce.scoring.scorer import Scorer, SentenceScore

__all__ = ["CheckpointError", "Scorer", "ScoringError", "SentenceScore"]

register()  # checkpoints name tasks and models of this package
