"""Word-level architectures, fused, with presets named after the papers that train them by NCE.

docs/flags.md lists their flags; fairseq-train --help does not.

fairseq imports the modules of this folder when it is given the package as its user directory:
this is where it asks for all that the package registers.
"""

from fairseq_bnce import register

register()
