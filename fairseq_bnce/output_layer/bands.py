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

import contextlib
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.modules.adaptive_input import AdaptiveInput
from fairseq.modules.adaptive_softmax import AdaptiveSoftmax, TiedHeadModule, TiedLinear
from torch import Tensor, nn

from fairseq_bnce import losses, ranks
from fairseq_bnce.errors import UnsupportedModelError, require
from fairseq_bnce.losses.words import at_least_float32, product_dtype
from fairseq_bnce.optim.row_sparse import gather

_QUIET = 0.1  # the share of random rows that is kept
_MAX_CONTEXTS = 4096  # that an adaptive softmax's normalisers are fitted to
_RIDGE = 0.1  # of the features' mean variance


class Rows(NamedTuple):
    """A part of the output projection.

    Attributes:
        weight: (U, D).
        bias: (U,) or None.
    """

    weight: Tensor
    bias: Optional[Tensor]


class Table(NamedTuple):
    """The stored rows of a layer or a band; a score is inputs . weight, plus the offset if any.

    Attributes:
        first: the id of the first word.
        weight: (n, d).
        columns: the columns of a layer's inputs that score them.
        offset: the column that is added, or None.
    """

    first: int
    weight: Any
    columns: slice
    offset: Optional[int] = None


class _Band(NamedTuple):
    """Words of one size.

    Attributes:
        first, end: ids of its first word, and of the word after its last one.
        table: a row for each of its words, and maybe further rows.
        projection: (d, D), or None for rows of full size.
    """

    first: int
    end: int
    table: nn.Parameter
    projection: Optional[Tensor]


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


