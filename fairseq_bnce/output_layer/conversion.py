"""An adaptive softmax of fairseq's, converted to bands."""

import copy

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.modules.adaptive_softmax import AdaptiveSoftmax
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.output_layer.bands import refuse
from fairseq_bnce.output_layer.start import StartingBands


class Bands(StartingBands, AdaptiveSoftmax):
    """An adaptive softmax that is read as bands; :func:`read_as_bands` converts fairseq's.

    Attributes:
        may_start: whether parameters of an adaptive softmax may be loaded, which lack the bias.
        is_started: whether such parameters were loaded, so that :meth:`start` has to be called.
        is_squashed: whether probabilities are those of squashed scores.
    """

    may_start = is_squashed = False

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
        scores = self.scores(input.flatten(0, -2))
        scores = losses.squashed(scores) if self.is_squashed else scores
        return scores.log_softmax(dim=1).view(*input.shape[:-1], -1)

    def forward(self, *_: object, **__: object) -> None:
        """Refuse adaptive_loss, which calls the module.

        Raises:
            UnsupportedModelError: always.
        """
        raise UnsupportedModelError(
            "--criterion: required one of fairseq_bnce (bnce, say), or cross_entropy, for a model "
            "whose output layer they trained in bands, got adaptive_loss, which would read it as "
            "an adaptive softmax"
        )


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


def with_adaptive_softmax(options: FairseqDataclass) -> FairseqDataclass:
    """Return options by which lstm_lm and fconv_lm build one, as they do under adaptive_loss alone.

    Args:
        options: the model's; of these architectures with all other options.
    """
    if not isinstance(getattr(options, "criterion", None), str):
        return options
    options = copy.copy(options)
    options.criterion = "adaptive_loss"
    return options


def is_in_bands(model: nn.Module) -> bool:
    """Return whether the output layer of a model is in bands."""
    softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    return isinstance(softmax, Bands)
