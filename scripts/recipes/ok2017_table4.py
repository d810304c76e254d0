"""Oualil & Klakow (2017), table 4: shared NCE and B-NCE on One Billion Words, 0.8M types."""

from . import ok2017
from .table import PERPLEXITY, SPEED, SPREAD, TEST, Table

_METHODS = {
    "s-nce": f"shared_nce --noise-samples 200 --row-sparse {ok2017.LOG_Z}",
    "bnce": f"bnce --row-sparse {ok2017.LOG_Z}",
}
_PAPER = {
    **ok2017.paper(
        "s-nce",
        (86.3, 84.4, 12300),
        (70.8, 67.6, 24900),
        (59.6, 59.1, 20100),
        (51.3, 50.3, 12000),
        (51.0, 50.9, 13000),
    ),
    **ok2017.paper(
        "bnce",
        (81.9, 80.6, 13400),
        (63.4, 61.4, 27800),
        (56.9, 56.6, 23100),
        (48.6, 48.1, 13100),
        (49.2, 48.8, 14700),
    ),
}

TABLE = Table(
    title="Oualil & Klakow (2017), table 4: shared NCE and B-NCE on the One Billion Word Benchmark",
    corpus="obwb",
    regime=ok2017.corpus_regime("ok2017-obwb", "OBWB", size=25, rate=1, epochs=5),
    rows=ok2017.rows("obwb", _METHODS, _PAPER),
    columns=(TEST, ("PPL^n", "test_u_ppl", ".1f"), PERPLEXITY, *SPREAD, *SPEED),
    about=ok2017.ABOUT,
)
