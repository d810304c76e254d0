"""A partition function over K rows in the place of V, for models that do not normalise themselves.

log Z_c = log sum_w exp m(w, c) is a function of the features alone. One of the same form with few
rows, fitted to it on contexts of a text, is close: a score is normalised for K / V of the work.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_bnce import losses
from fairseq_bnce.checkpoints.contents import REDUCED_PARTITION
from fairseq_bnce.errors import CheckpointError, require
from fairseq_bnce.output_layer.layer import OutputLayer

MOST_CONTEXTS = 100_000  # of a text
_CONTEXTS_A_ROW = 10  # at least
_MEASURED = 10  # a tenth of the contexts is measured on, and not fitted to
MOST_ROWS = (MOST_CONTEXTS - MOST_CONTEXTS // _MEASURED) // _CONTEXTS_A_ROW
_CONTEXTS_LOOKED_AT = 4096  # to see which words are likely
_ROUNDS = 8  # of k-means
_MOST_SCORES = 2**24  # at once: 64 MiB, at any vocabulary size
_UPDATES = 2000
_BATCH = 512
_RATE = 3e-3  # of Adam, down to 0


class ReducedPartition(NamedTuple):
    """log Z_c, about: log sum_k exp(h . weight_k + bias_k) after features h.

    Attributes:
        weight: (K, D), float32.
        bias: (K,), float32.
    """

    weight: Tensor
    bias: Tensor

    def log_partition(self, features: Tensor) -> Tensor:
        """(N,) float32 nats, of features (N, D)."""
        return losses.log_partition(features.float(), *self)

    def state(self) -> Dict[str, Any]:
        """What a checkpoint carries of it, in the task's state."""
        return {REDUCED_PARTITION: self._asdict()}


def is_carried(state: Mapping[str, Any]) -> bool:
    """Whether a task's state has one."""
    return REDUCED_PARTITION in state


def carried(state: Mapping[str, Any], layer: OutputLayer) -> Optional[ReducedPartition]:
    """That of a task's state, if it has one, on the device of the output projection.

    Raises:
        CheckpointError: for one of another model.
    """
    if not is_carried(state):
        return None
    weight, bias = (
        state[REDUCED_PARTITION][name].to(layer.device, torch.float32, copy=True)
        for name in ("weight", "bias")  # copies, since those of a file are mapped
    )
    if weight.size(1) != layer.size:
        raise CheckpointError(
            f"task_state.{REDUCED_PARTITION}: required rows of {layer.size} numbers, as the "
            f"model's features have, got {weight.size(1)}"
        )
    return ReducedPartition(weight, bias)


def without(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state of a model that was trained on, which it no longer fits."""
    return {name: value for name, value in state.items() if name != REDUCED_PARTITION}


class Contexts:
    """Features and log Z_c of the first contexts that are scored, on the CPU.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST_CONTEXTS):
        self.most = most
        self._features: List[Tensor] = []
        self._log_z: List[Tensor] = []
        self.count = 0

    def add(self, features: Tensor, log_z: Tensor) -> None:
        """Add features (N, D) and what log Z_c is after them (N,)."""
        room = self.most - self.count
        if room > 0:
            self._features.append(features[:room].float().cpu())
            self._log_z.append(log_z[:room].float().cpu())
            self.count += len(self._log_z[-1])

    @property
    def is_full(self) -> bool:
        """Whether no more are kept."""
        return self.count >= self.most

    def parts(self) -> Tuple[Tuple[Tensor, Tensor], Tuple[Tensor, Tensor]]:
        """(features, log Z_c) to fit to, and those of a tenth, drawn at random, to measure on."""
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(1))
        features, log_z = torch.cat(self._features)[order], torch.cat(self._log_z)[order]
        end = self.count - self.count // _MEASURED
        return (features[:end], log_z[:end]), (features[end:], log_z[end:])


