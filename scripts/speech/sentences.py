"""Sentences of the novels: as a voice reads them, and as words that a recogniser writes."""

import random
import re
from typing import Dict, Iterable, List, NamedTuple

UNKNOWN = "<unk>"
LENGTHS = range(5, 26)  # words of a sentence that is spoken
LONGEST = 60  # of one that the language model learns from: lists of contents are longer

# Penn-style words whose parts belong together, and hyphens that today's dictionaries left behind.
_PARTS = re.compile(
    r" (?=(?:n't|'(?:s|m|d|ll|re|ve))(?!\S))|(?<=\bcan) (?=not\b)|(?<=(?<!\S)'t) (?=(?:is|was)\b)"
)
_JOINED = re.compile(r"\bto-(?=(?:day|night|morrow)\b)")
_GAP = re.compile(r"[^a-z0-9']+")
# Neither numbers nor abbreviations: how a voice reads them is not how they are written.
_SPEAKABLE = re.compile(r"(?:[a-z'`,;:!?-]+|[.]+)(?: (?:[a-z'`,;:!?-]+|[.]+))*")
_QUOTES = re.compile(r"(?<!\S)(?:``?|''?)(?!\S)")


class Sentence(NamedTuple):
    """One to be spoken: with punctuation for the voice, and as words alone."""

    spoken: str
    words: str


def normalised(text: str) -> str:
    """Return words in lower case, without punctuation, as novels and hypotheses have them."""
    found: List[str] = []
    for token in _whole(text.lower()).split():
        if token == UNKNOWN:
            found.append(token)
        else:
            parts = _GAP.split(token.replace(".", ""))
            found += [word for word in (part.strip("'") for part in parts) if word]
    return " ".join(found)


def spoken(text: str) -> str:
    """Return text with punctuation behind words again, without quotation marks."""
    text = _QUOTES.sub("", _whole(text)).replace("--", ",").replace("-", " ")
    return re.sub(r"\s+(?=[,;:!?.])", "", " ".join(text.split())).lstrip(",;:!?. ")


def speakable(lines: Iterable[str]) -> Dict[str, Sentence]:
    """Return the Penn-style sentences of LENGTHS by their words, each once."""
    found: Dict[str, Sentence] = {}
    for line in lines:
        if _SPEAKABLE.fullmatch(line):
            words = normalised(line)
            if len(words.split()) in LENGTHS:
                found.setdefault(words, Sentence(spoken(line), words))
    return found


def drawn(found: Dict[str, Sentence], count: int, seed: int) -> List[Sentence]:
    """Draw sentences at random."""
    return random.Random(seed).sample(sorted(found.values()), count)


def _whole(text: str) -> str:
    return _JOINED.sub("to", _PARTS.sub("", text))
