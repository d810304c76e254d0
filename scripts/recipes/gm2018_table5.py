"""Goldberger & Melamud (2018), table 5 and figure 1: entropy and log Z."""

from . import gm2018
from .table import SPREAD, Table

TABLE = Table(
    title="Goldberger & Melamud (2018), table 5: correlation of predictive entropy and log Z, PTB",
    corpus=gm2018.CORPUS,
    regime=gm2018.REGIME,
    rows=gm2018.rows("softmax", "nce", "bnce", "dev", "nce-r", "and"),
    columns=(
        ("correlation", "entropy_correlation", ".2f"),
        ("entropy (nats)", "entropy", ".2f"),
        *SPREAD,
    ),
    about=gm2018.ABOUT
    + """
Pearson's correlation over the validation contexts.""",
    is_drawn=True,
)
