"""Goldberger & Melamud (2018), table 5 and figure 1: entropy and log Z."""

from .gm2018 import ABOUT, table
from .table import SPREAD

TABLE = table(
    "table 5: correlation of predictive entropy and log Z",
    ("softmax", "nce", "bnce", "dev", "nce-r", "and"),
    columns=(
        ("correlation", "entropy_correlation", ".2f"),
        ("entropy (nats)", "entropy", ".2f"),
        *SPREAD,
    ),
    about=ABOUT
    + """
Pearson's correlation over the validation contexts.""",
    is_drawn=True,
)
