"""Oualil & Klakow (2017), table 2: softmax, NCE and B-NCE on LTCB, 80K types."""

from . import ok2017
from .table import PERPLEXITY, SPEED, SPREAD, TEST, Table

_METHODS = {
    "softmax": "cross_entropy",
    "nce": "nce --noise-samples 100 --row-sparse",
    "bnce": "bnce --row-sparse",
}
_PAPER = {
    "softmax-lstm": {"test_ppl": 62.5, "words_per_second": 8900},
    "bnce-lstm": {"test_ppl": 68.3, "words_per_second": 37100},
    "softmax-relu-lstm": {"test_ppl": 59.2},
    "bnce-relu-lstm": {"test_ppl": 62.4},
}

TABLE = Table(
    title="Oualil & Klakow (2017), table 2: softmax, NCE and B-NCE on LTCB",
    corpus="ltcb",
    regime=ok2017.corpus_regime("ok2017-ltcb", "LTCB", size=20, epochs=10),
    rows=ok2017.rows("ltcb", _METHODS, _PAPER),
    columns=(TEST, ("PPL^n", "test_u_ppl", ".1f"), PERPLEXITY, *SPREAD, *SPEED),
    about=ok2017.ABOUT,
)
