"""fairseq's language modeling task for self-normalised models, and contiguous streams.

fairseq imports the modules of this folder for ``--user-dir``, so the whole plugin registers here.
"""

from fairseq_bnce import register

register()
