"""A partition function over K rows instead of V, for models that do not normalise themselves.

log Z_c = log sum_w exp m(w, c) depends only on the features. A function of the same form with few
rows, fitted to log Z_c on contexts of a text, is close to it and takes K / V of the work.
"""

from typing import Callable, Iterable, List, NamedTuple, Tuple

import torch
from torch import Tensor

from fairseq_bnce import losses
from fairseq_bnce.errors import require
from fairseq_bnce.output_layer.layer import OutputLayer

MOST_CONTEXTS = 200_000  # contexts kept of a text
CONTEXTS_A_ROW = 10  # at least
_MEASURED = 10  # the error is measured on a tenth of the contexts, which are not fitted to
_CONTEXTS_LOOKED_AT = 4096  # contexts whose likely words are looked up
_CONTEXTS_A_WORD = 256  # contexts for the line through a word's squashed scores
_MOST_WORDS = 2**16  # only the likeliest words' rows are clustered
_ROUNDS = 8  # rounds of k-means: one round doubles sigma on 20,000 words in bands
_MOST_SCORES = 2**24  # held at once: 64 MiB, at any vocabulary size
_UPDATES = 4000  # at least
_PASSES = 30  # through the contexts, at least
_BATCH = 512
_RATE = 1e-2  # Adam's first rate, which falls to 0


class ReducedPartition(NamedTuple):
    """An approximation of log Z_c: log sum_k exp(h . weight_k + bias_k) after features h.

    Attributes:
        weight: (K, D), float32.
        bias: (K,), float32.
    """

    weight: Tensor
    bias: Tensor

    def log_partition(self, features: Tensor) -> Tensor:
        """Return (N,) float32 nats, after features (N, D)."""
        return losses.log_partition(features.float(), *self)


