"""The criteria, registered on import; each file holds a criterion and its flags.

``base`` is what the criteria share: one batch, from the model to what is logged. ``options`` holds
the flags that several criteria take, and ``flags`` reads and checks the values. ``noise_source``
draws noise, ``log_z`` chooses where log Z starts, and ``metrics`` logs.
"""

from fairseq_bnce.criterions import batch_nce, nce_regularized, sampled_noise, self_norm_softmax

__all__ = ["batch_nce", "sampled_noise", "nce_regularized", "self_norm_softmax"]
