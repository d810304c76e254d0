"""The output layer in bands: an adaptive softmax's parameters, read as one score a word.

Words are sorted by frequency and cut into bands. A word of band 0 has a row E0_v of D numbers, a
word of band k a row E_k,v of d_k numbers, with a projection P_k (d_k, D) and a row class_k (D):

    band 0:  m(v, c) = h . E0_v + b_v
    band k:  m(v, c) = h . class_k + (P_k h) . E_k,v + b_v

Unlike the adaptive softmax, head and tails have no normalisers of their own: the whole score is
normalised, or normalises itself. Losses get the rows of a batch's words expanded to D numbers,
class_k + P_k^T E_k,v. The partition function goes band by band: sum of V_k d_k instead of V D.

The bias b (V,) is a parameter that fairseq's own class lacks. fairseq without this plugin would
score with an adaptive softmax; instead, it refuses the checkpoint: Unexpected key(s) in state_dict.
"""

from typing import Any, Iterator, List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from fairseq.modules.adaptive_softmax import AdaptiveSoftmax, TiedHeadModule, TiedLinear
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.losses.words import Words, at_least_float32, mm_dtype
from fairseq_bnce.optim.row_sparse import gather
from fairseq_bnce.output_layer.rows import Kind, Matrix, Table


class _Band(NamedTuple):
    """Words of one size.

    Attributes:
        first, end: ids of its first word, and of the word after its last one.
        table: a row for each of its words, and maybe further rows.
        projection: (d, D), or None for rows of full size.
        class_row: class_k (D,), or None for band 0.
    """

    first: int
    end: int
    table: nn.Parameter
    projection: Optional[Tensor]
    class_row: Optional[Tensor]


class _Part(NamedTuple):
    """The terms of a band's scores after N contexts: inputs . weight + bias + offset.

    Attributes:
        inputs: (N, d).
        weight, bias: (V_k, d), and (V_k,) or None.
        offset: (N,).
    """

    inputs: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    offset: Tensor


class InBands(Kind):
    """Rows and scores from an adaptive softmax's parameters, with or without normalisers."""

    cutoff: List[int]
    head: Any
    tail: Any

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """Return the (V,) bias parameter; None for an adaptive softmax."""
        return getattr(self, "output_bias", None)

    def full(self) -> Matrix:
        """Return all rows, (V, D) and (V,), expanded: for tests and for small vocabularies."""
        ids = torch.arange(self.vocab_size, device=self._bands()[0].table.device)
        weight, bias, _ = self.rows(ids)
        return weight, bias

    def rows(self, ids: Tensor) -> Words:
        """Return the rows of the distinct words ``ids`` (U,), in ascending order, expanded.

        A GPU makes the host wait once, for the number of words in each band.
        """
        ends = torch.tensor(self.cutoff[:-1], device=ids.device)
        places = [0, *torch.searchsorted(ids, ends).tolist(), len(ids)]
        expanded = []
        with _without_autocast(ids):
            # Bands without a word, too: DDP waits for a gradient of every parameter.
            for start, end, band in zip(places, places[1:], self._bands()):
                rows = gather(band.table, ids[start:end] - band.first)
                if band.projection is not None:
                    row = rows.new_zeros(1) if band.class_row is None else band.class_row
                    rows = torch.addmm(row, rows, band.projection)
                expanded.append(rows)
            weight = torch.cat(expanded)
        return Words(weight, None if self.bias is None else gather(self.bias, ids))

    def word_parameters(self) -> List[nn.Parameter]:
        """Return the parameters that have a row, or a number, for each word."""
        tables = [band.table for band in self._bands()]
        return tables if self.bias is None else [*tables, self.bias]

    def scores(self, features: Tensor) -> Tensor:
        """Compute m(v, c) (N, V) of all words after features (N, D), in float32 or better."""
        with _without_autocast(features):
            parts = [
                F.linear(p.inputs, p.weight.to(p.inputs)) + p.offset[:, None]
                for p in self._parts(features.to(at_least_float32(features)))
            ]
            scores = torch.cat(parts, dim=1)
            return self.squashed(scores if self.bias is None else scores + self.bias)

    def log_partition(self, features: Tensor) -> Tensor:
        """Compute log Z_c (N,) after features (N, D); no row is expanded."""
        with _without_autocast(features):
            of_bands = [
                losses.log_partition(*part[:3], squash=self.is_squashed) + part.offset
                for part in self._parts(features, self.is_squashed)
            ]
            return torch.stack(of_bands).logsumexp(dim=0)

    @torch.no_grad()
    def predictive_statistics(self, features: Tensor) -> losses.Predictive:
        """Compute statistics of p(. | c) after features (N, D); no row is expanded."""
        squash = self.is_squashed
        found = []
        for band, part in zip(self._bands(), self._parts(features, squash)):
            log_z, entropy, best, score = losses.predictive_statistics(*part[:3], squash=squash)
            found.append((log_z + part.offset, entropy, best + band.first, score + part.offset))
        log_z, entropy, best, score = map(torch.stack, zip(*found))
        best_score, place = score.max(dim=0)
        total = log_z.logsumexp(dim=0)
        share = log_z.softmax(dim=0)  # p_k of each band: H = sum_k p_k (H_k - log p_k)
        entropy = (torch.special.entr(share) + share * entropy).sum(dim=0)
        return losses.Predictive(total, entropy, best.gather(0, place[None])[0], best_score)

    def tables(self) -> List[Table]:
        """Return the bands; :meth:`inputs` has columns for each and its offset."""
        found, column = [], 0
        for band in self._bands():
            weight = band.table[: band.end - band.first]
            end = column + weight.size(1)
            found.append(Table(band.first, weight, slice(column, end), end))
            column = end + 1
        return found

    def inputs(self, features: Tensor) -> Tensor:
        """Return (N, D'): for each band, the inputs of its words' scores and its offset."""
        parts = self._parts(features.to(at_least_float32(features)))
        return torch.cat([t for p in parts for t in (p.inputs, p.offset[:, None])], dim=1)

    def _bands(self) -> List[_Band]:
        head = self.head.word_proj if isinstance(self.head, TiedHeadModule) else self.head
        layers: List[Any] = [head if isinstance(head, nn.Sequential) else (None, head)]
        layers += [(projection, rows) for projection, _, rows in self.tail]
        ends, classes = [0, *self.cutoff], [None, *self._class_rows()]
        return [
            _Band(first, end, _weight(rows), projection and _matrix(projection), class_row)
            for first, end, (projection, rows), class_row in zip(ends, ends[1:], layers, classes)
        ]

    def _class_rows(self, is_stored: bool = False) -> Tensor:
        """Return the rows class_k (K, D) of all bands but the first; stored, a view to write to."""
        first, layer = self.cutoff[0], self.head  # class rows are the head's last rows
        if isinstance(self.head, TiedHeadModule):
            first, layer = 0, self.head.class_proj
        weight = _weight(layer)
        if is_stored:
            return weight[first:]
        return gather(weight, torch.arange(first, len(weight), device=weight.device))

    def _parts(self, features: Tensor, squash: bool = False) -> Iterator[_Part]:
        """Yield the terms of all bands; squashed scores, which are not linear, have no offset."""
        for band in self._bands():
            yield self._part(band, features, squash)

    def _part(self, band: _Band, features: Tensor, squash: bool = False) -> _Part:
        inputs, words = features, band.end - band.first
        if band.projection is not None:
            dtype = mm_dtype(features, band.table)  # halves on a GPU, as the model's own
            inputs = F.linear(features.to(dtype), band.projection.to(dtype))
        weight = band.table[:words] if len(band.table) > words else band.table
        exact = features.to(at_least_float32(features, band.table))
        offset = exact.new_zeros(len(exact))
        if band.class_row is not None:
            offset = exact @ band.class_row.to(exact)
        if band.class_row is not None and squash:
            inputs = torch.cat([inputs.to(offset), offset[:, None]], dim=1)
            weight = torch.cat([weight, weight.new_ones(words, 1)], dim=1)
            offset = torch.zeros_like(offset)
        bias = None if self.bias is None else self.bias[band.first : band.end]
        return _Part(inputs, weight, bias, offset)


