"""The flags of this plugin's dataclasses, which fairseq and hydra read."""

import dataclasses
from typing import Any


def flag(default: object, text: str, **metadata: object) -> Any:
    """Return the field of a flag.

    Args:
        default: the value without the flag.
        text: what --help says.
        metadata: more for fairseq, such as ``argparse_alias``.
    """
    return dataclasses.field(default=default, metadata={"help": text, **metadata})
