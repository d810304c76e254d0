"""N-best lists as Moses writes them: ``id ||| hypothesis ||| features ||| score``.

More fields may follow (alignments). Features are ``name= 1 2 3``, ``name=1`` or, in old lists,
``name: 1 2 3``; numbers before the first name stay as they are and can't be weighted.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring.lists import Features, Hypothesis, number
from fairseq_bnce.text.reading import Line, LineSource, readable, strip_bom

SEPARATOR = "|||"
SCORE = "score"  # the feature with the list's own total
FORM = "id ||| hypothesis ||| features ||| score"


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
        fields[3] = _replace(fields[3], format_number(total))
        return SEPARATOR.join(fields)

    def best(self, hypothesis: Hypothesis) -> str:
        """Return the words, as they stand in the list."""
        return hypothesis.parts[1].strip(" \t")

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return references by list ids: list ``i`` has line ``i`` (from 0) of each file."""
        texts = [_references(LineSource(name)) for name in names]
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
    features = parse_features(fields[2], line)
    if SCORE in features:
        raise line.error(f"no feature of the name {SCORE!r}, which stands for the total", "one")
    features[SCORE] = (number(fields[3].strip(), line, "the score"),)
    words = " ".join(fields[1].split())
    return Hypothesis(_plain_id(list_id), words, features, line, fields)


def parse_features(text: str, line: Line) -> Features:
    """Return values by names; raise InputError for a repeated name or a text that is no number."""
    found: Dict[str, List[float]] = {}
    name: Optional[str] = None
    for token in text.split():
        label, value = _cut(token)
        if label is not None:
            name = label
            if name in found:
                raise line.error("every feature once", f"{quoted(name)} twice")
            found[name] = []
        if value:
            found.setdefault(name or "", []).append(number(value, line, "a feature's value"))
    return {name: tuple(values) for name, values in found.items()}


def format_number(value: float) -> str:
    """Format nats and counts without trailing zeros."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _references(source: LineSource) -> List[str]:
    found = [_reference(line) for line in source]
    source.warn_of_bad_lines()
    return found


def _reference(line: Line) -> str:
    """Return a reference's words, cut as those of hypotheses."""
    text = strip_bom(line.text) if line.number == 1 else line.text
    return readable(" ".join(text.split()))


def _plain_id(text: str) -> str:
    """Return an id without leading zeros: list 007 has line 7 of the references."""
    return text.lstrip("0") or "0" if text.isascii() and text.isdigit() else text


def _cut(token: str) -> Tuple[Optional[str], str]:
    """Return (name, value) of ``name=``, ``name:`` and ``name=1``; (None, value) of a value.

    The last ``=`` counts: names of sparse features may contain ``=``.
    """
    if token.endswith((":", "=")) and len(token) > 1:
        return token[:-1], ""
    name, sign, value = token.rpartition("=")
    return (name, value) if sign and name else (None, token)


def _with_added(hypothesis: Hypothesis) -> List[str]:
    fields = list(hypothesis.parts)
    if not hypothesis.added:
        return fields
    sign = "=" if _is_tight(fields[2]) else "= "
    items = (f"{name}{sign}{format_number(value)}" for name, value in hypothesis.added.items())
    fields[2] = _append(fields[2], " ".join(items))
    return fields


def _is_tight(features: str) -> bool:
    """Return whether the last name is written without a space before its value."""
    labels = [token for token in features.split() if "=" in token or token.endswith(":")]
    return bool(labels) and not labels[-1].endswith(("=", ":"))


def _append(field: str, text: str) -> str:
    body = field.rstrip()
    return f"{body} {text}{field[len(body) :]}" if body else f" {text} "


def _replace(field: str, text: str) -> str:
    body = field.strip()
    start = field.index(body)
    return f"{field[:start]}{text}{field[start + len(body) :]}"
