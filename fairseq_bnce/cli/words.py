"""Cut text into the model's words, and warn if many of them are unknown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from fairseq_bnce.cli.common import note
from fairseq_bnce.text.tokens import check_language
from fairseq_bnce.text.training_text import NONE, SACREMOSES, TrainingText

if TYPE_CHECKING:
    from fairseq_bnce.scoring import Scorer

MANY = 0.2  # a larger share of unknown words is a mistake of the user
FIRST = 1000  # words, after which the share is checked: a text may have no end


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add --tokenize and --lowercase."""
    group = parser.add_argument_group("words")
    add_tokenize(group)
    group.add_argument("--lowercase", action="store_true", help="lower-case everything")


def add_tokenize(group: argparse._ActionsContainer, usual: str = "between spaces") -> None:
    """Add --tokenize.

    Args:
        group: of options.
        usual: the words of a model whose checkpoint does not say how they were made.
    """
    group.add_argument(
        "--tokenize",
        metavar="LANG",
        help="tokenise by sacremoses' rules for this language, as prepare-text does, or 'none': "
        "words are what stands between spaces. By default words are made as the checkpoint says "
        "that those of the training text were, and lines that are cut already stay as they are; "
        f"if the checkpoint does not say it: {usual}",
    )


def check_text_options(options: argparse.Namespace) -> None:
    """Check --tokenize before a model is loaded.

    Raises:
        InputError: for a language that sacremoses has no rules for.
    """
    if options.tokenize not in (None, NONE):
        check_language("--tokenize", options.tokenize)


class ModelWords:
    """Cuts lines into a model's words, and warns once if the model does not know many of them.

    Args:
        options: of :func:`add_text_options`.
        scorer: of the model.
        usual: how to cut lines if the checkpoint does not say it, or says that words stood
            between spaces; by default at spaces.
        least: :meth:`end` reports a share of unknown words above this.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        scorer: Scorer,
        usual: Optional[TrainingText] = None,
        least: float = MANY,
    ):
        trained = scorer.training_text
        if options.tokenize == NONE:
            how = TrainingText()
        elif options.tokenize is not None:
            how = TrainingText(SACREMOSES, options.tokenize)
        elif trained is None or (usual is not None and trained.tokenizer == NONE):
            how = usual or TrainingText()
        else:
            how = trained
        self._how = how._replace(lowercase=how.lowercase or options.lowercase)
        self._is_noted = how is not trained
        self._words = self._how.words if self._is_noted else self._how.new_words
        self._least = least
        self._count = self._unknown = 0
        self._is_checked = self._has_warned = False

    def __call__(self, line: str) -> str:
        """Separate the words of a line by spaces."""
        words = self._words(line)
        if not self._is_noted and words != line.split():
            note(f"as for training, {self._how} (--tokenize none: as they stand)")
            self._is_noted = True
        return " ".join(words)

    def count(self, words: int, unknown: int) -> None:
        """Add scored words, without ``</s>``, and those of them that the model does not know."""
        self._count, self._unknown = self._count + words, self._unknown + unknown
        if self._count >= FIRST and not self._is_checked:
            self._is_checked = True
            self._report(MANY)

    def end(self) -> None:
        """Report the unknown words of the whole text, unless its start was reported."""
        if not self._has_warned:
            self._report(self._least)

    def _report(self, least: float) -> None:
        if self._unknown <= least * self._count:
            return
        share, hint = self._unknown / self._count, ""
        if share > MANY:
            self._has_warned = True
            hint = (
                "; are they cut and cased as those of the training text? Here "
                f"{self._how} (see --tokenize and --lowercase)"
            )
        note(
            f"{self._unknown:,} of {self._count:,} words ({share:.0%}) are out of the "
            f"vocabulary{hint}"
        )