class Contexts:
    """Features and log Z_c of the first contexts that are scored, on the CPU.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST_CONTEXTS):
        self.most = self._room = most
        self._parts: List[Tensor] = []  # (N, D + 1), features and log Z_c

    def add(self, features: Tensor, log_z: Tensor) -> None:
        """Add features (N, D) and log Z_c (N,) after them."""
        part = torch.column_stack([features.float(), log_z.float()])[: self._room].cpu()
        self._parts.append(part)
        self._room -= len(part)

    @property
    def is_full(self) -> bool:
        """Return whether no more contexts are kept."""
        return self._room == 0

    def parts(self) -> List[Tuple[Tensor, Tensor]]:
        """Return (features, log Z_c) to fit to, and those of a random tenth to measure on."""
        whole = torch.cat(self._parts)
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(1))
        measured = len(whole) // _MEASURED
        parts = whole[order].split([len(whole) - measured, measured])
        return [(part[:, :-1], part[:, -1]) for part in parts]


@torch.no_grad()
def fit(features: Tensor, log_z: Tensor, layer: OutputLayer, rows: int) -> ReducedPartition:
    """Fit a reduced partition function, by least squares of log Z_c.

    The fit starts from the likeliest words, and from clusters of the other words.

    Args:
        features: (N, D), of contexts as they come in text.
        log_z: (N,), exact, nats.
        layer: the output layer.
        rows: K.

    Raises:
        ValueError: for more rows than words, or too few contexts for them.
    """
    require("rows", f"1 to {len(layer):,}", rows, 1 <= rows <= len(layer))
    needed = CONTEXTS_A_ROW * rows
    require("contexts", f"at least {needed:,} for {rows:,} rows", len(log_z), len(log_z) >= needed)
    generator = torch.Generator().manual_seed(1)
    start = _start(features, layer, rows, generator)

    def loss(weight: Tensor, bias: Tensor) -> Tensor:
        some = torch.randint(len(log_z), (_BATCH,), generator=generator)
        scores = torch.addmm(bias, features[some], weight.t())
        return (scores.logsumexp(1) - log_z[some]).square().mean()

    updates = max(_UPDATES, _PASSES * len(log_z) // _BATCH)
    return ReducedPartition(*minimised(loss, start, updates, _RATE))


def _start(
    features: Tensor, layer: OutputLayer, rows: int, generator: torch.Generator
) -> ReducedPartition:
    some = features[torch.randperm(len(features), generator=generator)[:_CONTEXTS_LOOKED_AT]]
    share, words = _word_shares(layer, some).sort(descending=True)
    share, words = share[:_MOST_WORDS], words[:_MOST_WORDS]
    ids, order = words.sort()  # bands need ascending ids
    weight, bias = (
        torch.zeros(len(ids)) if part is None else part.float().cpu()[order.argsort()]
        for part in layer.rows(ids.to(layer.device))[:2]
    )
    mean = features.mean(0, keepdim=True)
    if layer.kind.is_squashed:  # a line through each word's squashed scores
        few = some[: max(1, min(_CONTEXTS_A_WORD, _MOST_SCORES // len(weight)))]
        scores = losses.squashed(torch.addmm(bias[:, None], weight, few.t()))
        weight = weight * losses.squashing.squashing_slope(scores).mean(1, keepdim=True)
        bias = scores.mean(1) - weight @ few.mean(0)
    likely, others = slice(rows // 2), slice(rows // 2, None)
    cluster = _clusters(weight[others], share[others], rows - rows // 2, generator)
    means, biases = _merged(weight[others], bias[others], cluster, mean[0])
    start = ReducedPartition(torch.cat([weight[likely], means]), torch.cat([bias[likely], biases]))
    exact = layer.log_partition(mean.to(layer.device)).cpu()
    # The difference is what words beyond the likeliest add.
    return start._replace(bias=start.bias + exact - start.log_partition(mean))


def _word_shares(layer: OutputLayer, features: Tensor) -> Tensor:
    """Return the sum (V,) of each word's probabilities after features (N, D); band by band."""
    share = torch.zeros(len(layer), device=layer.device)
    for some in features.split(max(1, min(_BATCH, _MOST_SCORES // len(layer)))):
        share += layer.kind.scores(some.to(layer.device)).softmax(1).sum(0)
    return share.cpu()


def _clusters(weight: Tensor, share: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return each word's cluster (W,), by k-means of rows (W, D); a word counts its share (W,)."""
    share = share.clamp(min=1e-9)
    # Not scikit-learn's k-means: these few lines run on the model's device, and need no package.
    centres = weight[torch.multinomial(share, count, generator=generator)]
    for _ in range(_ROUNDS):
        squares = centres.square().sum(1)
        parts = weight.split(_BATCH)
        nearest = torch.cat([(part @ centres.t() * 2 - squares).argmax(1) for part in parts])
        total, sums = _sums(weight, share, nearest, count)
        centres = torch.where(total[:, None] > 0, sums / total[:, None].clamp(min=1e-12), centres)
    return nearest


def _sums(weight: Tensor, share: Tensor, cluster: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    """Return of each cluster the sums of shares (K,) and of rows times their shares (K, D)."""
    total = share.new_zeros(count).index_add_(0, cluster, share)
    sums = weight.new_zeros(count, weight.size(1)).index_add_(0, cluster, weight * share[:, None])
    return total, sums


def _merged(weight: Tensor, bias: Tensor, cluster: Tensor, mean: Tensor) -> Tuple[Tensor, Tensor]:
    """Return a row for each cluster: to first order around one feature, the sum of its words."""
    scores = weight @ mean + bias
    _, cluster = cluster.unique(return_inverse=True)
    top = scores.max()
    total, sums = _sums(weight, (scores - top).exp(), cluster, int(cluster.max()) + 1)
    means = sums / total[:, None]
    return means, total.log() + top - means @ mean


def minimised(loss: Callable, start: Iterable[Tensor], updates: int, rate: float) -> List[Tensor]:
    """Return the arguments of ``loss`` after updates of Adam, whose rate falls to 0."""
    found = [part.clone().requires_grad_() for part in start]
    optimizer = torch.optim.Adam(found, lr=rate)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / updates)
    with torch.enable_grad():
        for _ in range(updates):
            optimizer.zero_grad()
            loss(*found).backward()
            optimizer.step()
            rates.step()
    return [part.detach() for part in found]
