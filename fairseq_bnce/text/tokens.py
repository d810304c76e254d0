"""Words of raw text by sacremoses' rules, and fairseq's own symbols among them."""

from __future__ import annotations

import functools
import importlib.util
import re
from typing import Callable

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = frozenset({BOS, PAD, EOS, UNK})


def has_tokenizer() -> bool:
    """Whether sacremoses is installed."""
    return importlib.util.find_spec("sacremoses") is not None


def languages() -> list[str]:
    """The language codes that sacremoses has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    codes = set(NonbreakingPrefixes().available_langs.values())
    return sorted(codes | {"ja", "ko", "cjk"})  # these have rules, but no prefix lists


@functools.lru_cache(maxsize=None)
def tokenizer(language: str) -> Callable[[str], list[str]]:
    """sacremoses' tokeniser, without its XML escapes (``'s``, not ``&apos;s``)."""
    from sacremoses import MosesTokenizer

    return functools.partial(MosesTokenizer(language).tokenize, escape=False)


def words_of(text: str, language: str | None, lowercase: bool) -> list[str]:
    """The words of a line, by the rules for a language; None: they are separated already."""
    words = text.split() if language is None else tokenize(text, language)
    # Afterwards: a capital behind a full stop tells the tokeniser that a sentence ended.
    return [word.lower() for word in words] if lowercase else words


def tokenize(text: str, language: str) -> list[str]:
    """Words of raw text; fairseq's own symbols that the text has already stay one word each."""
    # Not sacremoses' protected_patterns: they glue the word to the full stop behind it,
    # and fail beyond 1,000 a line.
    words: list[str] = []
    for part in re.split(f"({'|'.join(SPECIALS)})", text):
        words += [part] if part in SPECIALS else tokenizer(language)(part)
    return words
