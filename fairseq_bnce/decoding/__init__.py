"""Language models in the first pass of a decoder: an adapter for each decoder's own interface.

``histories`` reads and scores what a beam search asks for, and ``words`` maps a decoder's words to
ids. The adapters ``flashlight``, ``pyctcdecode``, ``kenlm``, ``espnet`` and ``speechbrain`` use
both. An adapter is imported when it is first used, and needs only its own library.
"""

import importlib
from typing import Any

_ADAPTERS = {  # modules, named as the libraries that they import, and these libraries' packages
    "FlashlightLM": ("flashlight", "flashlight-text"),
    "PyctcdecodeLM": ("pyctcdecode", "pyctcdecode"),
    "KenlmModel": ("kenlm", ""),
    "EspnetScorer": ("espnet", "espnet"),
    "SpeechbrainRescorer": ("speechbrain", ""),
}

__all__ = sorted(_ADAPTERS)


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, package = _ADAPTERS[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module:
            raise
        message = f"{name}: required {package}, got no {error.name}; run pip install {package}"
        raise ModuleNotFoundError(message, name=error.name) from error
