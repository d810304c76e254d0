"""Kaldi's lists: nbest-to-linear and int2sym.pl write ``utterance-n word word ...``.

Costs of the acoustic model and of language models are in separate files with the same keys,
``utterance-n cost`` or, of several costs, ``utterance-n  [ cost cost ]``. Costs are negative
log-probabilities. Costs are read as features with the opposite sign, and written as costs.
"""

import re
from itertools import zip_longest
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring import lists
from fairseq_bnce.rescoring.lists import Format, Hypothesis, NBest
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

_VECTOR = re.compile(r"\[ (.+) \]")  # a vector in Kaldi's text form
# Ids in plain texts often end in 0000 or in a longer number: their lines are no hypotheses.
_KEY = re.compile("(.+)-(?:0|[1-9][0-9]{0,4})")


class Kaldi(Format):
    """Reads hypotheses with their costs; writes costs, or the hypotheses' unchanged lines."""

    count_sign, metric, has_costs = -1, "wer", True
    own_features: Sequence[str] = ()

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:
        """Yield the lists.

        Raises:
            InputError: for a line of another form, a repeated key, or other keys in a file of
                costs.
        """
        return lists.group(_hypotheses(lines, costs))

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> str:
        """Return the key and the added cost, or costs as a vector in Kaldi's text form.

        With a total the line stays as it was: other files refer to its key.
        """
        if total is not None:
            return hypothesis.line.text
        costs = [lists.format_number(-value) for value in hypothesis.added.values()]
        text = costs[0] if len(costs) == 1 else f" [ {' '.join(costs)} ]"
        return f"{hypothesis.parts} {text}"

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return a line of a Kaldi text: ``utterance word word ...``."""
        _, *words = strip_bom(hypothesis.line.text).split(None, 1)
        return " ".join([hypothesis.list_id, *words]).rstrip()

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the references of each utterance that all these Kaldi texts have."""
        texts = [map(_split_key, numbered_lines(name)) for name in names]
        return lists.common({key: readable(words) for key, words in text} for text in texts)


def _hypotheses(lines: Iterable[Line], files: Dict[str, str]) -> Iterator[Hypothesis]:
    seen = set()
    names = ["NBEST", *files.values()]
    for row in zip_longest(lines, *map(numbered_lines, files.values())):
        if None in row:
            raise InputError(f"{names[row.index(None)]}: required all keys, got no more lines")
        line, *costs = row
        key, words = _split_key(line)
        match = _KEY.fullmatch(key)
        if match is None or key in seen:
            form = "'utterance-n word word ...', n below 100,000 without leading zeros, each once"
            raise line.error(form, quoted(key))
        seen.add(key)
        features = {name: _from_costs(cost, key) for name, cost in zip(files, costs)}
        yield Hypothesis(match[1], words, features, line, key)


def _split_key(line: Line) -> Tuple[str, str]:
    """Return (key, words)."""
    key, *words = strip_bom(line.text).split() or [""]
    return key, " ".join(words)


def _from_costs(line: Line, key: str) -> Tuple[float, ...]:
    """Return the values of a feature: the key's costs, one or a vector, with the opposite sign."""
    found, costs = _split_key(line)
    if found != key:
        raise line.error(f"'{key} cost', as the list has it", quoted(line.text))
    vector = _VECTOR.fullmatch(costs)
    each = vector[1].split() if vector else [costs]
    return tuple(-lists.number(cost, line, f"a cost of {key}") for cost in each)
