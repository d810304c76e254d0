"""N-best lists as Kaldi's nbest-to-linear and int2sym.pl write them: ``utterance-n word word ...``.

Costs of the acoustic model and of language models are in separate files with the same keys,
``utterance-n cost``. Costs are negative log-probabilities. This package reads costs as features
with the opposite sign, and writes costs.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Features, Hypothesis, number
from fairseq_bnce.rescoring.moses import format_number
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

# Ids in plain texts often end in 0000 or in a longer number: their lines are no hypotheses.
_KEY = re.compile("(.+)-(?:0|[1-9][0-9]{0,4})")


class KaldiFormat:
    """Reads hypotheses with their costs; writes costs, or the hypotheses' unchanged lines.

    Args:
        costs: the file of each feature's costs.
    """

    name = "kaldi"

    def __init__(self, costs: Mapping[str, str]):
        self.costs = costs

    def hypotheses(self, lines: Iterable[Line]) -> Iterator[Hypothesis]:
        """Yield the hypotheses.

        Raises:
            InputError: for a line of another form, a repeated key, or other keys in a file of
                costs.
        """
        seen = set()
        names = ["NBEST", *self.costs.values()]
        for row in zip_longest(lines, *map(numbered_lines, self.costs.values())):
            if None in row:
                raise InputError(f"{names[row.index(None)]}: required all keys, got no more lines")
            line, *costs = row
            key, words = _split(line)
            match = _KEY.fullmatch(key)
            if match is None:
                form = "'utterance-n word word ...', n below 100,000 without leading zeros"
                raise line.error(form, quoted(key))
            if key in seen:
                raise line.error("each key once", f"{quoted(key)} again")
            seen.add(key)
            features: Features = {
                name: (-_cost(cost, key),) for name, cost in zip(self.costs, costs)
            }
            yield Hypothesis(match.group(1), words, features, line, key)

    def annotated(self, hypothesis: Hypothesis) -> str:
        """Return the key and the added cost; several costs are a vector in Kaldi's text form."""
        costs = [format_number(-value) for value in hypothesis.added.values()]
        text = costs[0] if len(costs) == 1 else f" [ {' '.join(costs)} ]"
        return f"{hypothesis.parts} {text}"

    def rescored(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the unchanged line: other files refer to its key."""
        return hypothesis.line.text

    def best(self, hypothesis: Hypothesis) -> str:
        """Return a line of a Kaldi text: ``utterance word word ...``."""
        _, *words = strip_bom(hypothesis.line.text).split(None, 1)
        return " ".join([hypothesis.list_id, *words]).rstrip()

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the references of each utterance that all these Kaldi texts have."""
        texts = [_text(name) for name in names]
        common = set(texts[0]).intersection(*texts)
        return {utterance: [text[utterance] for text in texts] for utterance in common}


def _split(line: Line) -> Tuple[str, str]:
    """Return (key, words)."""
    key, *words = strip_bom(line.text).split() or [""]
    return key, " ".join(words)


def _cost(line: Line, key: str) -> float:
    found, cost = _split(line)
    if found != key:
        raise line.error(f"'{key} cost', as the list has it", quoted(line.text))
    return number(cost, line, f"the cost of {key}")


def _text(name: str) -> Dict[str, str]:
    return {utterance: readable(words) for utterance, words in map(_split, numbered_lines(name))}
