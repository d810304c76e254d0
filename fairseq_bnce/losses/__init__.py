"""Noise-contrastive and sampled losses over a large vocabulary, as pure functions of torch alone.

Tensors in, nats out. ``nce``, ``bce`` and ``ranking`` hold the losses, ``partition`` the exact
partition function. ``words`` finds the words that a loss reads, and ``shared_scores`` makes their
scores and gradients in chunks.

Every docstring uses this notation:

- ``features`` (N, D): h_i, the model's state before the output projection;
- ``target`` (N,) int64: w_i, the word that follows context i;
- ``weight`` (V, D), ``bias`` (V,) or None: the output projection;
- ``log_q`` (V,): log-probabilities of the noise distribution, natural logarithm;
- m(v, i) = h_i . W_v + b_v: the raw score;
- D(v, i) = m(v, i) - log_z - log(K q(v)): the log-odds that v is data and not noise;
- ``log_z``: the constant to which the model normalises itself, nats. The partition function is
  Z_c = sum_v exp(m(v, c)).

``reduction`` and ``ignore_index`` are those of ``torch.nn.functional.cross_entropy``. "mean" is
over the targets that are not ignored; if all are, it is nan, with gradients of 0. With "none",
ignored targets have a loss of 0. The default reduction differs: it is "sum".

Scores and their gradients are computed in float32 or better whatever the inputs' dtype, also under
autocast. On a GPU, halves are multiplied as halves, with float32 sums; the gradients of scores are
rounded to halves before these products. The functions are differentiable once, by ``backward()``
or ``torch.autograd.grad``. A backward pass with ``create_graph=True`` raises RuntimeError, and so
do the transforms of ``torch.func`` (``grad``, ``vmap``). Constants such as ``log_q`` must not
require a gradient. A GPU's host waits once a call to find the ignored targets, and once to check
the values of ids and ``log_q``.

A loss reads no rows but those of its words. For row-sparse gradients, pass these rows alone, with
ids that count them.
"""

from fairseq_bnce.losses.bce import sampled_bce_loss
from fairseq_bnce.losses.nce import batch_nce_loss, nce_loss, shared_nce_loss
from fairseq_bnce.losses.partition import (
    Predictive,
    log_partition,
    partition_penalty,
    predictive_statistics,
)
from fairseq_bnce.losses.ranking import ranking_nce_loss, sampled_softmax_loss
from fairseq_bnce.losses.squashing import squashed, unsquashed
from fairseq_bnce.losses.words import target_scores

__all__ = [
    "Predictive",
    "batch_nce_loss",
    "log_partition",
    "nce_loss",
    "partition_penalty",
    "predictive_statistics",
    "ranking_nce_loss",
    "sampled_bce_loss",
    "sampled_softmax_loss",
    "shared_nce_loss",
    "squashed",
    "target_scores",
    "unsquashed",
]
