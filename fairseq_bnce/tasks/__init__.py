"""fairseq's language modeling task, for models that normalise themselves; contiguous streams.

fairseq imports the modules of this folder for ``--user-dir``: what they need is registered first.
"""

from fairseq_bnce.registration import register

register()
