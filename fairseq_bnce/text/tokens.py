"""Words of raw text by sacremoses' rules, and fairseq's own symbols among them."""

from __future__ import annotations

import functools
import re
from typing import Any

from fairseq_bnce.errors import InputError, quoted

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = frozenset({BOS, PAD, EOS, UNK})


def check_language(flag: str, language: str | None) -> None:
    """Raise InputError for a language that sacremoses has no rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    codes = set(NonbreakingPrefixes().available_langs.values())
    known = sorted(codes | {"ja", "ko", "cjk"})  # these have rules, but no prefix lists
    if language not in known:
        raise InputError(f"{flag}: required one of {' '.join(known)}, got {quoted(language)}")


@functools.lru_cache(maxsize=None)
def moses(language: str) -> Any:
    """sacremoses' tokeniser for a language."""
    from sacremoses import MosesTokenizer

    return MosesTokenizer(language)


def escaped(word: str) -> str:
    """A word with Moses' escapes (``&apos;s`` for ``'s``)."""
    return word if word in SPECIALS else moses("en").escape_xml(word)


def unescaped(word: str) -> str:
    """A word without Moses' escapes."""
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer().unescape_xml(word)


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
        words += [part] if part in SPECIALS else moses(language).tokenize(part, escape=False)
    return words
