"""Goldberger & Melamud (2018), table 4: what the shift by mu_z does to unnormalised perplexity."""

from . import gm2018
from .table import PERPLEXITY, TEST, Table

TABLE = Table(
    title="Goldberger & Melamud (2018), table 4: unnormalised perplexity, raw and shifted, PTB",
    corpus=gm2018.CORPUS,
    regime=gm2018.REGIME,
    rows=gm2018.rows("nce", "bnce", "dev", "nce-r", "and"),
    columns=(
        PERPLEXITY,
        ("valid PPL^n", "valid_u_ppl", ".1f"),
        ("shifted", "valid_u_ppl_shifted", ".1f"),
        TEST,
        ("test PPL^n", "test_u_ppl", ".1f"),
        ("shifted", "test_u_ppl_shifted", ".1f"),
    ),
    about=gm2018.ABOUT
    + """
The shift is mu_z of the validation data, for test, too.""",
)
