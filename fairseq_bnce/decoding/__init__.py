"""Language models in the first pass of a decoder: one adapter for each decoder's own protocol.

``histories`` reads and scores what a beam search asks for, ``words`` knows a decoder's words; on
them stand ``flashlight``, ``pyctcdecode``, ``kenlm``, ``espnet`` and ``speechbrain``, of which each
is imported when it is asked for, and needs its own library alone.
"""

import importlib
from typing import Any

_ADAPTERS = {
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
