"""The output projection of any supported decoder, and a batch's way from it to a loss.

``output_layer`` takes a decoder apart: features in the place of scores, rows of the projection;
``batch`` holds a batch's targets and the rows of the words that it touches; ``squashing`` makes
squashed scores a property of a decoder.
"""

from fairseq_bnce.projection.batch import BatchVocabulary, TokenBatch, target_scores
from fairseq_bnce.projection.output_layer import OutputLayer

__all__ = [
    "BatchVocabulary",
    "OutputLayer",
    "TokenBatch",
    "target_scores",
]
