"""The output layer in bands: fairseq's adaptive softmax, its parameters read as one score a word.

Words are sorted by frequency and cut into bands. A word of band 0 has a row E0_v of D numbers, a
word of band k a row E_k,v of d_k numbers, with a projection P_k (d_k, D) and a row class_k (D):

    band 0:  m(v, c) = h . E0_v + b_v
    band k:  m(v, c) = h . class_k + (P_k h) . E_k,v + b_v

There is no normaliser inside the head or the tails, unlike in the adaptive softmax: the whole score
is normalised, or normalises itself. Losses see the rows of a batch's words expanded to D numbers,
class_k + P_k^T E_k,v. The partition function goes band by band: sum of V_k d_k instead of V D.

The bias b (V,) is a parameter that fairseq's own class lacks. So fairseq without this plugin, which
would score with an adaptive softmax, refuses such a checkpoint: Unexpected key(s) in state_dict.
"""

import contextlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.modules.adaptive_input import AdaptiveInput
from fairseq.modules.adaptive_softmax import AdaptiveSoftmax, TiedHeadModule, TiedLinear
from torch import Tensor, nn

from fairseq_bnce import losses, ranks
from fairseq_bnce.errors import UnsupportedModelError, require
from fairseq_bnce.losses.precision import at_least_float32, product_dtype
from fairseq_bnce.optim.row_sparse import gather
from fairseq_bnce.output_layer.plain import Rows, Table

# Of the task's state: the adaptive softmax of the model is read as bands.
STATE = "output_bands"
_QUIET = 0.1  # of random rows
_MOST_CONTEXTS = 4096  # by which an adaptive softmax's normalisers are known
_RIDGE = 0.1  # of the features' mean variance


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
    """What scores a band's words after N contexts: inputs . weight + bias + offset.

    Attributes:
        inputs: (N, d).
        weight, bias: (V_k, d), and (V_k,) or None.
        offset: (N,), or 0.
    """

    inputs: Tensor
    weight: Tensor
    bias: Optional[Tensor]
    offset: Any


