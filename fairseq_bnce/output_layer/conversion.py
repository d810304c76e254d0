"""An adaptive softmax of fairseq's, converted to bands, and where the scores of bands start."""

import torch
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.output_layer.bands import Adaptive, InBands, refuse
from fairseq_bnce.output_layer.rows import fitted

_QUIET = 0.1  # random rows are multiplied by it
_MAX_CONTEXTS = 4096  # for the fit of an adaptive softmax's normalisers


class Bands(InBands, AdaptiveSoftmax):
    """An adaptive softmax that is read as bands; :func:`read_as_bands` converts fairseq's.

    Attributes:
        output_bias: (V,).
        may_start: whether parameters of an adaptive softmax may be loaded, which lack the bias.
        is_started: whether such parameters were loaded, so that :meth:`start` has to be called.
    """

    output_bias: nn.Parameter
    may_start = False

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: object) -> None:
        name = f"{prefix}output_bias"
        if self.may_start and name not in state_dict:
            state_dict[name] = torch.zeros_like(self.output_bias)
            self.is_started = True
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def get_log_prob(self, input: Tensor, target: object = None) -> Tensor:
        """Compute the softmax's log-probabilities (B, T, V) after features (B, T, D).

        fairseq's decoders call this method by its name. The whole tensor exists at once.
        """
        return self.scores(input.flatten(0, -2)).log_softmax(dim=1).view(*input.shape[:-1], -1)

    def forward(self, *_: object, **__: object) -> None:
        """Refuse adaptive_loss, which calls the module.

        Raises:
            UnsupportedModelError: always.
        """
        required = "one of fairseq_bnce, or cross_entropy, for an output layer trained in bands"
        raise UnsupportedModelError(f"--criterion: required {required}, got adaptive_loss")

    @torch.no_grad()
    def start(self, features: Tensor, log_z: float) -> None:
        """Have scores begin near those of the adaptive softmax whose parameters were loaded.

        Bias and rows together subtract the normalisers of head and tails, approximated by linear
        functions of the features. Where embeddings share the head's rows, only the bias subtracts
        the head's. In the fit of a tail, a context weighs as much as the tail is likely there.

        Args:
            features: (N, D).
            log_z: what is to be added to log-probabilities, nats.
        """
        softmax, some = Adaptive(self), features[:_MAX_CONTEXTS]
        head = softmax.log_partition(some)
        of_head = fitted(some, head)
        if of_head is None:  # no rank has a context
            return
        is_free = isinstance(self.head, nn.Linear)
        constant = of_head[1] if is_free else of_head[2]
        self.output_bias[: self.cutoff[0]] = log_z - constant
        for band, class_row in zip(self._bands()[1:], self._class_rows(is_stored=True)):
            part = softmax._part(band, some)
            share = (part.offset - head).exp()
            of_tail = losses.log_partition(*part[:3])
            # Shares may all underflow.
            of_tail = fitted(some, of_tail, share) or fitted(some, of_tail)
            class_row -= of_tail[0]
            self.output_bias[band.first : band.end] = log_z - constant - of_tail[1]
        if is_free:
            self.head.weight -= of_head[0]
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
        self._class_rows(is_stored=True).zero_()
        words = getattr(decoder, "embed_tokens", None)
        for table, projection in words.embeddings if isinstance(words, AdaptiveInput) else []:
            if id(table.weight) in read and id(projection.weight) not in shared:
                projection.weight.div_(_QUIET)


def read_as_bands(model: nn.Module, may_start: bool = False) -> None:
    """Read the adaptive softmax of a model's decoder, if it has one, as bands from now on.

    Call it before a trainer is built and before parameters are loaded. A second call does nothing.

    Args:
        model: whose decoder has an adaptive softmax, or none.
        may_start: whether the parameters of a model of adaptive_loss may be loaded into it.

    Raises:
        UnsupportedModelError: for one that is not as fairseq makes it.
    """
    found = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    if found is None or isinstance(found, Bands):
        return
    if type(found) is not AdaptiveSoftmax:
        refuse(type(found).__name__)
    if found.q_noise:
        refuse(f"one with quantisation noise ({found.q_noise})")
    found.__class__ = Bands
    table = found._bands()[0].table  # _bands() refuses layers of other kinds
    found.may_start = may_start
    found.register_parameter("output_bias", nn.Parameter(table.new_zeros(found.vocab_size)))
