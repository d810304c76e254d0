"""N-best lists as Kaldi's nbest-to-linear and int2sym.pl write them: ``utterance-n word word ...``.

Costs of the acoustic model and of language models are in separate files with the same keys,
``utterance-n cost``. Costs are negative log-probabilities. This package reads costs as features
with the opposite sign, and writes costs.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Features, Hypothesis, number
from fairseq_bnce.rescoring.moses import format_number
from fairseq_bnce.text.reading import Line, LineSource, readable, strip_bom

FORM = "utterance-n word word ..."
_RANK = re.compile("0|[1-9][0-9]{0,4}")  # ids of plain texts often end in 0000, or a longer number


class KaldiFormat:
    """Reads hypotheses with their costs; writes costs, or the hypotheses' unchanged lines.

    Args:
        costs: files of costs by the names of features.

    Raises:
        InputError: for a file that can't be opened.
    """

    name = "kaldi"
    total = None

    def __init__(self, costs: Mapping[str, str]):
        self.costs = {name: LineSource(file) for name, file in costs.items()}

    def hypotheses(self, lines: Iterable[Line]) -> Iterator[Hypothesis]:
        """Yield the hypotheses.

        Raises:
            InputError: for a line of another form, a repeated key, or other keys in a file of
                costs.
        """
        ranks: Dict[str, int] = {}  # by utterances; a bit for each rank so far
        for line, *costs in zip_longest(lines, *self.costs.values()):
            if line is None:
                extra = next(cost for cost in costs if cost is not None)
                raise extra.error("no more keys than hypotheses", quoted(extra.text))
            yield self._hypothesis(line, costs, ranks)

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
        """Return references by utterances, from Kaldi texts.

        Raises:
            InputError: for an empty line, or an utterance that a file repeats or lacks.
        """
        texts = [_text(name) for name in names]
        for name, text in zip(names, texts):
            missing = next(iter(texts[0].keys() ^ text.keys()), None)
            if missing is not None:
                raise InputError(
                    f"{name}: required the utterances of {names[0]}, got a difference: {missing}"
                )
        return {utterance: [text[utterance] for text in texts] for utterance in texts[0]}

    def _hypothesis(
        self, line: Line, costs: Sequence[Optional[Line]], ranks: Dict[str, int]
    ) -> Hypothesis:
        key, words = _cut(line)
        utterance, _, rank = key.rpartition("-")
        if not utterance or not _RANK.fullmatch(rank):
            required = f"{FORM!r}, n a number below 100,000 without leading zeros"
            raise line.error(required, quoted(key))
        bit = 1 << int(rank)
        if ranks.setdefault(utterance, 0) & bit:
            raise line.error("every key once", f"{quoted(key)} again")
        ranks[utterance] |= bit
        features: Features = {}
        for (name, source), cost in zip(self.costs.items(), costs):
            features[name] = (-_cost(key, line, cost, source.name),)
        return Hypothesis(utterance, words, features, line, key)


def _cut(line: Line) -> Tuple[str, str]:
    """Return (key, words)."""
    key, *words = strip_bom(line.text).split() or [""]
    if not key:
        raise line.error(f"{FORM!r}", "an empty line")
    return key, " ".join(words)


def _cost(key: str, line: Line, cost: Optional[Line], source: str) -> float:
    if cost is None:
        raise InputError(
            f"{source}: required a cost of {key} ({line.source}, line {line.number}), got no more "
            "lines"
        )
    fields = strip_bom(cost.text).split()
    if len(fields) != 2 or fields[0] != key:
        raise cost.error(
            f"'{key} cost', as in line {line.number} of {line.source}", quoted(cost.text)
        )
    return number(fields[1], cost, "the cost")


def _text(name: str) -> Dict[str, str]:
    found: Dict[str, str] = {}
    source = LineSource(name)
    for line in source:
        utterance, words = _cut(line)
        if utterance in found:
            raise line.error("every utterance once", f"{utterance} again")
        found[utterance] = readable(words)
    source.warn_of_bad_lines()
    return found
