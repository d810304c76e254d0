"""How the words of a model's training text were made, kept in text.json beside dict.txt.

prepare-text and get-data write the file. Training copies it into the task's state, so that a
checkpoint says how text has to be cut into words before the model can score it.
"""

from __future__ import annotations

import functools
import json
import logging
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Union

from fairseq_bnce.errors import InputError, require
from fairseq_bnce.text import reading, tokens
from fairseq_bnce.text.tokens import penn_words

logger = logging.getLogger(__name__)
NAME = "text.json"
NONE, SACREMOSES, PENN = "none", "sacremoses", "penn"
_REMEMBERED = 2**18  # words
MANY = 0.2  # a larger share of unknown words is a mistake of the user
FIRST = 1000  # words, after which the share is checked: a text may have no end


class TrainingText(NamedTuple):
    """The steps from a line of text to its words.

    Attributes:
        tokenizer: "sacremoses", "penn" (the rules of get-data mscc), or "none" where words stood
            between spaces already.
        language: the language of sacremoses' rules; None for the other tokenisers.
        lowercase: whether all letters were lower-cased, after the line was cut.
        escape: False; a field of the file that no command sets.
        normalize: "nfc", "punctuation" (Moses' rules, after NFC), or None.
    """

    tokenizer: str = NONE
    language: Optional[str] = None
    lowercase: bool = False
    escape: bool = False
    normalize: Optional[str] = None

    @classmethod
    def of(cls, found: object) -> TrainingText:
        """Build from the fields in a file or a checkpoint.

        Raises:
            ValueError: for an unknown field, tokeniser, language or normalisation.
        """
        if not isinstance(found, dict) or not set(found) <= set(cls._fields):
            raise ValueError(f"required a dictionary of {', '.join(cls._fields)}")
        built = cls(**found)
        if built.tokenizer == SACREMOSES:
            tokens.check_language("language", built.language)
        tokenizers, kinds = (NONE, SACREMOSES, PENN), (None, tokens.NFC, tokens.PUNCTUATION)
        require("tokenizer", f"one of {tokenizers}", built.tokenizer, built.tokenizer in tokenizers)
        require("normalize", f"one of {kinds}", built.normalize, built.normalize in kinds)
        return built

    def fields(self) -> Dict[str, object]:
        """Return the fields to keep, for :meth:`of` of earlier versions without ``normalize``."""
        return {k: value for k, value in self._asdict().items() if k != "normalize" or value}

    def __str__(self) -> str:
        how = {
            NONE: "words stand between spaces",
            SACREMOSES: f"words are cut by sacremoses for {self.language!r}",
            PENN: "words are cut by the Penn rules of get-data mscc",
        }[self.tokenizer]
        how += f", normalised ({self.normalize})" if self.normalize else ""
        return how + " and lower-cased" * self.lowercase

    def words(self, line: str) -> List[str]:
        """Cut a line into words as the training text was cut.

        ``<unk>`` stays one word. ``<s>`` before and ``</s>`` behind the line are dropped, since
        scoring adds its own.
        """
        return self._finished(self._cut(line))

    def new_words(self, line: str) -> List[str]:
        """Cut a line as :meth:`words` does, unless it is cut already.

        Cutting twice would spoil words: sacremoses turns "that 's" into "that ' s". A line counts
        as cut already if each of its words, cut alone, stays one word.
        """
        words = tokens.normalized_words(line.split(), self.normalize, self.language)
        # A full stop may belong to its word, which depends on how the next word begins.
        following = [word[:1] for word in words[1:]] + [""]
        after = [first if word[-1] == "." else "" for word, first in zip(words, following)]
        stays = functools.partial(_stays, self._replace(normalize=None))
        is_cut = all(map(stays, words, after))
        return self._finished(words) if is_cut else self.words(line)

    def _finished(self, words: List[str]) -> List[str]:
        # Lower-case afterwards: sacremoses reads a capital after a full stop as a new sentence.
        words = [word.lower() for word in words] if self.lowercase else words
        words = words[1:] if words[:1] == [tokens.BOS] else words
        return words[:-1] if words[-1:] == [tokens.EOS] else words

    def _cut(self, line: str) -> List[str]:
        if self.tokenizer == PENN:
            return penn_words(tokens.normalized(line, self.normalize, self.language))
        return tokens.words_of(line, self.language, self.normalize)


@functools.lru_cache(_REMEMBERED)
def _stays(made: TrainingText, word: str, after: str) -> bool:
    """Return whether a word stays one word, alone or beside another word."""
    if word in tokens.SPECIALS or made.tokenizer == PENN and word == "'t":  # "'t is"
        return True
    if after and made._cut(f"{word} {after}") == [word, after]:
        return True
    return made._cut(word) == [word] or made._cut(f"x{word}") == ["x", word]


class ModelWords:
    """Cuts lines into a model's words, and warns once if the model does not know many of them.

    Args:
        made: how to cut lines.
        as_trained: whether the training text was cut like this. A line that is cut already is then
            not cut again, and the first other line is logged.
        at_spaces: what a user writes to have lines cut at spaces only.
        see: what a user should look up if many words are unknown.
    """

    def __init__(self, made: TrainingText, as_trained: bool, at_spaces: str, see: str):
        self._made, self._at_spaces, self._see = made, at_spaces, see
        self._cut = made.new_words if as_trained else made.words
        # What is not logged, or not again. All copies, one for each text, share it.
        self._logged: Set[str] = set() if as_trained else {"cut"}
        self._count = self._unknown = 0

    def __call__(self, line: str) -> str:
        """Separate the words of a line by spaces."""
        return " ".join(self.cut(line))

    def cut(self, line: str) -> List[str]:
        """Return the words of a line, without a byte order mark before them."""
        line = reading.strip_bom(line)
        words = self._cut(line)
        if "cut" not in self._logged and words != line.split():
            self._logged.add("cut")
            logger.warning(f"as for training, {self._made} ({self._at_spaces}: cut only at spaces)")
        return words

    def count(self, words: int, unknown: int) -> None:
        """Add scored words, without ``</s>``, and those of them that the model does not know."""
        self._count, self._unknown = self._count + words, self._unknown + unknown
        if self._count >= FIRST:
            self.end()

    def counting(self, windows: Iterable[Any]) -> Iterator[Any]:
        """Yield lists of :class:`fairseq_bnce.scoring.SentenceScore`, and count their words."""
        for window in windows:
            for score in window:
                self.count(len(score.words) - 1, score.oov)
            yield window
        self.end()

    def end(self) -> None:
        """Warn once if more than a fifth of the words are unknown."""
        if "unknown" not in self._logged and self._unknown > MANY * self._count:
            self._logged.add("unknown")
            count = f"{self._unknown:,} of {self._count:,} words"
            share = f"({self._unknown / self._count:.0%}) are out of the vocabulary"
            hint = f"are they cut and cased as those of the training text? Here {self._made}"
            logger.warning(f"{count} {share}; {hint} (see {self._see})")


def read(folder: Union[str, Path]) -> Optional[TrainingText]:
    """Read the file of a folder; None without a file. Raise InputError for other contents."""
    path = Path(folder, NAME)
    try:
        return TrainingText.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: required how the text was made, got: {error}") from None


def write(folder: Path, how: TrainingText) -> None:
    """Write the file into a folder."""
    text = json.dumps(how.fields(), indent=1) + "\n"
    Path(folder, NAME).write_text(text, encoding="utf-8")
