"""The criteria, registered with fairseq on import: ``bnce``, ``sampled`` and ``regularized``.

``base`` is what the criteria share: one batch, from the model to what is logged. ``flags`` has the
flags that several criteria take, and checks the values. ``noise_source`` draws noise, ``log_z``
chooses where log Z starts, and ``metrics`` logs.
"""

from fairseq_bnce.criterions import bnce, regularized, sampled

__all__ = ["bnce", "regularized", "sampled"]
