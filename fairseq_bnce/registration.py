"""Register the package's parts with fairseq, when a user or fairseq asks for them.

Importing this module does not import fairseq.
"""

import importlib
import importlib.util

# Importing these modules registers their classes, or applies fixes that fairseq needs.
_MODULES = (
    "compatibility",
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

    Also lets today's torch and numpy work with fairseq's checkpoints (compatibility.py).

    Raises:
        ModuleNotFoundError: where there is no fairseq, with the command that installs it.
    """
    if importlib.util.find_spec("fairseq") is None:
        raise ModuleNotFoundError(_NO_FAIRSEQ, name="fairseq")
    for module in _MODULES:
        importlib.import_module(f"fairseq_bnce.{module}")
