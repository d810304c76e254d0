"""Cut sentences into Penn-style words, for the sentence-completion corpus."""

from __future__ import annotations

import re
from typing import List

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


def penn_words(sentence: str) -> List[str]:
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
