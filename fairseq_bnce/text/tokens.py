"""Cut raw text into words by sacremoses' rules; fairseq's own symbols stay whole."""

from __future__ import annotations

import functools
import re
from typing import Any

from fairseq_bnce.errors import InputError, quoted

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = frozenset({BOS, PAD, EOS, UNK})
_PLAIN = re.compile("[A-Za-z0-9 ]*")  # sacremoses cuts such text at spaces


def check_language(flag: str, language: str | None) -> None:
    """Raise InputError for a language that sacremoses has no rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    codes = set(NonbreakingPrefixes().available_langs.values())
    known = sorted(codes | {"ja", "ko", "cjk"})  # these have rules, but no prefix lists
    if language not in known:
        raise InputError(f"{flag}: required one of {' '.join(known)}, got {quoted(language)}")


@functools.lru_cache(maxsize=None)
def _moses(language: str) -> Any:
    from sacremoses import MosesTokenizer

    return MosesTokenizer(language)


def words_of(text: str, language: str | None, lowercase: bool) -> list[str]:
    """Cut a line by the rules for a language, or at spaces if the language is None."""
    words = text.split() if language is None else tokenize(text, language)
    # Lower-case afterwards: the tokeniser reads a capital after a full stop as a new sentence.
    return [word.lower() for word in words] if lowercase else words


def tokenize(text: str, language: str) -> list[str]:
    """Cut raw text into words; each of fairseq's own symbols stays one word."""
    if _PLAIN.fullmatch(text):  # a shortcut for lists of speech recognisers
        return text.split()
    # sacremoses' protected_patterns would join a word and the full stop after it, and fail beyond
    # 1,000 in a line.
    words: list[str] = []
    for part in re.split(f"({'|'.join(SPECIALS)})", text):
        is_special = part in SPECIALS
        words += [part] if is_special else _moses(language).tokenize(part, escape=False)
    return words
