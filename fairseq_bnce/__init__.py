"""Batch noise-contrastive estimation and self-normalised scoring for fairseq.

Use with ``--user-dir fairseq_bnce``, or call :func:`register`. Importing this package does nothing:
``fairseq_bnce.losses`` and ``fairseq_bnce.noise`` need torch alone, and bring no fairseq.

fairseq imports a user directory in one of two ways, and both lead to :func:`register`. If the
package is not imported yet, fairseq imports it and then the modules of its folder ``models``, whose
``__init__`` registers. If the package is imported, fairseq only asks whether the directory is in
the package's ``__path__``, which registers before it answers.
"""

import importlib
import os
from typing import Any, List

from fairseq_bnce.registration import register
from fairseq_bnce.version import __version__

__all__ = ["Scorer", "__version__", "register"]


class _UserDirectory(List[str]):
    """The package's ``__path__``: fairseq's import_user_module asks whether its argument is in it.

    Python's import system does not ask: it searches one entry after the other. A link to the
    directory counts as the directory.
    """

    def __contains__(self, path: object) -> bool:
        is_ours = os.path.realpath(str(path)) in map(os.path.realpath, self)
        if is_ours:
            register()
        return is_ours


__path__ = _UserDirectory(__path__)


def __getattr__(name: str) -> Any:
    """Import ``Scorer`` at its first use, because a plugin of fairseq does not need it."""
    if name == "Scorer":
        register()
        return importlib.import_module("fairseq_bnce.scoring").Scorer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
