"""Oualil & Klakow (2017), table 2: softmax, shared NCE and B-NCE on LTCB, 80K types."""

from . import ok2017
from .table import PERPLEXITY, SPEED, SPREAD, TEST, Table

_METHODS = {
    "softmax": "cross_entropy",
    "s-nce": f"shared_nce --noise-samples 100 --row-sparse {ok2017.LOG_Z}",
    "bnce": f"bnce --row-sparse {ok2017.LOG_Z}",
}
_PAPER = {
    **ok2017.paper(
        "softmax", (110.2, 8400), (79.7, 5900), (69.5, 8600), (62.5, 8900), (59.2, 8200)
    ),
    **ok2017.paper(
        "s-nce",
        (129.8, 125.4, 29100),
        (88.7, 84.2, 37800),
        (80.2, 77.3, 30900),
        (77.4, 73.1, 27200),
        (68.4, 67.1, 26900),
    ),
    **ok2017.paper(
        "bnce",
        (119.4, 113.7, 35100),
        (87.6, 82.5, 43700),
        (79.4, 76.0, 36700),
        (70.9, 68.3, 37100),
        (64.9, 62.4, 32000),
    ),
}

TABLE = Table(
    title="Oualil & Klakow (2017), table 2: softmax, shared NCE and B-NCE on LTCB",
    corpus="ltcb",
    regime=ok2017.corpus_regime("ok2017-ltcb", "LTCB", size=20, rate=0.4, epochs=10),
    rows=ok2017.rows("ltcb", _METHODS, _PAPER),
    columns=(TEST, ("PPL^n", "test_u_ppl", ".1f"), PERPLEXITY, *SPREAD, *SPEED),
    about=ok2017.ABOUT,
)
