"""Oualil & Klakow (2017), table 4: B-NCE on the One Billion Word Benchmark, 0.8M types."""

from . import ok2017
from .table import PERPLEXITY, SPEED, SPREAD, TEST, Table

TABLE = Table(
    title="Oualil & Klakow (2017), table 4: B-NCE on the One Billion Word Benchmark",
    corpus="obwb",
    regime=ok2017.corpus_regime("ok2017-obwb", "OBWB", size=64, epochs=5),
    rows=ok2017.rows("obwb", {"bnce": "bnce --row-sparse"}, {}),
    columns=(TEST, ("PPL^n", "test_u_ppl", ".1f"), PERPLEXITY, *SPREAD, *SPEED),
    about=ok2017.ABOUT,
)
