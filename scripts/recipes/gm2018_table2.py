"""Goldberger & Melamud (2018), table 2: DEV beside NCE, on PTB."""

from .gm2018 import table
from .table import PERPLEXITY, SPEED, SPREAD

TABLE = table(
    "table 2: DEV beside NCE",
    ("nce", "bnce", "dev0.1", "dev", "dev10"),
    (PERPLEXITY, *SPREAD, *SPEED),
)
