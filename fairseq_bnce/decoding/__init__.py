"""Language models in the first pass of a decoder: an adapter for each decoder's own interface.

``histories`` reads and scores what a beam search asks for, and maps a decoder's words to ids. The
adapters ``flashlight``, ``pyctcdecode``, ``kenlm``, ``espnet`` and ``speechbrain`` use it. An
adapter is imported when it is first used, and needs only its own library.
"""

import importlib
from typing import Any

_ADAPTERS = {  # modules, named as the libraries that they import
    "FlashlightLM": "flashlight",
    "PyctcdecodeLM": "pyctcdecode",
    "KenlmModel": "kenlm",
    "EspnetScorer": "espnet",
    "SpeechbrainRescorer": "speechbrain",
}

__all__ = sorted(_ADAPTERS)


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ADAPTERS[name]}"), name)
