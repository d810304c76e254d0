"""All that fairseq learns of this package: importing this module registers it.

``fairseq_bnce.register()`` does, and says what to install where there is no fairseq.
"""

from fairseq_bnce import compatibility, task  # noqa: F401
from fairseq_bnce.models import ffnn_lm, lbl_lm, rnn_lm  # noqa: F401
from fairseq_bnce.training import criterions  # noqa: F401
