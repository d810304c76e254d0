"""N-best lists as Moses writes them: ``id ||| hypothesis ||| features ||| score``.

More fields may follow (alignments). Features are ``name= 1 2 3``, ``name=1`` or, in old lists,
``name: 1 2 3``; numbers before the first name stay as they are and can't be weighted.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Features, Hypothesis, number
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

SEPARATOR = "|||"
SCORE = "score"  # the feature with the list's own total
FORM = "id ||| hypothesis ||| features ||| score"
_ENDS_IN_NAME_AND_VALUE = re.compile(r"=[^\s=]+\s*$")


class MosesFormat:
    """Reads and writes hypotheses; what is not changed stays byte for byte."""

    name = "moses"
    total = SCORE

    def hypotheses(self, lines: Iterable[Line]) -> Iterator[Hypothesis]:
        """Yield the hypotheses; raise InputError for a line of another form."""
        return map(parse, lines)

    def annotated(self, hypothesis: Hypothesis) -> str:
        """Return the line with the added features after its own."""
        return SEPARATOR.join(_with_added(hypothesis))

    def rescored(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the line with the added features and another score."""
        fields = _with_added(hypothesis)
        fields[3] = fields[3].replace(fields[3].strip(), format_number(total))
        return SEPARATOR.join(fields)

    def best(self, hypothesis: Hypothesis) -> str:
        """Return the words as the list has them."""
        return hypothesis.parts[1].strip(" \t")

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return references by list ids: list ``i`` has line ``i`` (from 0) of each file."""
        texts = [_references(name) for name in names]
        for name, text in zip(names, texts):
            if len(text) != len(texts[0]):
                raise InputError(
                    f"{name}: required {len(texts[0])} lines, as {names[0]} has, got {len(text)}"
                )
        return {str(number): list(lines) for number, lines in enumerate(zip(*texts))}


def parse(line: Line) -> Hypothesis:
    """Parse a line of a list; raise InputError for a line of another form."""
    fields = line.text.split(SEPARATOR)
    list_id = strip_bom(fields[0].strip()).strip()
    if len(fields) < 4 or not list_id:
        raise line.error(f"'{FORM}'", quoted(line.text))
    if list_id.isascii() and list_id.isdigit():
        list_id = list_id.lstrip("0") or "0"  # list 007 has line 7 of the references
    features = _parse_features(fields[2], line)
    features[SCORE] = (number(fields[3].strip(), line, "the score"),)
    return Hypothesis(list_id, " ".join(fields[1].split()), features, line, fields)


def format_number(value: float) -> str:
    """Format nats and counts without trailing zeros."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _parse_features(text: str, line: Line) -> Features:
    """Return the values of each feature."""
    found: Dict[str, List[float]] = {}
    name = ""
    for token in text.split():
        label, value = _split(token)
        name = name if label is None else label
        values = found.setdefault(name, [])
        if value:
            values.append(number(value, line, "a feature's value"))
    return {name: tuple(values) for name, values in found.items()}


def _split(token: str) -> Tuple[Optional[str], str]:
    """Return (name, value) of ``name=``, ``name:`` and ``name=1``; (None, value) of a value.

    The last ``=`` counts: names of sparse features may contain ``=``.
    """
    if token.endswith((":", "=")) and len(token) > 1:
        return token[:-1], ""
    name, sign, value = token.rpartition("=")
    return (name, value) if sign and name else (None, token)


def _references(name: str) -> List[str]:
    return [readable(" ".join(strip_bom(line.text).split())) for line in numbered_lines(name)]


def _with_added(hypothesis: Hypothesis) -> List[str]:
    """Return the fields with the added features, in the style of the list's own."""
    fields = list(hypothesis.parts)
    if hypothesis.added:
        sign = "=" if _ENDS_IN_NAME_AND_VALUE.search(fields[2]) else "= "
        items = [f"{name}{sign}{format_number(v)}" for name, v in hypothesis.added.items()]
        fields[2] = " ".join([fields[2].rstrip(), *items, ""])
    return fields
