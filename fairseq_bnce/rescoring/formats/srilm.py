"""SRILM's lists, nbest-format(5): a file for each sentence, ``ascore lscore nwords word ...``.

The files are named in a file, as SRILM's ``-nbest-files`` reads it. A list's id is the name of its
file, without the folder and the end of a compressed file. Output has the id at the beginning of
each line. Of the formats with a header, ``NBestList1.0`` and ``NBestList2.0``, none is read.
"""

import os
import re
from typing import Dict, Iterable, Iterator, Optional, Tuple

from fairseq_bnce.errors import quoted
from fairseq_bnce.rescoring.formats.kaldi import Kaldi
from fairseq_bnce.rescoring.lists import Hypothesis, NBest, format_number, number
from fairseq_bnce.text.reading import Line, numbered_lines, strip_bom
from fairseq_bnce.text.tokens import BOS, EOS

_SCORES = ["ascore", "lscore", "nwords"]


class Srilm(Kaldi):
    """Reads hypotheses; writes scores alone, or unchanged lines. References are as Kaldi's."""

    count_sign, has_costs, own_features = 1, False, _SCORES

    def read(self, lines: Iterable[Line], costs: Dict[str, str]) -> Iterator[NBest]:
        """Yield the list of each file; raise InputError for a line of another form."""
        for name in lines:
            path = strip_bom(name.text).strip()
            list_id = re.sub(r"\.(gz|bz2|xz)$", "", os.path.basename(path))
            hypotheses = [_hypothesis(list_id, line) for line in numbered_lines(path)]
            if not hypotheses:
                raise name.error("a file of hypotheses", f"{path} without")
            yield NBest(list_id, hypotheses)

    def entry(self, hypothesis: Hypothesis, total: Optional[float]) -> str:
        """Return the id and the added scores, or with a total the unchanged line."""
        if total is not None:
            return f"{hypothesis.list_id} {hypothesis.line.text}"
        return " ".join([hypothesis.list_id, *map(format_number, hypothesis.added.values())])

    def best(self, hypothesis: Hypothesis, total: float) -> str:
        """Return the id and the words."""
        return f"{hypothesis.list_id} {hypothesis.words}".rstrip()


def _hypothesis(list_id: str, line: Line) -> Hypothesis:
    fields = strip_bom(line.text).split()
    if len(fields) < len(_SCORES):
        raise line.error(f"'{' '.join(_SCORES)} word ...'", quoted(line.text))
    numbers = zip(_SCORES, fields)
    features: Dict[str, Tuple[float, ...]] = {n: (number(text, line, n),) for n, text in numbers}
    words = [word for word in fields[len(_SCORES) :] if word not in (BOS, EOS)]
    return Hypothesis(list_id, " ".join(words), features, line)
