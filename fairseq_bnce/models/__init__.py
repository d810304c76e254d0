"""Word-level architectures, fused, with presets named after the papers that train them by NCE.

docs/flags.md lists their flags; fairseq-train --help does not.
"""

from fairseq_bnce.models import ffnn_lm, lbl_lm, rnn_lm  # noqa: F401
