"""Goldberger & Melamud (2018), table 4: what the shift by mu_z does to unnormalised perplexity."""

from .gm2018 import ABOUT, table
from .table import PERPLEXITY, TEST

TABLE = table(
    "table 4: unnormalised perplexity, raw and shifted",
    ("nce", "bnce", "dev", "nce-r", "and"),
    columns=(
        PERPLEXITY,
        ("valid PPL^n", "valid_u_ppl", ".1f"),
        ("shifted", "valid_u_ppl_shifted", ".1f"),
        TEST,
        ("test PPL^n", "test_u_ppl", ".1f"),
        ("shifted", "test_u_ppl_shifted", ".1f"),
    ),
    about=ABOUT
    + """
The shift is mu_z of the validation data, for test, too.""",
)
