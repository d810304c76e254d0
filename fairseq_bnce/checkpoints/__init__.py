"""Checkpoints from anywhere: read without running what is in them, and built within bounds.

``reading`` reads a file, ``loading`` makes a model of it; ``configurations``, ``literals`` and
``contents`` check what it holds, ``building`` guards the making, ``dictionaries`` finds the
dict.txt. ``origin`` finds the checkpoint that a training goes on from, and ``restoring`` has
fairseq's own commands load with the same care.
"""

from fairseq_bnce.checkpoints.loading import Trained, load
from fairseq_bnce.checkpoints.reading import read

__all__ = ["Trained", "load", "read"]