class _InBands:
    """Rows and scores from an adaptive softmax's parameters, with or without normalisers."""

    cutoff: List[int]
    head: Any
    tail: Any
    input_dim: int
    vocab_size: int

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def size(self) -> int:
        """D, the size of the features."""
        return self.input_dim

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """The (V,) bias parameter; None for an adaptive softmax."""
        return getattr(self, "output_bias", None)

    def full(self) -> Rows:
        """All rows, (V, D) and (V,), expanded: for tests and for small vocabularies."""
        return self.rows(torch.arange(len(self), device=self._bands()[0].table.device))

    def rows(self, ids: Tensor) -> Rows:
        """The rows of the distinct words ``ids`` (U,), in ascending order, expanded.

        A GPU makes the host wait once, for the number of words in each band.
        """
        ends = torch.tensor(self.cutoff[:-1], device=ids.device)
        places = [0, *torch.searchsorted(ids, ends).tolist(), len(ids)]
        expanded, classes = [], self._class_rows()
        with _without_autocast(ids):
            # Bands without a word, too: DDP waits for a gradient of every parameter.
            for number, band in enumerate(self._bands()):
                own = ids[places[number] : places[number + 1]]
                rows = gather(band.table, own - band.first)
                if band.projection is not None:  # as all but the first have it
                    class_row = classes[number - 1] if number else rows.new_zeros(1)
                    rows = torch.addmm(class_row, rows, band.projection)
                expanded.append(rows)
            weight = torch.cat(expanded)
        return Rows(weight, None if self.bias is None else gather(self.bias, ids))

    def word_parameters(self) -> List[nn.Parameter]:
        """The parameters that have a row, or a number, for each word."""
        tables = [band.table for band in self._bands()]
        return tables if self.bias is None else [*tables, self.bias]

    def log_partition(self, features: Tensor, squash: bool) -> Tensor:
        """log Z_c (N,) after features (N, D); no row is expanded."""
        with _without_autocast(features):
            of_bands = [
                losses.log_partition(*part[:3], squash=squash) + part.offset
                for part in self._parts(features, squash)
            ]
            return torch.stack(of_bands).logsumexp(dim=0)

    @torch.no_grad()
    def predictive_statistics(self, features: Tensor, squash: bool) -> losses.Predictive:
        """Statistics of p(. | c) after features (N, D); no row is expanded."""
        parts = [
            (losses.predictive_statistics(*part[:3], squash=squash), part.offset)
            for part in self._parts(features, squash)
        ]
        log_z = torch.stack([found.log_partition + offset for found, offset in parts])
        best_score, band = torch.stack([f.best_score + offset for f, offset in parts]).max(dim=0)
        best = torch.stack([f.best + b.first for (f, _), b in zip(parts, self._bands())])
        entropy = torch.stack([found.entropy for found, _ in parts])
        total = log_z.logsumexp(dim=0)
        share = log_z.softmax(dim=0)  # p_k of each band: H = sum_k p_k (H_k - log p_k)
        entropy = (torch.special.entr(share) + share * entropy).sum(dim=0)
        return losses.Predictive(total, entropy, best.gather(0, band[None])[0], best_score)

    def tables(self) -> List[Table]:
        """The bands; :meth:`inputs` has columns for each and its offset."""
        found, column = [], 0
        for band in self._bands():
            weight = band.table[: band.end - band.first]
            end = column + weight.size(1)
            found.append(Table(band.first, weight, slice(column, end), end))
            column = end + 1
        return found

    def inputs(self, features: Tensor) -> Tensor:
        """(N, D'): for each band, the inputs of its words' scores and its offset."""
        parts = self._parts(features.to(at_least_float32(features)), False)
        return torch.cat([t for p in parts for t in (p.inputs, p.offset[:, None])], dim=1)

    def _bands(self) -> List[_Band]:
        ends = self.cutoff
        bands = [_Band(0, ends[0], *self._head())]
        for number, tail in enumerate(self.tail):
            projection, _, rows = tail
            own = _Band(ends[number], ends[number + 1], _weight(rows), _matrix(projection))
            bands.append(own)
        return bands

    def _head(self) -> Tuple[nn.Parameter, Optional[Tensor]]:
        """The table of band 0, and its projection, if it has one."""
        if not isinstance(self.head, TiedHeadModule):
            return _weight(self.head), None  # whose last rows are those of the other bands
        if isinstance(self.head.word_proj, nn.Sequential):
            projection, words = self.head.word_proj
            return _weight(words), _matrix(projection)
        return _weight(self.head.word_proj), None

    def _class_rows(self) -> Tensor:
        """The rows class_k (K, D) of all bands but the first."""
        if isinstance(self.head, TiedHeadModule):
            return _weight(self.head.class_proj)
        first, weight = self.cutoff[0], _weight(self.head)
        return gather(weight, torch.arange(first, len(weight), device=weight.device))

    def _stored_class_rows(self) -> Tensor:
        """The same as :meth:`_class_rows`, as a view to write to."""
        is_tied = isinstance(self.head, TiedHeadModule)
        return self._class_rows() if is_tied else _weight(self.head)[self.cutoff[0] :]

    def _parts(self, features: Tensor, squash: bool) -> Iterator[_Part]:
        """The terms of all bands; squashed scores have no offset, since squashing is not linear."""
        for number, band in enumerate(self._bands()):
            yield self._part(number, band, features, squash)

    def _part(self, number: int, band: _Band, features: Tensor, squash: bool = False) -> _Part:
        inputs, words = features, band.end - band.first
        if band.projection is not None:
            dtype = product_dtype(features, band.table)  # halves on a GPU, as the model's own
            inputs = F.linear(features.to(dtype), band.projection.to(dtype))
        weight = band.table[:words] if len(band.table) > words else band.table
        exact = features.to(at_least_float32(features, band.table))
        offset = exact.new_zeros(len(exact))
        if number:
            offset = exact @ self._class_rows()[number - 1].to(exact)
        if number and squash:
            inputs = torch.cat([inputs.to(offset), offset[:, None]], dim=1)
            weight = torch.cat([weight, weight.new_ones(words, 1)], dim=1)
            offset = torch.zeros_like(offset)
        bias = None if self.bias is None else self.bias[band.first : band.end]
        return _Part(inputs, weight, bias, offset)


