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
        words += [part] if part in SPECIALS else moses_words(part, language)
    return words


def moses_words(text: str, language: str) -> list[str]:
    """The words that sacremoses makes of a line, most of them remembered.

    sacremoses runs a dozen patterns over the line, all of which work on chunks (what stands between
    spaces) by themselves, with three exceptions. An apostrophe or a comma at the edge of a chunk
    needs a space beside it, which the ends of a line lack. A full stop at the end of a chunk
    depends on how the next chunk begins. Of two apostrophes around one space, the first may hide
    the space from the second. So chunks are cut one by one, with stand-ins for their neighbours,
    and the whole line is cut at once where apostrophes meet or sacremoses' own marks occur.
    """
    chunks = _LETTER_COMMA.sub(" , ", _SYMBOL.sub(r" \g<0> ", text)).split()
    if "' '" in " ".join(chunks) or _UNUSUAL.search(text):
        return moses(language).tokenize(text, escape=False)
    words: list[str] = []
    last = len(chunks) - 1
    for number, chunk in enumerate(chunks):
        if len(chunk) == 1 or chunk.isascii() and chunk.isalnum():
            words.append(chunk)
            continue
        has_before = number > 0 and chunk[0] in "',"
        after = ""
        if number < last and chunk[-1] in "',.":
            after = _stand_in(language, chunks[number + 1][0])
        words += _chunk_words(language, chunk, has_before, after)
    return words


# What sacremoses puts between spaces before all else, wherever it stands.
_SYMBOL = re.compile(r"""[!-&(-+/:-@\[-_{-~]""")
_LETTER_COMMA = re.compile(r"(?<=[A-Za-z]),(?!\S)")
# Characters that sacremoses drops and that are no white space; its mark for several full stops.
_UNUSUAL = re.compile(r"[\x00-\x08\x0e-\x1b]|DOTMULTI")
_REMEMBERED = 2**16  # chunks


@functools.lru_cache(_REMEMBERED)
def _chunk_words(language: str, chunk: str, has_before: bool, after: str) -> tuple[str, ...]:
    line = "x " * has_before + chunk + f" {after}" * bool(after)
    words = moses(language).tokenize(line, escape=False)
    return tuple(words[has_before : len(words) - bool(after)])


@functools.lru_cache(_REMEMBERED)
def _stand_in(language: str, letter: str) -> str:
    """A letter that sacremoses treats like this one at the start of the next chunk."""
    if letter in "0123456789":
        return "1"
    return "x" if moses(language).islower(letter) else "("
