"""Checkpoints: read them without running anything in them, and build their models.

``reading`` reads a file and checks what it holds, by the list of ``allowed`` classes.
``dictionaries`` finds the dict.txt, and ``loading`` builds a model, for which fairseq may evaluate
``literals`` only. ``origin`` finds the checkpoint that a training continues from.
"""

from fairseq_bnce.checkpoints.loading import Trained, load
from fairseq_bnce.checkpoints.reading import read

__all__ = ["Trained", "load", "read"]