class Bands(_InBands, AdaptiveSoftmax):
    """An adaptive softmax that is read as bands; :func:`read_as_bands` converts fairseq's.

    Attributes:
        output_bias: (V,).
        may_start: whether parameters of an adaptive softmax may be loaded, which lack the bias.
        is_started: whether such parameters were loaded, so that :meth:`start` has to be called.
        is_squashed: whether probabilities are those of squashed scores.
    """

    output_bias: nn.Parameter
    may_start = is_started = is_squashed = False

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        name = f"{prefix}output_bias"
        if self.may_start and name not in state_dict:
            state_dict[name] = torch.zeros_like(self.output_bias)
            self.is_started = True
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores begin near those of the adaptive softmax whose parameters were loaded.

        The bias subtracts the head's mean normaliser. Bias and class rows together subtract each
        tail's normaliser, approximated by a linear function of the features. In the fit, a context
        weighs as much as the tail is likely there.

        Args:
            features: (N, D).
            log_z: what is to be added to log-probabilities, nats.
        """
        softmax, some = Adaptive(self), features[:_MAX_CONTEXTS]
        head = softmax.log_partition(some, False)
        of_head = _fitted(some, head, torch.ones_like(head))
        if of_head is None:  # no rank has a context
            return
        self.output_bias[: self.cutoff[0]] = log_z - of_head[2]
        for number, band in enumerate(self._bands()[1:], 1):
            part = softmax._part(number, band, some)
            share = (part.offset - head).exp()
            of_tail, every = losses.log_partition(*part[:3]), torch.ones_like(share)
            # Shares may all underflow.
            found = _fitted(some, of_tail, share) or _fitted(some, of_tail, every)
            slope, constant, _ = found
            self._stored_class_rows()[number - 1] -= slope
            self.output_bias[band.first : band.end] = log_z - of_head[2] - constant
        self.is_started = False

    @torch.no_grad()
    def shrink_scores(self, decoder: nn.Module) -> None:
        """Make random rows small, so that the bias alone sets an untrained model's scores.

        Features of architectures without a last layer normalisation are large: scores of
        transformer_lm_wiki103 would start at a standard deviation of 3 to 7 nats. On PTB (6 layers
        of 128, tied, 300 updates of bnce) perplexity is 344 with random rows, 273 with a tenth of
        them; 339 under adaptive_loss. Where embeddings share the rows, the projection that
        reads them grows instead, unless the output layer shares it.
        """
        bands = self._bands()
        read, shared = {id(band.table) for band in bands}, {id(p) for p in self.tail.parameters()}
        for band in bands:
            band.table.mul_(_QUIET)
        self._stored_class_rows().zero_()
        words = getattr(decoder, "embed_tokens", None)
        for table, projection in words.embeddings if isinstance(words, AdaptiveInput) else []:
            if id(table.weight) in read and id(projection.weight) not in shared:
                projection.weight.div_(_QUIET)

    def get_log_prob(self, input: Tensor, target: Any = None) -> Tensor:
        """(B, T, V) log-probabilities after features (B, T, D), by the softmax over all words.

        fairseq's decoders call this method by its name. The whole tensor exists at once.
        """
        features = input.flatten(0, -2)
        with _without_autocast(features):
            parts = [
                F.linear(p.inputs, p.weight.to(p.inputs)) + p.offset[:, None]
                for p in self._parts(features.to(at_least_float32(features)), False)
            ]
            scores = torch.cat(parts, dim=1) + self.output_bias
        scores = losses.squashed(scores) if self.is_squashed else scores
        return scores.log_softmax(dim=1).view(*input.shape[:-1], -1)

    def forward(self, *_: Any, **__: Any) -> Any:
        """Refuse adaptive_loss, which calls the module.

        Raises:
            UnsupportedModelError: always.
        """
        raise UnsupportedModelError(
            "--criterion: required one of fairseq_bnce (bnce, say), or cross_entropy, for a model "
            "whose output layer they trained in bands, got adaptive_loss, which would read it as "
            "an adaptive softmax"
        )


class Adaptive(_InBands):
    """The adaptive softmax of adaptive_loss: a word's score is normalised within its tail.

        band 0:  m(v, c) = h . E0_v
        band k:  m(v, c) = h . class_k + (P_k h) . E_k,v - log Z_k(c)

    log Z_c is that of the head, so that m - log Z_c is the adaptive softmax's own log-probability.
    For scoring alone.
    """

    def __init__(self, softmax: AdaptiveSoftmax):
        self.cutoff, self.head, self.tail = softmax.cutoff, softmax.head, softmax.tail
        self.input_dim, self.vocab_size = softmax.input_dim, softmax.vocab_size

    def log_partition(self, features: Tensor, squash: bool) -> Tensor:
        """log Z_c (N,) after features (N, D), of the head alone."""
        words, *tails = super()._parts(features, squash)
        scores = [losses.log_partition(*words[:3]), *(tail.offset for tail in tails)]
        return torch.stack(scores).logsumexp(dim=0)

    def adjusted(self, scores: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        """Normalise ``scores`` by :meth:`rows`, of words (N,) or (N, K) after features (N, D).

        A tail's normaliser is computed for the contexts with a word of that tail alone.
        """
        ids, found = ids.view(len(ids), -1), scores.clone().view(len(ids), -1)
        for number, band in enumerate(self._bands()[1:], 1):
            is_own = (ids >= band.first) & (ids < band.end)
            contexts = is_own.any(dim=1).nonzero()[:, 0]
            if len(contexts):
                part = self._part(number, band, features[contexts])
                log_z = losses.log_partition(*part[:3])
                found[contexts] -= is_own[contexts] * log_z[:, None]
        return found.view(scores.shape)

    def _parts(self, features: Tensor, squash: bool) -> Iterator[_Part]:
        for number, part in enumerate(super()._parts(features, squash)):
            if number:
                part = part._replace(offset=part.offset - losses.log_partition(*part[:3]))
            yield part


def read_as_bands(model: nn.Module, may_start: bool = False) -> None:
    """Read the adaptive softmax of a model's decoder, if it has one, as bands from now on.

    Call it before a trainer is built and before parameters are loaded. A second call does nothing.

    Args:
        model: whose decoder has an adaptive softmax, or none.
        may_start: whether the parameters of a model of adaptive_loss may be loaded into it.

    Raises:
        UnsupportedModelError: for one that is not as fairseq makes it.
    """
    found: Any = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    if found is None or isinstance(found, Bands):
        return
    if type(found) is not AdaptiveSoftmax:
        _refuse(type(found).__name__)
    if found.q_noise:
        _refuse(f"one with quantisation noise ({found.q_noise})")
    found.__class__ = Bands
    table = found._bands()[0].table  # _bands() refuses layers of other kinds
    found.may_start = may_start
    found.register_parameter("output_bias", nn.Parameter(table.new_zeros(found.vocab_size)))


def check_cutoffs(options: Any, words: int) -> None:
    """Raise ValueError, naming the flag, if a model's cutoffs do not ascend within the dictionary.

    Args:
        options: of the model.
        words: the size of the dictionary.
    """
    for name in ("adaptive_softmax_cutoff", "adaptive_input_cutoff"):
        cutoffs = utils.eval_str_list(getattr(options, name, None), type=int) or []
        ends = [0, *cutoffs, words + 1]
        fits = all(before < end for before, end in zip(ends, ends[1:]))
        required = f"numbers that ascend, up to the {words:,} words of the dictionary"
        require(f"--{name.replace('_', '-')}", required, cutoffs, fits)


@contextlib.contextmanager
def building(options: Any, is_wanted: bool) -> Iterator[None]:
    """Have lstm_lm and fconv_lm build an adaptive softmax, as they do under adaptive_loss alone.

    Args:
        options: the model's; of these architectures, a Namespace with all options.
        is_wanted: whether to build one.
    """
    criterion = getattr(options, "criterion", None)
    is_named = is_wanted and isinstance(criterion, str)
    if is_named:
        options.criterion = "adaptive_loss"
    try:
        yield
    finally:
        if is_named:
            options.criterion = criterion


def is_in_bands(model: nn.Module) -> bool:
    """Whether the output layer of a model is in bands."""
    softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    return isinstance(softmax, Bands)


def _fitted(features: Tensor, values: Tensor, weights: Tensor) -> Any:
    """Slope (D,), constant and mean of a linear function of all ranks' features, by least squares.

    None where all weights are 0. A ridge keeps the slope out of directions without much variance.
    """
    h, w = features.double(), weights.double()
    count = ranks.total(w.sum()[None])[0]
    if not count:
        return None
    centre, mean = ranks.total(w @ h) / count, ranks.total((w @ values.double())[None])[0] / count
    h, deviation = h - centre, (values.double() - mean) * w
    square = ranks.total((h * w[:, None]).t() @ h)
    square.diagonal().add_(_RIDGE * square.diagonal().mean() + 1e-9)
    slope = torch.linalg.solve(square, ranks.total(deviation @ h))
    return slope.to(features), float(mean - slope @ centre), float(mean)


def _without_autocast(like: Tensor) -> Any:
    return torch.autocast(device_type=like.device.type, enabled=False)


def _weight(module: Any) -> nn.Parameter:
    """The weight of a linear layer without a bias."""
    is_plain = type(module) is nn.Linear and module.bias is None
    if not is_plain and not (type(module) is TiedLinear and not module.transpose):
        _refuse(f"one with a {type(module).__name__}")
    return module.weight


def _matrix(module: Any) -> Tensor:
    """The matrix (d, D) of a linear layer; a tied one stores the transpose."""
    if type(module) is TiedLinear and module.transpose:
        return module.weight.t()
    return _weight(module)


def _refuse(got: str) -> None:
    raise UnsupportedModelError(
        "--adaptive-softmax-cutoff: required an adaptive softmax as fairseq makes it, of "
        f"torch.nn.Linear layers or tied ones, got {got}"
    )
