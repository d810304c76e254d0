"""What fairseq-generate and fairseq-interactive print, without their logs.

They print ``S-id``, ``T-id``, and ``H-id score words`` for each hypothesis, separated by tabs.
Lines with more about a hypothesis follow it: ``D-id score text``, detokenised, and others. This
package adds the line ``F-id name= value``.
"""

import re
from itertools import groupby
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.rescoring import lists
from fairseq_bnce.rescoring.formats.moses import Moses, added_items, parse_features
from fairseq_bnce.rescoring.lists import SCORE, Hypothesis, NBest
from fairseq_bnce.text.reading import Line, numbered_lines, readable, strip_bom

_H_FORM = "'H-id TAB score TAB words'"
_PRINTED = re.compile("([A-Z])-([0-9]+)(?:_[0-9]+)?\t(.*)")  # E-id_step has a step


class Fairseq(Moses):
    """Reads and writes the lines of hypotheses, and of their lists."""

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:
        """Yield the lists, with the text of the D- line if there is one.

        Raises:
            InputError: for a malformed H- or D- line, or if no line is a hypothesis.
        """
        is_empty = True
        for list_id, printed in groupby(_printed(lines), lambda one: one[2]):
            nbest = NBest(list_id, [], [])
            for line, kind, _, content in printed:
                if kind == "H":
                    score, words = _score_and_words(content, line)
                    found = Hypothesis(list_id, words, {SCORE: (score,)}, line, [])
                    nbest.hypotheses.append(found)
                (nbest.hypotheses[-1].parts if nbest.hypotheses else nbest.head).append(line.text)
                if kind == "D" and nbest.hypotheses:
                    _, found.words = _score_and_words(content, line)
                elif kind == "F" and nbest.hypotheses:
                    found.features.update(parse_features(content, line))
            if nbest.hypotheses:
                is_empty = False
                yield nbest
        if is_empty:
            raise InputError(f"NBEST: required lines {_H_FORM}, got none")

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> str:
        """Return the hypothesis's lines, with a total if given; an F- line has added features."""
        lines = []
        for line in hypothesis.parts:
            fields = line.split("\t", 2)
            if total is not None and line[0] in "HD":
                fields[1] = lists.format_number(total)
            lines.append("\t".join(fields))
        if hypothesis.added:
            lines.append(f"F-{hypothesis.list_id}\t{' '.join(added_items(hypothesis, '= '))}")
        return "\n".join(lines)

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the D- line, or else the H- line, with its new score."""
        first, *others = self.entry(hypothesis, total).split("\n")
        return next((line for line in others if line.startswith("D-")), first)

    def references(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Return the T- lines of the files, or line i for list i of files without such lines."""
        printed = [_printed(numbered_lines(name)) for name in names]
        texts = [{key: readable(t) for _, kind, key, t in one if kind == "T"} for one in printed]
        return lists.common(texts) if all(texts) else super().references(names)


def _printed(lines: Iterable[Line]) -> Iterator[Tuple[Line, str, str, str]]:
    """Yield (line, kind, list's id, content) of the lines that are not of fairseq's log."""
    for line in lines:
        match = _PRINTED.fullmatch(strip_bom(line.text))
        if match:
            yield line._replace(text=match[0]), match[1], match[2], match[3]


def _score_and_words(content: str, line: Line) -> Tuple[float, str]:
    score, tab, words = content.partition("\t")
    if not tab:
        raise line.error(_H_FORM, quoted(line.text))
    return lists.number(score, line, "the score"), " ".join(words.split())
