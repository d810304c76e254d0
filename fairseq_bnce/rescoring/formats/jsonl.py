"""JSON lines: ``{"id": ..., "nbest": [{"text": ..., "score": ...}, ...]}`` for each sentence.

Every number beside ``text`` is a feature, ``score`` the list's own total. Added features get keys
of their own; other keys stay.
"""

import json
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

from fairseq_bnce.errors import quoted
from fairseq_bnce.rescoring.lists import SCORE, Features, Format, Hypothesis, NBest, common
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

Entry = Dict[str, Any]  # of a list or a hypothesis
_LISTS = '{"id": ..., "nbest": [{"text": "...", "score": ...}, ...]}'
_TEXTS = '{"id": ..., "text": "..."}'


class JsonLines(Format):
    """Reads and writes objects."""

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:
        """Yield the lists; raise InputError for a line of another form, or without hypotheses."""
        for line in lines:
            found = _parsed(line, "nbest", list, _LISTS)
            each = [one.get("text") if isinstance(one, dict) else None for one in found["nbest"]]
            if not each or not all(isinstance(text, str) for text in each):
                raise line.error(_LISTS, quoted(line.text))
            list_id = str(found["id"])
            yield NBest(list_id, [_hypothesis(list_id, one, line) for one in found["nbest"]], found)

    def written(self, nbest: NBest, totals: Sequence[float] = ()) -> List[str]:
        """Return the object with the added features, and with totals as scores if given."""
        entries = super().written(nbest._replace(head=()), totals)
        return [json.dumps({**nbest.head, "nbest": entries}, ensure_ascii=False)]

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> Dict[str, object]:
        """Return the object of a hypothesis."""
        score = {} if total is None else {SCORE: round(total, 6)}
        return {**hypothesis.parts, **hypothesis.added, **score}

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the text, on one line."""
        return " ".join(hypothesis.parts["text"].splitlines())

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the texts of lines ``{"id": ..., "text": ...}``."""
        texts = [[_parsed(line, "text", str, _TEXTS) for line in numbered_lines(n)] for n in names]
        return common({str(one["id"]): readable(one["text"]) for one in text} for text in texts)


def _parsed(line: Line, key: str, kind: type, form: str) -> Entry:
    """Return an object with an id and a value of this kind."""
    try:
        found = json.loads(strip_bom(line.text))
        if isinstance(found, dict) and "id" in found and isinstance(found.get(key), kind):
            return found
    except ValueError:
        pass
    raise line.error(f"'{form}'", quoted(line.text))


def _hypothesis(list_id: str, found: Entry, line: Line) -> Hypothesis:
    features: Features = {key: (float(v),) for key, v in found.items() if type(v) in (int, float)}
    return Hypothesis(list_id, " ".join(found["text"].split()), features, line, found)
