"""What to install for a command that lacks something."""

from __future__ import annotations

import sys

from fairseq_bnce.errors import InputError

# What comes with torch and fairseq, whose installation README.md describes.
WITH_FAIRSEQ = ("torch", "numpy", "fairseq", "fairseq_cli", "hydra", "omegaconf")


def missing_package(error: ModuleNotFoundError) -> InputError:
    """An import that failed, as what the user has to mend.

    Raises:
        ModuleNotFoundError: the same, where it is a module of our own: a bug.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "fairseq_bnce"):
        raise error
    remedy = f"{sys.executable} -m pip install {package}"
    if package in WITH_FAIRSEQ:
        remedy = (
            "scripts/setup_env.sh makes an environment with torch and fairseq in a checkout, and "
            "README.md says how to have them in another"
        )
    return InputError(f"required the package {package}, got {sys.executable} without it: {remedy}")
