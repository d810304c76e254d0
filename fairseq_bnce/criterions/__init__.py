"""The criteria, registered with fairseq on import: ``registered`` holds them and their flags.

``base`` is what the criteria share: one batch, from the model to what is logged. ``options`` holds
the flags that several criteria take, and ``flags`` reads and checks the values. ``noise_source``
draws noise, ``log_z`` chooses where log Z starts, and ``metrics`` logs.
"""

from fairseq_bnce.criterions import registered

__all__ = ["registered"]
