"""Losses over a large vocabulary as pure functions of tensors: no fairseq, nats out.

``nce`` has all of them; ``shared_scores`` makes the scores of all contexts with the same words and
their gradients chunk by chunk, by torch or by the Triton kernel of ``kernels``; ``words`` finds
the distinct words among ids; ``autograd`` is the base of backward passes written by hand.
"""

from fairseq_bnce.losses.nce import (
    Predictive,
    batch_nce_loss,
    log_partition,
    nce_loss,
    partition_penalty,
    predictive_statistics,
    ranking_nce_loss,
    sampled_softmax_loss,
    shared_nce_loss,
    squashed,
    target_scores,
    unsquashed,
)

__all__ = [
    "Predictive",
    "batch_nce_loss",
    "log_partition",
    "nce_loss",
    "partition_penalty",
    "predictive_statistics",
    "ranking_nce_loss",
    "sampled_softmax_loss",
    "shared_nce_loss",
    "squashed",
    "target_scores",
    "unsquashed",
]