def default_rows(words: int) -> int:
    """A fiftieth of the vocabulary, within bounds."""
    return min(words, max(16, min(1000, words // 50)))


def fit(
    features: Tensor,
    log_z: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    rows: int,
    *,
    seed: int = 1,
) -> ReducedPartition:
    """Fit a reduced partition function, by least squares of log Z_c.

    It starts from the words that are likeliest over the contexts, and from clusters of the others.

    Args:
        features: (N, D), of contexts as they come in text.
        log_z: (N,), exact, nats.
        weight, bias: (V, D) and (V,) or None, of the output projection.
        rows: K.
        seed: of all that is drawn.

    Raises:
        ValueError: for more rows than words, or too few contexts for them.
    """
    require("rows", f"1 to {len(weight):,}", rows, 1 <= rows <= len(weight))
    needed = _CONTEXTS_A_ROW * rows
    require("contexts", f"at least {needed:,} for {rows:,} rows", len(log_z), len(log_z) >= needed)
    generator = torch.Generator().manual_seed(seed)
    weight = weight.float().cpu()
    bias = weight.new_zeros(len(weight)) if bias is None else bias.float().cpu()
    start = _start(features, weight, bias, rows, generator)
    return _fitted(start, features, log_z, generator)


@torch.no_grad()
def _start(
    features: Tensor, weight: Tensor, bias: Tensor, rows: int, generator: torch.Generator
) -> ReducedPartition:
    looked_at = features[torch.randperm(len(features), generator=generator)[:_CONTEXTS_LOOKED_AT]]
    share = weight.new_zeros(len(weight))
    for some in looked_at.split(min(_BATCH, _at_once(len(weight)))):
        share += torch.addmm(bias, some, weight.t()).softmax(1).sum(0)
    words = share.argsort(descending=True)
    likely, others = words[: rows // 2], words[rows // 2 :]
    cluster = _clusters(weight, others, share[others], rows - rows // 2, generator)
    means, mean_biases = _merged(weight, bias, others, cluster, features.mean(0))
    return ReducedPartition(
        torch.cat([weight[likely], means]), torch.cat([bias[likely], mean_biases])
    )


def _clusters(
    weight: Tensor, words: Tensor, share: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """(n,) numbers of the clusters of words (n,), by k-means of their rows (V, D).

    ``share`` (n,) is what each counts.
    """
    share = share.clamp(min=1e-9)
    centres = weight[words[torch.multinomial(share, count, generator=generator)]]
    for _ in range(_ROUNDS):
        nearest = _nearest(weight, words, centres)
        total, sums = _sums(weight, words, share, nearest, count)
        centres = torch.where(total[:, None] > 0, sums / total[:, None].clamp(min=1e-12), centres)
    return nearest


def _nearest(weight: Tensor, words: Tensor, centres: Tensor) -> Tensor:
    """(n,) numbers of the centres (K, D) that the words' rows are nearest to."""
    squares = centres.square().sum(1)
    parts = words.split(_at_once(max(centres.shape)))
    return torch.cat([(weight[some] @ centres.t() * 2 - squares).argmax(1) for some in parts])


def _sums(
    weight: Tensor, words: Tensor, share: Tensor, cluster: Tensor, count: int
) -> Tuple[Tensor, Tensor]:
    """Of each cluster, the words' shares (K,) and rows, each times its share (K, D)."""
    total = share.new_zeros(count).index_add_(0, cluster, share)
    sums = weight.new_zeros(count, weight.size(1))
    size = _at_once(weight.size(1))
    for some, its, shares in zip(words.split(size), cluster.split(size), share.split(size)):
        sums.index_add_(0, its, weight[some] * shares[:, None])
    return total, sums


def _merged(
    weight: Tensor, bias: Tensor, words: Tensor, cluster: Tensor, feature: Tensor
) -> Tuple[Tensor, Tensor]:
    """A row for each cluster that has words: to first order around one feature, their sum."""
    scores = (weight @ feature + bias)[words]
    top = scores.max()
    _, cluster = cluster.unique(return_inverse=True)
    total, sums = _sums(weight, words, (scores - top).exp(), cluster, int(cluster.max()) + 1)
    means = sums / total[:, None]
    return means, total.log() + top - means @ feature


def _at_once(width: int) -> int:
    """How many rows of a matrix of this width are in memory at a time."""
    return max(1, _MOST_SCORES // width)


def _fitted(
    start: ReducedPartition, features: Tensor, log_z: Tensor, generator: torch.Generator
) -> ReducedPartition:
    found = ReducedPartition(*(part.clone().requires_grad_() for part in start))
    optimizer = torch.optim.Adam(found, lr=_RATE)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / _UPDATES)
    with torch.enable_grad():
        for _ in range(_UPDATES):
            some = torch.randint(len(log_z), (_BATCH,), generator=generator)
            scores = torch.addmm(found.bias, features[some], found.weight.t())
            loss = (scores.logsumexp(1) - log_z[some]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
    return ReducedPartition(*(part.detach() for part in found))
