"""Formats of n-best lists: a class of :class:`fairseq_bnce.rescoring.lists.Format` for each."""

from typing import Dict

from fairseq_bnce.rescoring.formats.fairseq import Fairseq
from fairseq_bnce.rescoring.formats.jsonl import JsonLines
from fairseq_bnce.rescoring.formats.kaldi import Kaldi
from fairseq_bnce.rescoring.formats.moses import Moses
from fairseq_bnce.rescoring.formats.srilm import Srilm
from fairseq_bnce.rescoring.lists import Format

# The choices of --format.
FORMATS: Dict[str, Format] = {
    "moses": Moses(),
    "kaldi": Kaldi(),
    "fairseq": Fairseq(),
    "jsonl": JsonLines(),
    "srilm": Srilm(),
}
