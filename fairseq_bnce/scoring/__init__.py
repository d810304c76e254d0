"""Scoring text with a trained language model, see :class:`Scorer`, or several: :class:`Mixture`.

``language_model`` is the base of all models, ``ngram`` reads models of KenLM's.

``readers`` read words, ``texts`` cut running texts into what a model reads at once, ``incremental``
has hypotheses that grow word by word, and ``normalisation`` makes log-probabilities of raw scores.
``host`` scores single words, and ``eval_lm`` scores for fairseq-eval-lm. ``diagnosis`` measures how
well a model normalises itself. ``reduction`` fits a partition function for models that do not.
"""

from fairseq_bnce import register
from fairseq_bnce.errors import CheckpointError, ScoringError
from fairseq_bnce.scoring.language_model import SentenceScore
from fairseq_bnce.scoring.mixture import Mixture
from fairseq_bnce.scoring.ngram import NGramModel
from fairseq_bnce.scoring.scorer import Scorer

__all__ = ["CheckpointError", "Mixture", "NGramModel", "Scorer", "ScoringError", "SentenceScore"]

register()  # checkpoints name tasks and models of this package