class Adaptive(InBands):
    """The adaptive softmax of adaptive_loss: a word's score is normalised within its tail.

        band 0:  m(v, c) = h . E0_v
        band k:  m(v, c) = h . class_k + (P_k h) . E_k,v - log Z_k(c)

    log Z_c is that of the head, so that m - log Z_c is the adaptive softmax's own log-probability.
    For scoring alone.
    """

    is_trained_here = False

    def __init__(self, softmax: AdaptiveSoftmax):
        self.cutoff, self.head, self.tail = softmax.cutoff, softmax.head, softmax.tail
        self.input_dim, self.vocab_size = softmax.input_dim, softmax.vocab_size
        self.dropout_module = softmax.dropout_module

    def log_partition(self, features: Tensor) -> Tensor:
        """Compute log Z_c (N,) after features (N, D), of the head alone."""
        words, *tails = super()._parts(features)
        scores = [losses.log_partition(*words[:3]), *(tail.offset for tail in tails)]
        return torch.stack(scores).logsumexp(dim=0)

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """Normalise ``scores`` by :meth:`rows`, of words (N,) or (N, K) after features (N, D).

        A tail's normaliser is computed for the contexts with a word of that tail alone.
        """
        ids, found = ids.view(len(ids), -1), scores.clone().view(len(ids), -1)
        for band in self._bands()[1:]:
            is_own = (ids >= band.first) & (ids < band.end)
            contexts = is_own.any(dim=1).nonzero()[:, 0]
            if len(contexts):
                part = self._part(band, features[contexts])
                log_z = losses.log_partition(*part[:3])
                found[contexts] -= is_own[contexts] * log_z[:, None]
        return found.view(scores.shape)

    def _parts(self, features: Tensor, squash: bool = False) -> Iterator[_Part]:
        for number, part in enumerate(super()._parts(features, squash)):
            if number:
                part = part._replace(offset=part.offset - losses.log_partition(*part[:3]))
            yield part


def _without_autocast(like: Tensor) -> torch.autocast:
    return torch.autocast(device_type=like.device.type, enabled=False)


def _weight(module: Any) -> nn.Parameter:
    """Return the weight of a linear layer without a bias."""
    is_plain = type(module) is nn.Linear and module.bias is None
    if not is_plain and not (type(module) is TiedLinear and not module.transpose):
        refuse(f"one with a {type(module).__name__}")
    return module.weight


def _matrix(module: Any) -> Tensor:
    """Return the matrix (d, D) of a linear layer; a tied one stores the transpose."""
    if type(module) is TiedLinear and module.transpose:
        return module.weight.t()
    return _weight(module)


def refuse(got: str) -> None:
    """Raise UnsupportedModelError for a layer of another kind."""
    required = "an adaptive softmax as fairseq makes it, of torch.nn.Linear layers or tied ones"
    raise UnsupportedModelError(f"--adaptive-softmax-cutoff: required {required}, got {got}")
