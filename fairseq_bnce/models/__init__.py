"""Word-level architectures, fused, with presets named after the papers that train them by NCE.

fairseq imports the modules of this folder when it is given the package as its user directory:
this is where it asks for all that the package registers.
"""

from fairseq_bnce import plugin  # noqa: F401
