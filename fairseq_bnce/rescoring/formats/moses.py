"""Moses' lists, ``id ||| hypothesis ||| features ||| score``.

More fields may follow (alignments). Features are ``name= 1 2 3``, ``name=1`` or, in old lists,
``name: 1 2 3``; numbers before the first name stay as they are and can't be weighted.

Nematus has no features, ``id ||| hypothesis ||| score``, and appends scores when it rescores: such
lists are written with a field of features.
"""

import re
from typing import Dict, Iterable, Iterator, List, Optional, Sequence

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring import lists
from fairseq_bnce.rescoring.lists import SCORE, Features, Format, Hypothesis, NBest
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

SEPARATOR = "|||"
FORM = "'id ||| hypothesis ||| score' or 'id ||| hypothesis ||| features ||| score'"
_ENDS_IN_NAME_AND_VALUE = re.compile(r"=[^\s=]+\s*$")


class Moses(Format):
    """Reads and writes hypotheses; what is not changed stays byte for byte."""

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:  # noqa: D102
        return lists.group(map(parse, lines))

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> str:
        """Return the line with the added features after its own, in their style."""
        fields = list(hypothesis.parts)
        if hypothesis.added:
            sign = "=" if _ENDS_IN_NAME_AND_VALUE.search(fields[2]) else "= "
            fields[2] = " ".join([fields[2].rstrip(), *added_items(hypothesis, sign), ""])
        if total is not None:
            fields[3] = fields[3].replace(fields[3].strip(), lists.format_number(total))
        return SEPARATOR.join(fields)

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the words as the list has them."""
        return hypothesis.parts[1].strip(" \t")

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return references by list ids: list ``i`` has line ``i`` (from 0) of each file."""
        texts = [[strip_bom(line.text).split() for line in numbered_lines(name)] for name in names]
        for name, text in zip(names, texts):
            if len(text) != len(texts[0]):
                required = f"required {len(texts[0])} lines, as {names[0]} has"
                raise InputError(f"{name}: {required}, got {len(text)}")
        rows = enumerate(zip(*texts))
        return {str(number): [readable(" ".join(words)) for words in row] for number, row in rows}


def parse(line: Line) -> Hypothesis:
    """Parse a line of a list; raise InputError for a line of another form."""
    fields = line.text.split(SEPARATOR)
    list_id = strip_bom(fields[0].strip()).strip()
    if len(fields) < 3 or not list_id:
        raise line.error(FORM, quoted(line.text))
    if len(fields) == 3:
        fields.insert(2, " ")
    if list_id.isascii() and list_id.isdigit():
        list_id = list_id.lstrip("0") or "0"  # list 007 has line 7 of the references
    features = parse_features(fields[2], line)
    scores = fields[3].split() or [""]
    features[SCORE] = tuple(lists.number(score, line, "the score") for score in scores)
    return Hypothesis(list_id, " ".join(fields[1].split()), features, line, fields)


def parse_features(text: str, line: Line) -> Features:
    """Return the values of each feature: of ``name= 1 2``, ``name: 1 2`` and ``name=1``."""
    found: Features = {}
    name = ""
    for token in text.split():
        label, sign, value = token.rpartition("=")  # names of sparse features may contain "="
        if token.endswith((":", "=")) and len(token) > 1:
            name, value = token[:-1], ""
        elif sign and label:
            name = label
        else:
            value = token
        if name == SCORE:
            raise line.error("features with other names than the list's total", quoted(SCORE))
        values = (lists.number(value, line, "a feature's value"),) if value else ()
        found[name] = found.get(name, ()) + values
    return found


def added_items(hypothesis: Hypothesis, sign: str) -> List[str]:
    """Return the added features as :func:`parse_features` reads them."""
    return [f"{name}{sign}{lists.format_number(value)}" for name, value in hypothesis.added.items()]
