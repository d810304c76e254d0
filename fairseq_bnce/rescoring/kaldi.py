"""N-best lists as Kaldi's nbest-to-linear and int2sym.pl write them: ``utterance-n word word ...``.

Costs (of the acoustic model, of a language model) are in files of their own with the same keys,
``utterance-n cost``. Costs are negative log-probabilities: less is better. Inside this package
features are their negatives; what is written is costs again.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Features, Hypothesis, number
from fairseq_bnce.rescoring.moses import format_number
from fairseq_bnce.text.lines import Line, LineSource, readable, unmarked

FORM = "utterance-n word word ..."
_RANK = re.compile("0|[1-9][0-9]{0,4}")  # ids of plain texts often end in 0000, or a longer number


class KaldiFormat:
    """Reads hypotheses with their costs, and writes costs, or the hypotheses' lines as they were.

    Args:
        costs: files by the names that their costs have among the features.

    Raises:
        InputError: for a file that can't be opened.
    """

    name = "kaldi"
    total = None

    def __init__(self, costs: Mapping[str, str]):
        self.costs = {name: LineSource(file) for name, file in costs.items()}

    def hypotheses(self, lines: Iterable[Line]) -> Iterator[Hypothesis]:
        """Some 100 bytes of each utterance are kept.

        Raises:
            InputError: for a line of another form, a key that comes twice, or other keys in a file
                of costs.
        """
        ranks: Dict[str, int] = {}  # those of each utterance so far, as bits
        for line, *costs in zip_longest(lines, *self.costs.values()):
            if line is None:
                extra = next(cost for cost in costs if cost is not None)
                raise extra.error("no more keys than hypotheses", quoted(extra.text))
            yield self._hypothesis(line, costs, ranks)

    def annotated(self, hypothesis: Hypothesis) -> str:
        """Its key and the cost that was added: several as a vector of Kaldi's text form."""
        costs = [format_number(-value) for value in hypothesis.added.values()]
        text = costs[0] if len(costs) == 1 else f" [ {' '.join(costs)} ]"
        return f"{hypothesis.parts} {text}"

    def rescored(self, hypothesis: Hypothesis, total: float) -> str:
        """Its line as it was; keys stay, so that whatever else is stored by them still fits."""
        return hypothesis.line.text

    def best(self, hypothesis: Hypothesis) -> str:
        """Its words as an entry of a Kaldi text: ``utterance word word ...``."""
        _, *words = unmarked(hypothesis.line.text).split(None, 1)
        return " ".join([hypothesis.list_id, *words]).rstrip()

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Kaldi texts, by utterance.

        Raises:
            InputError: for an empty line, or an utterance that a file has twice or lacks.
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
    """(key, words)"""
    key, *words = unmarked(line.text).split() or [""]
    if not key:
        raise line.error(f"{FORM!r}", "an empty line")
    return key, " ".join(words)


def _cost(key: str, line: Line, cost: Optional[Line], source: str) -> float:
    if cost is None:
        raise InputError(
            f"{source}: required a cost of {key} ({line.source}, line {line.number}), got no more "
            "lines"
        )
    fields = unmarked(cost.text).split()
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
