"""Batch noise-contrastive estimation and self-normalised scoring for fairseq.

Use with ``--user-dir fairseq_bnce``, or call :func:`register`. Importing this package does nothing:
``fairseq_bnce.losses`` and ``fairseq_bnce.noise`` need torch alone, and bring no fairseq.

fairseq imports a user directory in one of two ways, and both lead to :func:`register`. If the
package is not imported yet, fairseq imports it and then the modules of its folder ``models``, whose
``__init__`` registers. If the package is imported, fairseq only asks whether the directory is in
the package's ``__path__``, which registers before it answers.
"""

import importlib
import importlib.util
import os
from typing import Any, List

__all__ = ["Scorer", "__version__", "register"]
__version__ = "0.1.0"

# Importing these modules registers their classes.
_MODULES = (
    "criterions",
    "optim.registered",
    "tasks.language_modeling",
    "models.ffnn_lm",
    "models.lbl_lm",
    "models.rnn_lm",
)
_NO_FAIRSEQ = (
    "no fairseq is installed: only fairseq_bnce.losses and fairseq_bnce.noise work. With a "
    "build of torch, numpy, cython, 'setuptools<81' and wheel installed, run in the checkout: "
    "pip install --no-build-isolation '.[fairseq]' (Python 3.11 or later), or "
    "pip install '.[fairseq]' (Python 3.8 to 3.10, with pip below 24.1)"
)


def register() -> None:
    """Make this package's criteria, task, models and optimisers known to fairseq; once is enough.

    Also changes what has to change in fairseq and torch (compatibility.py).

    Raises:
        ModuleNotFoundError: where there is no fairseq, with the command that installs it.
    """
    if importlib.util.find_spec("fairseq") is None:
        raise ModuleNotFoundError(_NO_FAIRSEQ, name="fairseq")
    for module in _MODULES:
        importlib.import_module(f"fairseq_bnce.{module}")
    importlib.import_module("fairseq_bnce.compatibility").apply()


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


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import ``Scorer`` at its first use, because a plugin of fairseq does not need it."""
    if name == "Scorer":
        register()
        return importlib.import_module("fairseq_bnce.scoring").Scorer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
