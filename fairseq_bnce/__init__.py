"""Batch noise-contrastive estimation and self-normalised scoring for fairseq.

Use with ``--user-dir fairseq_bnce``: importing this package registers its criteria and task.
``fairseq_bnce.losses`` and ``fairseq_bnce.noise`` need torch alone.
"""

import importlib
import importlib.util
import warnings
from typing import Any

from fairseq_bnce.version import __version__  # noqa: F401

if importlib.util.find_spec("fairseq") is None:
    warnings.warn(
        "no fairseq is installed: only fairseq_bnce.losses and fairseq_bnce.noise work. With a "
        "build of torch, numpy, cython, setuptools and wheel installed, run: "
        "pip install --no-build-isolation 'fairseq-bnce[fairseq]' (Python 3.11 or later), or "
        "pip install 'fairseq-bnce[fairseq]' (Python 3.8 to 3.10, with pip below 24.1)",
        stacklevel=2,
    )
else:
    from fairseq_bnce import compatibility, criterions, models, task  # noqa: F401


def __getattr__(name: str) -> Any:
    """``Scorer`` is imported when it is asked for: as a plugin of fairseq's this needs none."""
    if name == "Scorer":
        return importlib.import_module("fairseq_bnce.scoring").Scorer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