class _InBands:
    """What is to be known of an adaptive softmax's parameters, however they are read."""

    cutoff: List[int]
    head: Any
    tail: Any
    input_dim: int
    vocab_size: int

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def size(self) -> int:
        """D."""
        return self.input_dim

    @property
    def bias(self) -> Optional[nn.Parameter]:
        """The (V,) bias parameter, or None."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self._bands()[0].table.device

    def full(self) -> Rows:
        """All rows, (V, D) and (V,), expanded: for tests and for small vocabularies."""
        return self.rows(torch.arange(len(self), device=self.device))

    def rows(self, ids: Tensor) -> Rows:
        """The rows of the distinct words ``ids`` (U,), in ascending order, expanded.

        A GPU makes the host wait once, for how many words are of each band.
        """
        parts = self._by_band(ids)
        classes = self._class_rows()
        with _without_autocast(ids):
            expanded = [
                # Bands without a word, too: DDP waits for a gradient of every parameter.
                _expanded(gather(band.table, own - band.first), band.projection, class_row)
                for band, own, class_row in zip(self._bands(), parts, [None, *classes])
            ]
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
        """Of p(. | c) after features (N, D); no row is expanded."""
        parts = [
            (losses.predictive_statistics(*part[:3], squash=squash), part.offset)
            for part in self._parts(features, squash)
        ]
        log_z = torch.stack([found.log_partition + offset for found, offset in parts])
        best_score, band = torch.stack([f.best_score + offset for f, offset in parts]).max(dim=0)
        best = torch.stack([f.best + b.first for (f, _), b in zip(parts, self._bands())])
        entropy = torch.stack([found.entropy for found, _ in parts])
        total = log_z.logsumexp(dim=0)
        # H = log Z - sum_k p_k (log Z_k - H_k): a band's own mean score is log Z_k - H_k.
        share = (log_z - total).exp()
        entropy = total - (share * (log_z - entropy)).sum(dim=0)
        return losses.Predictive(total, entropy, best.gather(0, band[None])[0], best_score)

    def tables(self) -> List[Table]:
        """Of each band; those after the first have an offset, of which :meth:`inputs` tells."""
        found, column = [], 0
        for number, band in enumerate(self._bands()):
            weight = band.table[: band.end - band.first]
            end = column + weight.size(1)
            found.append(Table(band.first, weight, slice(column, end), end if number else None))
            column = end + bool(number)
        return found

    def inputs(self, features: Tensor) -> Tensor:
        """(N, D'): what each band's words are scored with, and the band's offset."""
        found = []
        for part in self._parts(features.to(at_least_float32(features)), False):
            found.append(part.inputs)
            if torch.is_tensor(part.offset):
                found.append(part.offset[:, None])
        return torch.cat(found, dim=1)

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
        """(K, D), of all bands but the first."""
        if isinstance(self.head, TiedHeadModule):
            return _weight(self.head.class_proj)
        first, weight = self.cutoff[0], _weight(self.head)
        return gather(weight, torch.arange(first, len(weight), device=weight.device))

    def _stored_class_rows(self) -> Tensor:
        """(K, D), to be written to."""
        is_tied = isinstance(self.head, TiedHeadModule)
        return self._class_rows() if is_tied else _weight(self.head)[self.cutoff[0] :]

    def _parts(self, features: Tensor, squash: bool) -> Iterator[_Part]:
        """Of all bands; a score that is squashed has to be whole, without an offset."""
        for number, band in enumerate(self._bands()):
            yield self._part(number, band, features, squash)

    def _part(self, number: int, band: _Band, features: Tensor, squash: bool = False) -> _Part:
        exact = features.to(at_least_float32(features, band.table))
        inputs, offset = features, None
        if band.projection is not None:
            dtype = product_dtype(features, band.table)  # halves on a GPU, as the model's own
            inputs = F.linear(features.to(dtype), band.projection.to(dtype))
        words = band.end - band.first
        weight = band.table[:words] if len(band.table) > words else band.table
        if number:
            offset = exact @ self._class_rows()[number - 1].to(exact)
        if offset is not None and squash:
            inputs = torch.cat([inputs.to(offset), offset[:, None]], dim=1)
            weight = torch.cat([weight, weight.new_ones(words, 1)], dim=1)
            offset = None
        bias = None if self.bias is None else self.bias[band.first : band.end]
        return _Part(inputs, weight, bias, 0 if offset is None else offset)

    def _by_band(self, ids: Tensor) -> List[Tensor]:
        """The ids of each band, of ids in ascending order."""
        ends = torch.tensor(self.cutoff[:-1], device=ids.device)
        places = [0, *torch.searchsorted(ids, ends).tolist(), len(ids)]
        return [ids[first:last] for first, last in zip(places, places[1:])]


class Bands(_InBands, AdaptiveSoftmax):
    """An adaptive softmax that is read as bands; :func:`read_as_bands` makes it of fairseq's.

    Attributes:
        output_bias: (V,).
        may_start: whether parameters of an adaptive softmax may be loaded, which lack the bias.
        is_started: whether that was done, so that :meth:`start` has to be called.
    """

    output_bias: nn.Parameter
    may_start = is_started = False
    _transform: Optional[Callable[[Tensor], Tensor]] = None

    @property
    def bias(self) -> nn.Parameter:
        """The (V,) bias parameter."""
        return self.output_bias

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        name = f"{prefix}output_bias"
        if self.may_start and name not in state_dict:
            state_dict[name] = torch.zeros_like(self.output_bias)
            self.is_started = True
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores begin near an adaptive softmax's, whose parameters were loaded.

        Bias and class rows take the place of its normalisers, which are no constants: minus the
        mean over contexts of the head's, and minus what a linear function of the features says of
        the band's own, where a context weighs as much as the band is likely in it.

        Args:
            features: (N, D).
            log_z: what is to be added to log-probabilities, nats.
        """
        softmax, some = Adaptive(self), features[:_MOST_CONTEXTS]
        head = softmax.log_partition(some, False)
        of_head = _fitted(some, head, torch.ones_like(head))
        if of_head is None:  # no rank has a context
            return
        self.output_bias[: self.cutoff[0]] = log_z - of_head[2]
        for number, band in enumerate(self._bands()[1:], 1):
            part = softmax._part(number, band, some)
            share = (part.offset - head).exp()
            slope, constant, _ = _fitted(some, losses.log_partition(*part[:3]), share)
            self._stored_class_rows()[number - 1] -= slope
            self.output_bias[band.first : band.end] = log_z - of_head[2] - constant
        self.is_started = False

    @torch.no_grad()
    def shrink_scores(self, decoder: nn.Module) -> None:
        """Have random rows add little to an untrained model's scores, which the bias starts.

        Features of architectures without a last layer normalisation are large: scores of
        transformer_lm_wiki103 would start at a standard deviation of 3 to 7 nats. On PTB (6 layers
        of 128, tied, 300 updates of bnce) perplexity is 344 with random rows, 273 with a tenth of
        them; 339 under adaptive_loss. Where words are read by the same rows, the projection that
        reads them makes up for it, if it is not the output's, too.
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

    def transform_scores(self, function: Callable[[Tensor], Tensor]) -> None:
        """From now on the decoder's probabilities are those of ``function(scores)``."""
        self._transform = function

    def get_log_prob(self, input: Tensor, target: Any = None) -> Tensor:
        """(B, T, V) log-probabilities after features (B, T, D), by the softmax over all words.

        fairseq's decoders call this, whose name it is; all of it exists at once, as theirs.
        """
        features = input.flatten(0, -2)
        with _without_autocast(features):
            parts = [
                F.linear(p.inputs, p.weight.to(p.inputs))
                + (p.offset[:, None] if torch.is_tensor(p.offset) else 0)
                for p in self._parts(features.to(at_least_float32(features)), False)
            ]
            scores = torch.cat(parts, dim=1) + self.output_bias
        scores = scores if self._transform is None else self._transform(scores)
        return scores.log_softmax(dim=1).view(*input.shape[:-1], -1)

    def forward(self, *_: Any, **__: Any) -> Any:
        """What adaptive_loss asks for.

        Raises:
            UnsupportedModelError: always.
        """
        raise UnsupportedModelError(
            "--criterion: required one of fairseq_bnce (bnce, say), or cross_entropy, for a model "
            "whose output layer they trained in bands, got adaptive_loss, which would read it as "
            "an adaptive softmax"
        )


class Adaptive(_InBands):
    """A model of adaptive_loss as it is: a word's score is normalised within its tail.

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
        """``scores`` by :meth:`rows`, of words (N,) or (N, K) after features (N, D), as above.

        The work over a tail's words is done for the contexts with a word of that tail.
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

    To be called before a trainer is built and before parameters are loaded; once is as often as
    you like.

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
    check_cutoffs("--adaptive-softmax-cutoff", found.cutoff, found.vocab_size)
    found.__class__ = Bands
    for number, band in enumerate(found._bands()):  # which refuses layers of other kinds
        size, required = band.table.size(1), f"one that leaves band {number} at least 1 dimension"
        got = f"{found.factor} for features of {found.input_dim} numbers"
        require("--adaptive-softmax-factor", required, got, size >= 1)
    found.may_start = may_start
    found.register_parameter("output_bias", nn.Parameter(band.table.new_zeros(found.vocab_size)))


def check_cutoffs(flag: str, cutoffs: Sequence[int], words: int) -> None:
    """Raise ValueError unless a vocabulary of so many words can be cut there."""
    ends = [0, *cutoffs]
    fits = all(before < end for before, end in zip(ends, ends[1:])) and ends[-1] <= words
    required = f"numbers that ascend, of at most {words:,}, which is the size of the dictionary"
    require(flag, required, ",".join(map(str, cutoffs)), fits)


def check_flags(options: Any, words: int) -> None:
    """Name the flag, where a model could not be built, if cutoffs are the reason.

    Args:
        options: of the model.
        words: the size of the dictionary.

    Raises:
        ValueError: for cutoffs that do not ascend, or beyond the dictionary.
    """
    for flag in ("--adaptive-softmax-cutoff", "--adaptive-input-cutoff"):
        cutoffs = getattr(options, flag[2:].replace("-", "_"), None)
        if cutoffs is not None:
            check_cutoffs(flag, utils.eval_str_list(cutoffs, type=int), words)


@contextlib.contextmanager
def building(options: Any, is_wanted: bool) -> Iterator[None]:
    """In here, an architecture that makes an adaptive softmax under adaptive_loss alone makes one.

    Args:
        options: of the model, of lstm_lm and fconv_lm in a Namespace with all others.
        is_wanted: whether one is to be made.
    """
    criterion = getattr(options, "criterion", None)
    if not is_wanted or not isinstance(criterion, str):
        yield
        return
    options.criterion = "adaptive_loss"
    try:
        yield
    finally:
        options.criterion = criterion


def state_of(model: nn.Module) -> Dict[str, Any]:
    """What a checkpoint's task state says of how the output layer is read."""
    softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    return {STATE: True} if isinstance(softmax, Bands) else {}


def restore(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Read a model's output layer as its checkpoint's task state says.

    Raises:
        ValueError: for a state that is not this model's.
    """
    if state.get(STATE, False):
        read_as_bands(model)
        got = type(getattr(model, "decoder", model)).__name__
        required = "a model with --adaptive-softmax-cutoff"
        require(f"task_state.{STATE}", required, f"a {got} without", bool(state_of(model)))


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


def _expanded(rows: Tensor, projection: Optional[Tensor], class_row: Optional[Tensor]) -> Tensor:
    """Rows (U, d) of one band in full size."""
    if projection is not None and class_row is not None:
        return torch.addmm(class_row, rows, projection)
    rows = rows if projection is None else rows @ projection
    return rows if class_row is None else rows + class_row


def _without_autocast(like: Tensor) -> Any:
    return torch.autocast(device_type=like.device.type, enabled=False)


def _weight(module: Any) -> nn.Parameter:
    """Of a linear layer without a bias."""
    is_plain = type(module) is nn.Linear and module.bias is None
    if not is_plain and not (type(module) is TiedLinear and not module.transpose):
        _refuse(f"one with a {type(module).__name__}")
    return module.weight


def _matrix(module: Any) -> Tensor:
    """(d, D), of a linear layer that may be tied to an input's, which goes the other way."""
    if type(module) is TiedLinear and module.transpose:
        return module.weight.t()
    return _weight(module)


def _refuse(got: str) -> None:
    raise UnsupportedModelError(
        "--adaptive-softmax-cutoff: required an adaptive softmax as fairseq makes it, of "
        f"torch.nn.Linear layers or tied ones, got {got}"
    )
