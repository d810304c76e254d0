"""The log-bilinear language model of Mnih & Teh (2012), on past words or on those of both sides.

From the context words w_i the vector of the next one is predicted as r̂ = Σ_i C_i r_{w_i}, and
the score of v is r̂·q_v + b_v. Input and output embeddings r and q are two matrices; each C_i, of
one position in the context, is full or diagonal.

Presets: the first has that paper's context on PTB; all else is this project's choice.

    lbl_lm_ptb    2 words, D = 100, full C_i       201 V + 20,000, 2.0 M at V = 10,000
    lbl_lm_mscc   10 words, D = 300, diagonal C_i  601 V + 3,000, 48.1 M at V = 80,000
"""

from dataclasses import dataclass

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_bnce.errors import require
from fairseq_bnce.flag import flag
from fairseq_bnce.models import base
from fairseq_bnce.models.base import IncrementalState

Matrices: ChoiceEnum = ChoiceEnum(["diagonal", "full"])


@dataclass
class LogBilinearConfig(base.WordModelConfig):
    context_size: int = flag(5, "words of context: past ones, or on either side")
    context_matrices: Matrices = flag("diagonal", "what the matrices C_i of the positions are")
    bidirectional_context: bool = flag(
        False,
        "the context is the --context-size words before the predicted one and as many after it, as "
        "for sentence completion; perplexities are then not comparable with those of models of the "
        "past, and nothing can be generated",
    )


class LogBilinearDecoder(base.NGramDecoder):
    """Score a word by a linear prediction of its vector.

    The C_i start at the identity divided by their number: r̂ starts as the context's mean.

    Args:
        source, target: dictionaries of the words that are read and predicted.
        options: the fields of :class:`LogBilinearConfig`.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    def __init__(self, source: Dictionary, target: Dictionary, options: LogBilinearConfig):
        size = options.decoder_embed_dim
        super().__init__(source, target, options, size)
        self.is_bidirectional = options.bidirectional_context
        positions = (2 if self.is_bidirectional else 1) * options.context_size
        one = torch.ones(size) / positions
        one = one.diag() if str(options.context_matrices) == "full" else one
        # (positions, E) or (positions, E, D), the oldest word first.
        self.context_weight = nn.Parameter(one.expand(positions, *one.shape).clone())
        self.dropout = nn.Dropout(options.dropout)

    def features(self, tokens: Tensor, incremental_state: IncrementalState = None) -> Tensor:
        """Compute r̂ (B, T, D) from words (B, T).

        Raises:
            ValueError: for incremental decoding with words of both sides.
        """
        words = self.history(tokens, incremental_state)
        length, ahead = words.size(1), self.context_size + 1
        if self.is_bidirectional:
            required = "off for incremental decoding, which has no words to come"
            require("--bidirectional-context", required, "on", incremental_state is None)
            # tokens[:, t + 1] is what is predicted at t: what follows it starts at t + 2. Where no
            # word is left, the padding's embedding, which is zero, stands for it.
            words = nn.functional.pad(words, (0, ahead), value=self.pad)
        embedded = self.dropout(self.embed_tokens(words))
        before, *after = self.context_weight.split(self.context_size)
        found = self._predicted(embedded[:, :length], before)
        return found + self._predicted(embedded[:, ahead:], after[0]) if after else found

    def _predicted(self, embedded: Tensor, weight: Tensor) -> Tensor:
        """Compute Σ_i C_i r_{w_i} at every place, (B, T, D), from embeddings (B, T + c - 1, E).

        It is a convolution over time, which needs no copy of each word for each place that sees
        it. In two dimensions, one of them 1: on a CPU torch is slow at a convolution in one.
        """
        is_full = weight.dim() == 3
        kernel = weight.permute(2, 1, 0) if is_full else weight.t().unsqueeze(1)
        groups = 1 if is_full else len(kernel)
        over_time = embedded.transpose(1, 2).unsqueeze(2)
        found = nn.functional.conv2d(over_time, kernel.unsqueeze(2), groups=groups)
        return found.squeeze(2).transpose(1, 2)


@register_model("lbl_lm", dataclass=LogBilinearConfig)
class LogBilinearModel(base.WordModel):
    """A log-bilinear language model."""

    Decoder = LogBilinearDecoder


_FIELDS = ("context_size", "decoder_embed_dim", "context_matrices", "dropout")
_VALUES = {"lbl_lm_ptb": (2, 100, "full", 0.0), "lbl_lm_mscc": (10, 300, "diagonal", 0.0)}
PRESETS = {name: dict(zip(_FIELDS, values)) for name, values in _VALUES.items()}
base.register_presets("lbl_lm", PRESETS)
