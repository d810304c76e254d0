"""N-best lists of one sentence each, as Moses, Kaldi and fairseq write them.

Moses has ``id ||| hypothesis ||| features ||| score``. More fields may follow (alignments).
Nematus has no features, ``id ||| hypothesis ||| score``, and appends scores when it rescores: such
lists are written with a field of features.
Features are ``name= 1 2 3``, ``name=1`` or, in old lists, ``name: 1 2 3``; numbers before the first
name stay as they are and can't be weighted.

Kaldi's nbest-to-linear and int2sym.pl write ``utterance-n word word ...``. Costs of the acoustic
model and of language models are in separate files with the same keys, ``utterance-n cost`` or, of
several costs, ``utterance-n  [ cost cost ]``. Costs are negative log-probabilities. This package
reads costs as features with the opposite sign, and writes costs.

fairseq-generate prints ``S-id``, ``T-id``, and ``H-id score words`` for each hypothesis, separated
by tabs. Lines with more about a hypothesis follow it: ``D-id score text``, detokenised, and others.
This package adds the line ``F-id name= value``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

Features = Dict[str, Tuple[float, ...]]

SEPARATOR = "|||"
SCORE = "score"  # the feature with the list's own total
FORM = "id ||| hypothesis ||| score' or 'id ||| hypothesis ||| features ||| score"
_ENDS_IN_NAME_AND_VALUE = re.compile(r"=[^\s=]+\s*$")
_VECTOR = re.compile(r"\[ (.+) \]")  # in Kaldi's text form
# Ids in plain texts often end in 0000 or in a longer number: their lines are no hypotheses.
_KEY = re.compile("(.+)-(?:0|[1-9][0-9]{0,4})")
_H_FORM = "'H-id TAB score TAB words'"
_PRINTED = re.compile("([A-Z])-([0-9]+)(?:_[0-9]+)?\t(.*)")  # E-id_step has a step


@dataclass
class Hypothesis:
    """One entry of a list.

    Attributes:
        list_id: the name of its list.
        words: its words, separated by spaces; bytes that are not UTF-8 are lone surrogates.
        features: the values of each feature in the list; a higher value is better.
        line: the line that it was read from.
        parts: what its format keeps of the line.
        added: the value of each added feature, in order; a higher value is better.
        head: the lines to write before the first hypothesis of its list.
    """

    list_id: str
    words: str
    features: Features
    line: Line
    parts: Any = None
    added: Dict[str, float] = field(default_factory=dict)
    head: Sequence[str] = ()

    def values(self, name: str) -> Tuple[float, ...]:
        """Return the values of a feature, added or not; empty if it has no such feature."""
        return (self.added[name],) if name in self.added else self.features.get(name, ())


class NBest(NamedTuple):
    """All hypotheses of one sentence, in their order."""

    list_id: str
    hypotheses: List[Hypothesis]


def group(hypotheses: Iterable[Hypothesis]) -> Iterator[NBest]:
    """Yield the lists of neighbouring hypotheses with one id, one list at a time."""
    for list_id, members in groupby(hypotheses, lambda hypothesis: hypothesis.list_id):
        yield NBest(list_id, list(members))


def unique_lists(lists: Iterable[NBest]) -> Iterator[NBest]:
    """Yield the lists; raise InputError for a list in two parts, which is not one sentence."""
    begun: Dict[str, int] = {}
    for nbest in lists:
        line = nbest.hypotheses[0].line
        if nbest.list_id in begun:
            raise line.error(
                "the hypotheses of a list one after the other",
                f"{quoted(nbest.list_id)} again, whose list began in line {begun[nbest.list_id]}",
            )
        begun[nbest.list_id] = line.number
        yield nbest


def number(text: str, line: Line, what: str) -> float:
    """Return the number that a text is; raise InputError, with ``what`` it should be."""
    try:
        return float(text)
    except ValueError:
        raise line.error(f"a number as {what}", quoted(text)) from None


class MosesFormat:
    """Reads and writes hypotheses; what is not changed stays byte for byte."""

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

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the words as the list has them."""
        return hypothesis.parts[1].strip(" \t")

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return references by list ids: list ``i`` has line ``i`` (from 0) of each file."""
        texts = [_numbered_references(name) for name in names]
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
    if len(fields) < 3 or not list_id:
        raise line.error(f"'{FORM}'", quoted(line.text))
    if len(fields) == 3:
        fields.insert(2, " ")
    if list_id.isascii() and list_id.isdigit():
        list_id = list_id.lstrip("0") or "0"  # list 007 has line 7 of the references
    features = _parse_features(fields[2], line)
    scores = fields[3].split() or [""]
    features[SCORE] = tuple(number(score, line, "the score") for score in scores)
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
        label, value = _split_feature(token)
        name = name if label is None else label
        if name == SCORE:
            raise line.error("features with other names than the list's total", quoted(SCORE))
        values = found.setdefault(name, [])
        if value:
            values.append(number(value, line, "a feature's value"))
    return {name: tuple(values) for name, values in found.items()}


def _split_feature(token: str) -> Tuple[Optional[str], str]:
    """Return (name, value) of ``name=``, ``name:`` and ``name=1``; (None, value) of a value.

    The last ``=`` counts: names of sparse features may contain ``=``.
    """
    if token.endswith((":", "=")) and len(token) > 1:
        return token[:-1], ""
    name, sign, value = token.rpartition("=")
    return (name, value) if sign and name else (None, token)


def _numbered_references(name: str) -> List[str]:
    return [readable(" ".join(strip_bom(line.text).split())) for line in numbered_lines(name)]


def _with_added(hypothesis: Hypothesis) -> List[str]:
    """Return the fields with the added features, in the style of the list's own."""
    fields = list(hypothesis.parts)
    if hypothesis.added:
        sign = "=" if _ENDS_IN_NAME_AND_VALUE.search(fields[2]) else "= "
        items = [f"{name}{sign}{format_number(v)}" for name, v in hypothesis.added.items()]
        fields[2] = " ".join([fields[2].rstrip(), *items, ""])
    return fields


