"""What stops prepare_text.py."""

from __future__ import annotations


class PrepareError(Exception):
    """What the user has to mend, in words that name it."""
