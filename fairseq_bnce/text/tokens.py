"""Cut raw text into words.

Either by sacremoses' rules, where fairseq's own symbols stay whole, or as in the Penn Treebank, for
the sentence-completion corpus.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Callable

from fairseq_bnce.errors import InputError, quoted

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = frozenset({BOS, PAD, EOS, UNK})
NFC, PUNCTUATION = "nfc", "punctuation"  # what to normalise


def check_language(flag: str, language: str | None) -> None:
    """Raise InputError for a language that sacremoses has no rules for."""
    from sacremoses.corpus import NonbreakingPrefixes

    codes = set(NonbreakingPrefixes().available_langs.values())
    known = sorted(codes | {"ja", "ko", "cjk"})  # these have rules, but no prefix lists
    if language not in known:
        raise InputError(f"{flag}: required one of {' '.join(known)}, got {quoted(language)}")


@functools.lru_cache(maxsize=None)
def moses(language: str) -> Callable[[str], list[str]]:
    """Return sacremoses' tokeniser for a language."""
    from sacremoses import MosesTokenizer

    return functools.partial(MosesTokenizer(language).tokenize, escape=False)


def normalized(text: str, how: str | None, language: str | None) -> str:
    """Return a raw line in Unicode's NFC and, for PUNCTUATION, with Moses' quotes and dashes."""
    text = unicodedata.normalize("NFC", text) if how else text
    return _punctuation(language or "en")(text) if how == PUNCTUATION else text


_normalized_word = functools.lru_cache(2**16)(normalized)


def normalized_words(words: list[str], how: str | None, language: str | None) -> list[str]:
    """Normalise words one by one: in a line that is cut, Moses' rules would join some of them."""
    if how is None:
        return words
    return " ".join(_normalized_word(word, how, language) for word in words).split()


@functools.lru_cache(maxsize=None)
def _punctuation(language: str) -> Callable[[str], str]:
    from sacremoses import MosesPunctNormalizer

    # sacremoses' rule for numbers replaces a no-break space between digits by a full stop or comma.
    return MosesPunctNormalizer(language, norm_numbers=False).normalize


def words_of(text: str, language: str | None, how: str | None = None) -> list[str]:
    """Normalise a line, and cut it by the rules for a language, or at spaces if it is None.

    ``how`` to normalise is as for :func:`normalized`.
    """
    if language is None:
        return normalized_words(text.split(), how, None)
    text = normalized(text, how, language)
    # sacremoses' protected_patterns would join a word and the full stop after it, and fail beyond
    # 1,000 in a line.
    parts = re.split(f"({'|'.join(SPECIALS)})", text)
    cut = ([part] if part in SPECIALS else moses_words(part, language) for part in parts)
    return [word for some in cut for word in some]


def moses_words(text: str, language: str) -> list[str]:
    """Cut a line as sacremoses does, from a cache of chunks, the parts between spaces.

    sacremoses' patterns treat chunks independently, with three exceptions. An apostrophe or a comma
    at the edge of a chunk needs a space beside it. A full stop at the end of a chunk depends on the
    start of the next chunk. Of two apostrophes around a space, the first may hide the space from
    the second. So each chunk is cut beside what matters of its neighbours, and the whole line is
    cut at once if apostrophes meet or sacremoses' own marks occur.
    """
    chunks = _LETTER_COMMA.sub(" , ", _SYMBOL.sub(r" \g<0> ", text)).split()
    if "' '" in " ".join(chunks) or _UNUSUAL.search(text):
        return moses(language)(text)
    words: list[str] = []
    last = len(chunks) - 1
    for number, chunk in enumerate(chunks):
        has_before = number > 0 and chunk[0] in "',"
        after = ""
        if number < last and chunk[-1] in "',.":
            after = chunks[number + 1][0]
        words += _chunk_words(language, chunk, has_before, after)
    return words


# Characters that sacremoses separates by spaces first.
_SYMBOL = re.compile(r"""[!-&(-+/:-@\[-_{-~]""")
_LETTER_COMMA = re.compile(r"(?<=[A-Za-z]),(?!\S)")
# Control characters that sacremoses drops, and its mark for several full stops.
_UNUSUAL = re.compile(r"[\x00-\x08\x0e-\x1b]|DOTMULTI")
_REMEMBERED = 2**16  # chunks


@functools.lru_cache(_REMEMBERED)
def _chunk_words(language: str, chunk: str, has_before: bool, after: str) -> tuple[str, ...]:
    line = "x " * has_before + chunk + f" {after}" * bool(after)
    words = moses(language)(line)
    return tuple(words[has_before : len(words) - bool(after)])


# Words that begin with an apostrophe; any other apostrophe before a word opens a quotation.
ELISIONS = "em|tis|twas|twere|twill|twould|til|till|bout|cause|round|neath|gainst|ere|n"
PENN_RULES = [
    (re.compile(pattern, re.I), replacement)
    for pattern, replacement in (
        (r'(^|[\s(\[{<`-])"', r"\1 `` "),
        (r'"', " '' "),
        (r"``|''", r" \g<0> "),
        (r"-{2,}", " -- "),
        (r"\.(?:\s?\.)+", " ... "),
        (r"[;@#$%&?!()\[\]{}<>*=|~^]", r" \g<0> "),
        (r"[:,](?!\d)", r" \g<0> "),
        # The last full stop only: those before it belong to abbreviations.
        (r"(?<=[^\s.])\.([\s\])}>']*)$", r" . \1"),
        (rf"(?<!\S)'(?=[^\s'])(?!(?:{ELISIONS})\b)", " ` "),
        (r"(?<=[^\s'])'(?=\s|$)", " ' "),
        (r"(?<=\w)n't\b", " n't"),
        (r"(?<=\w)'(?:s|m|d|ll|re|ve)\b", r" \g<0>"),
        (r"\b(can)(not)\b", r"\1 \2"),
        (r"(?<!\S)('t)(is|was)\b", r"\1 \2"),
    )
]


def penn_words(sentence: str) -> list[str]:
    """Cut a sentence as in the Penn Treebank.

    Punctuation stands alone, quotes are `` and '', contractions are in two (do n't, it 's), and
    a full stop is a word of its own at the end of the sentence only.
    """
    for pattern, replacement in PENN_RULES:
        sentence = pattern.sub(replacement, sentence)
    return sentence.split()


def novel_words(sentence: str) -> str:
    """Return Penn-style words in lower case, separated by spaces, as in the corpus's novels."""
    return " ".join(penn_words(sentence)).lower()