class KaldiFormat:
    """Reads hypotheses with their costs; writes costs, or the hypotheses' unchanged lines.

    Args:
        costs: the file of each feature's costs.
    """

    def __init__(self, costs: Dict[str, str]):
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
            key, words = _split_key(line)
            match = _KEY.fullmatch(key)
            if match is None:
                form = "'utterance-n word word ...', n below 100,000 without leading zeros"
                raise line.error(form, quoted(key))
            if key in seen:
                raise line.error("each key once", f"{quoted(key)} again")
            seen.add(key)
            features: Features = {
                name: _from_costs(cost, key) for name, cost in zip(self.costs, costs)
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

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return a line of a Kaldi text: ``utterance word word ...``."""
        _, *words = strip_bom(hypothesis.line.text).split(None, 1)
        return " ".join([hypothesis.list_id, *words]).rstrip()

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the references of each utterance that all these Kaldi texts have."""
        return _common([_kaldi_text(name) for name in names])


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
    return tuple(-number(cost, line, f"a cost of {key}") for cost in each)


def _kaldi_text(name: str) -> Dict[str, str]:
    lines = map(_split_key, numbered_lines(name))
    return {utterance: readable(words) for utterance, words in lines}


def _common(texts: Sequence[Dict[str, str]]) -> Dict[str, List[str]]:
    """Return the references of each list that all texts have."""
    common = set(texts[0]).intersection(*texts)
    return {list_id: [text[list_id] for text in texts] for list_id in common}


class FairseqFormat:
    """Reads and writes what fairseq-generate and fairseq-interactive print, without their logs."""

    def hypotheses(self, lines: Iterable[Line]) -> Iterator[Hypothesis]:
        """Yield the hypotheses, with the text of the D- line if there is one.

        Raises:
            InputError: for a malformed H- or D- line, or if no line is a hypothesis.
        """
        found: Optional[Hypothesis] = None
        list_id = ""
        head: List[str] = []
        for line, kind, new_id, content in _printed(lines):
            if new_id != list_id:
                list_id, head = new_id, []
            if kind == "H":
                if found is not None:
                    yield found
                score, words = _score_and_words(content, line)
                features: Features = {SCORE: (score,)}
                found = Hypothesis(list_id, words, features, line, [line.text], head=head)
            elif found is None or found.list_id != list_id:
                head.append(line.text)
            else:
                found.parts.append(line.text)
                if kind == "D":
                    _, found.words = _score_and_words(content, line)
                elif kind == "F":
                    found.features.update(_parse_features(content, line))
        if found is None:
            raise InputError(f"NBEST: required lines {_H_FORM}, got none")
        yield found

    def annotated(self, hypothesis: Hypothesis) -> str:
        """Return the lines of the hypothesis, and an F- line with the added features."""
        return "\n".join(_lines(hypothesis))

    def rescored(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the lines of the hypothesis with another score, and the added features."""
        return "\n".join(_lines(hypothesis, total))

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the D- line, or else the H- line, with its new score."""
        first, *others = _lines(hypothesis, total)
        return next((line for line in others if line.startswith("D-")), first)

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the T- lines of the files, or line i for list i of files without such lines."""
        printed = [_printed(numbered_lines(name)) for name in names]
        texts = [
            {list_id: readable(text) for _, kind, list_id, text in one if kind == "T"}
            for one in printed
        ]
        return _common(texts) if all(texts) else MosesFormat().references(names)


def _printed(lines: Iterable[Line]) -> Iterator[Tuple[Line, str, str, str]]:
    """Yield (line, kind, list's id, content) of the lines that are not of fairseq's log."""
    for line in lines:
        match = _PRINTED.fullmatch(strip_bom(line.text))
        if match:
            yield line._replace(text=match.group()), match[1], match[2], match[3]


def _score_and_words(content: str, line: Line) -> Tuple[float, str]:
    score, tab, words = content.partition("\t")
    if not tab:
        raise line.error(_H_FORM, quoted(line.text))
    return number(score, line, "the score"), " ".join(words.split())


def _lines(hypothesis: Hypothesis, total: Optional[float] = None) -> List[str]:
    """Return the hypothesis's lines, with another score if one is given, and a line of features."""
    lines = []
    for line in hypothesis.parts:
        fields = line.split("\t", 2)
        if total is not None and line[0] in "HD":
            fields[1] = format_number(total)
        lines.append("\t".join(fields))
    if hypothesis.added:
        items = [f"{name}= {format_number(value)}" for name, value in hypothesis.added.items()]
        lines.append(f"F-{hypothesis.list_id}\t{' '.join(items)}")
    return lines


def build_format(name: str, costs: Dict[str, str]) -> Any:
    """Return the format of a name; ``costs`` are for :class:`KaldiFormat`."""
    return {"moses": MosesFormat(), "kaldi": KaldiFormat(costs), "fairseq": FairseqFormat()}[name]
